"""Constants are computed once, unread tensors never, and results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from compilations import compiled_of
from programs import below, doubled, loop

import tosajax
from tosajax import Builder, DType
from tosajax.passes.folding import fold


def operators(graph: tosajax.Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op not in ("CONST", "CONST_SHAPE")]


def convolution(*, dtype: DType = DType.INT8) -> tosajax.Graph:
    """A convolution with weights from [KH, KW, IC, OC] and a scaled bias, and an unread sum."""
    b = Builder()
    rng = np.random.default_rng(1)
    x = b.input("x", dtype, (1, 8, 8, 16))
    raw = b.const(rng.integers(-127, 128, (3, 3, 16, 32)), DType.INT8)
    weight = b.op("REVERSE", b.op("TRANSPOSE", raw, perms=(3, 0, 1, 2)), axis=1, name="weight")
    wide = DType.INT48 if dtype is DType.INT16 else DType.INT32
    bias = b.const(rng.integers(-999, 999, 32), wide)
    y = b.op(
        "CONV2D", x, weight, bias, b.const([0], dtype), b.const([0], DType.INT8),
        pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1), acc_type=wide,
    )  # fmt: skip
    b.op("ABS", b.op("ADD", raw_wide(b), raw_wide(b)))
    b.op("ABS", b.input("unused", DType.INT32, (2,)))
    return b.graph([y])


def raw_wide(b: Builder) -> tosajax.Tensor:
    return b.const(np.arange(4), DType.INT32)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_weights_that_are_computed_take_the_fast_route(dtype):
    graph = convolution(dtype=dtype)
    folded = fold(graph)
    assert operators(folded) == ["CONV2D"]
    tosajax.validate(folded).raise_errors()
    run = tosajax.compile(graph, native=False)
    (node,) = (n for n in run.cost().nodes if n.macs)
    assert node.route == "convolution"
    fn, params = tosajax.lower(graph)
    x = np.random.default_rng(2).integers(-128, 128, (1, 8, 8, 16)).astype(dtype.storage)
    unused = np.zeros(2, np.int32)
    np.testing.assert_array_equal(run(x, unused)[0], fn(params, x, unused)[0])


def test_arithmetic_of_floats_is_left_to_the_program():
    b = Builder()
    c = b.const([0.1, 0.2], DType.FP32)
    y = b.op("EXP", b.op("REVERSE", c, axis=0))
    assert operators(fold(b.graph([y]))) == ["EXP"]
    b = Builder()
    moved = b.op("REVERSE", b.const([0.1, 0.2], DType.BF16), axis=0)
    assert operators(fold(b.graph([moved]))) == ["REVERSE"]


def test_what_grows_is_left_to_the_program():
    for times, left in ((2**15, []), (2**15 + 1, ["TILE"])):
        b = Builder()
        y = b.op("TILE", b.const([1, 2], DType.INT8), b.const_shape((times,)))
        assert operators(fold(b.graph([y]))) == left


def test_flags_of_constants_stay():
    b = Builder()
    big = b.const([2**31 - 1], DType.INT32)
    y = b.op("ADD", big, b.const([1], DType.INT32), name="sum")
    b.op("SUB", b.const([-(2**31)], DType.INT32), b.const([1], DType.INT32), name="unread")
    graph = b.graph([y])
    assert operators(fold(graph)) == []
    assert operators(fold(graph, keep_required=True)) == ["ADD", "SUB"]
    b = Builder()
    without_rules = b.graph([b.op("BITWISE_NOT", b.const([1], DType.INT32))])
    assert operators(fold(without_rules, keep_required=True)) == []
    _, flags = tosajax.compile(graph, report_unpredictable=True)()
    assert flags["ADD 'sum'", "add.r1"]
    assert flags["SUB 'unread'", "sub.r1"]


def test_what_acts_beside_its_results_stays():
    b = Builder()
    b.variable("total", DType.INT8, (1,), initial_value=[5])
    b.write("total", b.op("BITWISE_NOT", b.const([-8], DType.INT8)))
    y = b.op("ABS", b.input("x", DType.INT32, (1,)))
    graph = b.graph([y])
    assert operators(fold(graph)) == ["VARIABLE", "VARIABLE_WRITE", "ABS"]
    run = tosajax.compile(graph)
    run(np.zeros(1, np.int32))
    np.testing.assert_array_equal(run.state["total"].value, [7])


def test_all_constants_are_one_program():
    b = Builder()
    y = b.const(np.arange(13), DType.INT32)  # of a shape that nothing else has
    for _ in range(3):
        y = b.op("BITWISE_NOT", b.op("ADD", y, y))
    graph = b.graph([y])
    assert compiled_of(lambda: fold(graph)) == 1
    assert operators(fold(graph)) == []


def test_compiled_constants_share_no_memory_with_the_user():
    """A JAX array may share the aligned memory of the NumPy array that it is made of."""
    for dtype, storage in ((DType.INT32, np.int32), (DType.INT48, np.int64)):
        memory = np.zeros(1024 + 64, np.uint8)
        start = -memory.ctypes.data % 64
        values = memory[start : start + 1024].view(storage)
        b = Builder()
        found = tosajax.lower(b.graph([b.op("IDENTITY", b.const(values, dtype))]))[1]
        assert found
        values[:] = 1
        for parameter in found.values():
            np.testing.assert_array_equal(parameter, 0)


def test_subgraphs():
    graph = loop(below(5), doubled())
    assert fold(graph) == graph


def test_constant_outputs():
    b = Builder()
    values = np.array([3, -(2**31)])
    inverted = b.op("BITWISE_NOT", b.const(values, DType.INT32))
    same = b.op("IDENTITY", b.const(values * 2**16, DType.INT48))
    graph = b.graph([inverted, same])
    assert operators(fold(graph)) == []
    small, wide = tosajax.compile(graph)()
    np.testing.assert_array_equal(small, [-4, 2**31 - 1])
    np.testing.assert_array_equal(wide, values * 2**16)
