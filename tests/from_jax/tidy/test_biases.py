"""Sums that become biases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exports import operators

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.from_jax.tidy import tidied
from tosajax.from_jax.tidy.biases import with_biases
from tosajax.from_jax.values import Origin, Reshaped
from tosajax.from_jax.written import Written
from tosajax.passes.folding import fold

SPACE: dict[str, Any] = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1)}
ACC = {DType.FP32: DType.FP32, DType.INT8: DType.INT32, DType.FP16: DType.FP16}
OUT = {DType.FP32: DType.FP32, DType.INT8: DType.INT32, DType.FP16: DType.FP16}


def conv(b: Builder, dtype: DType = DType.FP32, bias: float = 0) -> Tensor:
    x = b.input("x", dtype, (2, 5, 4, 3))
    weight = b.const(np.arange(2 * 27).reshape(2, 3, 3, 3) % 7 - 3, dtype)
    zero = b.const([0], dtype)
    row = b.const([bias] * 2, OUT[dtype])
    return b.op("CONV2D", x, weight, row, zero, zero, **SPACE, acc_type=ACC[dtype])


def fused(graph: Graph) -> Graph:
    """The graph after the pass, which is legal and has the same bits."""
    found = fold(with_biases(Written(graph, {})).graph)
    tosajax.validate(found).raise_errors()
    (x,) = graph.input_tensors
    values = np.random.default_rng(1).integers(-99, 99, x.shape or ()).astype(x.dtype.storage)
    pairs = zip(tosajax.compile(graph)(values), tosajax.compile(found)(values), strict=True)
    for before, after in pairs:
        np.testing.assert_array_equal(before, after)
    return found


@pytest.mark.parametrize("dtype", [DType.FP32, DType.INT8])
@pytest.mark.parametrize("values", [[[[[3, -4]]]], [[[[5]]]]])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_constant_of_channels(dtype, values, is_first):
    b = Builder()
    y, row = conv(b, dtype), b.const(values, OUT[dtype])
    graph = b.graph([b.op("ADD", *((y, row) if is_first else (row, y)))])
    assert operators(fused(graph)) == ["CONV2D"]


@pytest.mark.parametrize(
    "values",
    [np.ones((1, 1, 4, 1)), np.ones((2, 1, 1, 2)), np.ones((1, 5, 1, 1))],
    ids=["of columns", "of examples", "of rows"],
)
def test_other_constants(values):
    b = Builder()
    graph = b.graph([b.op("ADD", conv(b), b.const(values, DType.FP32))])
    assert operators(fused(graph)) == ["CONV2D", "ADD"]


def test_a_bias_that_is_there():
    b = Builder()
    graph = b.graph([b.op("ADD", conv(b, bias=1), b.const([[[[3, -4]]]], DType.FP32))])
    assert operators(fused(graph)) == ["CONV2D", "ADD"]


def test_a_sum_that_something_else_reads():
    b = Builder()
    y = conv(b)
    graph = b.graph([b.op("ADD", y, b.const([[[[3, -4]]]], DType.FP32)), y])
    assert operators(fused(graph)) == ["CONV2D", "ADD"]


def test_a_type_in_which_the_sum_is_rounded():
    b = Builder()
    graph = b.graph([b.op("ADD", conv(b, DType.FP16), b.const([[[[3, -4]]]], DType.FP16))])
    assert operators(fused(graph)) == ["CONV2D", "ADD"]


def test_names_and_origins():
    b = Builder()
    graph = b.graph([b.op("ADD", conv(b), b.const([[[[3, -4]]]], DType.FP32, name="bias"))])
    found = with_biases(Written(graph, {"bias": Origin("layer/bias")}))
    move = Reshaped((1, 1, 1, 2), (2,))
    assert found.origins == {"bias": Origin("layer/bias", moves=(move,))}
    assert found.graph.tensors["bias"].shape == (2,)
    assert found.graph.outputs == graph.outputs


def test_a_constant_with_other_readers():
    b = Builder()
    row = b.const([[[[3, -4]]]], DType.FP32, name="bias")
    y = b.op("ADD", conv(b), row)
    graph = fused(b.graph([y, b.op("ABS", row)]))
    assert operators(graph) == ["CONV2D", "ABS"] or operators(graph) == ["ABS", "CONV2D"]


def test_across_a_reshape():
    """As linear layers are written: RESHAPE, CONV2D, RESHAPE, ADD."""
    b = Builder()
    y = b.op("RESHAPE", conv(b), b.const_shape([10, 4, 2]))
    graph = b.graph([b.op("ADD", y, b.const([[[3, -4]]], DType.FP32))])
    assert operators(tidied(Written(graph, {})).graph) == ["CONV2D", "RESHAPE"]
