"""Tables of fewer points, against straight lines in exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, reference_model, rewrite


def looking_up(table: np.ndarray, dtype: DType) -> Graph:
    b = Builder()
    x = b.input("x", dtype, (1, 256))
    return b.graph([b.op("TABLE", x, b.const(table, dtype, name="t"), name="y")])


def table_of(graph: Graph) -> np.ndarray:
    (node,) = [n for n in graph.nodes if n.op == "TABLE"]
    values = graph.tensors[node.inputs[1]].values
    assert values is not None
    return values


def entries(dtype: DType) -> np.ndarray:
    low, high = dtype.minimum, dtype.maximum
    count = 256 if dtype is DType.INT8 else 513
    found = np.random.default_rng(3).integers(low, high + 1, count).astype(dtype.storage)
    found[[0, 1, -2, -1]] = (low, high, high, low)
    return found


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 7, 8, 9, 20])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_points_and_lines(dtype, bits):
    table = entries(dtype)
    found = table_of(rewrite.table_resolution(looking_up(table, dtype), bits))
    all_bits = 8 if dtype is DType.INT8 else 9
    step = 1 << max(0, all_bits - bits)
    kept = sorted({*range(0, len(table), step), len(table) - 1})
    for start, end in itertools.pairwise(kept):
        for i in range(start, end + 1):
            rise = Fraction(int(table[end]) - int(table[start]), end - start)
            exact = int(table[start]) + rise * (i - start)
            assert found[i] == math.floor(exact + Fraction(1, 2))
    np.testing.assert_array_equal(found[kept], table[kept])


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_on_arms_model(dtype):
    graph = rewrite.table_resolution(looking_up(entries(dtype), dtype), 3)
    tosajax.validate(graph).raise_errors()
    x = np.linspace(dtype.minimum, dtype.maximum, 256).astype(dtype.storage)[None]
    (found,) = tosajax.compile(graph)(x)
    np.testing.assert_array_equal(np.asarray(found), reference_model.run(graph, x)["y"])
    assert "t" not in graph.tensors


def test_what_cannot_be():
    with pytest.raises(ValueError, match="0 bits, expected at least 1"):
        rewrite.table_resolution(looking_up(entries(DType.INT8), DType.INT8), 0)
    with pytest.raises(ValueError, match="no TABLE of graph 'main'"):
        rewrite.table_resolution(small.two_layers(), 4)
    b = Builder()
    x, t = b.input("x", DType.INT8, (1, 4)), b.input("t", DType.INT8, (256,))
    with pytest.raises(ValueError, match="TABLE 'y': table 't' is not a constant"):
        rewrite.table_resolution(b.graph([b.op("TABLE", x, t, name="y")]), 4)
