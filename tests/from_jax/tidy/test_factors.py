"""One constant factor for two."""

from __future__ import annotations

import numpy as np
import pytest
from exports import operators

import tosajax
from tosajax import Builder, DType, Graph
from tosajax.from_jax.tidy.factors import with_single_factors
from tosajax.from_jax.written import Written
from tosajax.passes.folding import fold

X = np.asarray([[1, -2, 0.5], [7, np.inf, np.nan]], np.float32)


def scaled(
    *factors: np.ndarray, dtype: DType = DType.FP32, outputs: slice = slice(-1, None)
) -> Graph:
    b = Builder()
    shift = b.const([0], DType.INT8)
    found = [b.input("x", dtype, X.shape)]
    for at, factor in enumerate(factors):
        pair = (found[-1], b.const(factor, dtype))
        found.append(b.op("MUL", *(pair if at % 2 else pair[::-1]), shift))
    found.append(b.op("ABS", found[-1]))
    return b.graph(found[outputs])


def joined(graph: Graph, rtol: float = 2e-7) -> list[str]:
    """The operators after the pass, which is legal and has nearly the same results."""
    found = fold(with_single_factors(Written(graph, {})).graph)
    tosajax.validate(found).raise_errors()
    x = X.astype(graph.input_tensors[0].dtype.storage)
    for before, after in zip(tosajax.compile(graph)(x), tosajax.compile(found)(x), strict=True):
        np.testing.assert_allclose(before, after, rtol=rtol)
    return operators(found)


def test_two_and_three():
    row = np.asarray([[3.0, 0.1, -7]])
    assert joined(scaled(row, np.full((1, 1), 0.3))) == ["MUL", "ABS"]
    assert joined(scaled(row, np.full((1, 1), 0.3), row)) == ["MUL", "ABS"]


def test_what_is_one_goes():
    """As an average is a sum, divided by its count."""
    assert joined(scaled(np.full((1, 1), 9.0), np.full((1, 1), np.float32(1 / 9)))) == ["ABS"]
    ones = np.ones((2, 3))
    assert joined(scaled(ones), rtol=0) == ["ABS"]


def test_an_output_that_is_one_stays():
    graph = scaled(np.ones((1, 1)), outputs=slice(1, 2))
    assert joined(graph, rtol=0) == ["MUL"]


@pytest.mark.parametrize(
    "factors",
    [(1e30, 1e30), (1e-30, 1e-30), (0.0, 3.0)],
    ids=["overflow", "underflow", "zero"],
)
def test_products_that_are_not_safe(factors):
    graph = scaled(*(np.full((1, 1), f) for f in factors))
    assert joined(graph) == ["MUL", "MUL", "ABS"]


def test_constants_stay_small():
    graph = scaled(np.full((2, 1), 2.0), np.full((1, 3), 3.0))
    assert joined(graph) == ["MUL", "MUL", "ABS"]


def test_a_product_that_something_else_reads():
    graph = scaled(np.full((1, 1), 2.0), np.full((1, 1), 3.0), outputs=slice(1, None))
    assert joined(graph) == ["MUL", "MUL", "ABS"]


def test_a_type_that_is_rounded_more():
    graph = scaled(np.full((1, 1), 3.0), np.full((1, 1), 0.3), dtype=DType.FP16)
    assert joined(graph) == ["MUL", "MUL", "ABS"]


def test_ones_that_repeat():
    b = Builder()
    x, shift = b.input("x", DType.FP32, (1, 3)), b.const([0], DType.INT8)
    y = b.op("MUL", x, b.const(np.ones((2, 1)), DType.FP32), shift)
    graph = with_single_factors(Written(b.graph([b.op("ABS", y)]), {})).graph
    assert operators(graph) == ["MUL", "ABS"]
