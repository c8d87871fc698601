"""Moves that go behind elementwise operators: fewer nodes, the same bits."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from exports import operators

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.from_jax.tidy.views import with_few_moves
from tosajax.from_jax.values import Origin, Transposed
from tosajax.from_jax.written import Written
from tosajax.passes.folding import fold
from tosajax.spec import NanMode

F32, I32 = DType.FP32, DType.INT32


def late(graph: Graph) -> Graph:
    """The graph with moves as late as they can be, which is legal and has the same outputs."""
    found = fold(with_few_moves(Written(graph, {})).graph)
    tosajax.validate(found).raise_errors()
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-9, 9, t.shape).astype(t.dtype.storage) for t in graph.input_tensors]
    pairs = zip(tosajax.compile(graph)(*inputs), tosajax.compile(found)(*inputs), strict=True)
    for before, after in pairs:
        np.testing.assert_array_equal(before, after)
    return found


def transposed(b: Builder, x: Tensor, *perms: int) -> Tensor:
    return b.op("TRANSPOSE", x, perms=perms)


def reshaped(b: Builder, x: Tensor, *shape: int) -> Tensor:
    return b.op("RESHAPE", x, b.const_shape(shape))


def test_transposes_cancel_across_elementwise_operators():
    b = Builder()
    x = b.input("x", F32, (2, 3, 4))
    y = b.op("TANH", transposed(b, x, 2, 0, 1))
    y = b.op("ADD", y, b.const(np.arange(6).reshape(1, 2, 3), F32))
    graph = late(b.graph([transposed(b, y, 1, 2, 0)]))
    assert operators(graph) == ["TANH", "ADD"]
    (constant,) = (t for t in graph.tensors.values() if t.values is not None)
    assert constant.shape == (2, 3, 1)


def test_reshapes_cancel_across_elementwise_operators():
    b = Builder()
    x = b.input("x", F32, (2, 3, 4))
    y = b.op("ADD", reshaped(b, x, 6, 4), b.const(np.arange(4).reshape(1, 4), F32))
    y = b.op("MAXIMUM", y, b.const([[0]], F32), nan_mode=NanMode.PROPAGATE)
    graph = late(b.graph([reshaped(b, y, 2, 3, 4)]))
    assert operators(graph) == ["ADD", "MAXIMUM"]


def test_reshapes_cancel_across_constants_of_all_elements():
    b = Builder()
    x = b.input("x", F32, (2, 3, 4))
    y = b.op("ADD", reshaped(b, x, 6, 4), b.const(np.arange(24).reshape(6, 4), F32))
    assert operators(late(b.graph([reshaped(b, y, 2, 3, 4)]))) == ["ADD"]


def test_a_reshape_that_a_constant_depends_on_stays():
    b = Builder()
    x = b.input("x", F32, (2, 3, 4))
    y = b.op("ADD", reshaped(b, x, 6, 4), b.const(np.arange(6).reshape(6, 1), F32))
    graph = late(b.graph([reshaped(b, y, 2, 3, 4)]))
    assert operators(graph) == ["RESHAPE", "ADD", "RESHAPE"]


def test_axes_follow():
    b = Builder()
    x = b.input("x", I32, (2, 3, 4))
    y = transposed(b, x, 2, 0, 1)
    y = b.op("PAD", y, b.const_shape([1, 0, 0, 2, 3, 0]), b.const([7], I32))
    y = b.op("SLICE", y, b.const_shape([1, 1, 2]), b.const_shape([3, 2, 3]))
    y = b.op("REVERSE", y, axis=0)
    y = b.op("CONCAT", y, y, axis=1)
    y = b.op("TILE", y, b.const_shape([1, 2, 3]))
    y = b.op("REDUCE_SUM", y, axis=0)
    graph = late(b.graph([transposed(b, y, 1, 2, 0)]))
    assert operators(graph) == ["PAD", "SLICE", "REVERSE", "CONCAT", "TILE", "REDUCE_SUM"]


def test_constants_that_are_joined():
    b = Builder()
    x = b.input("x", I32, (2, 3))
    row = b.const([[7, 8]], I32, name="row")
    y = b.op("CONCAT", row, transposed(b, x, 1, 0), axis=0)
    graph = late(b.graph([transposed(b, y, 1, 0)]))
    assert operators(graph) == ["CONCAT"]
    assert graph.tensors["row"].shape == (2, 1)


def test_sums_of_what_is_moved_alike():
    b = Builder()
    x, y = b.input("x", I32, (2, 3)), b.input("y", I32, (2, 3))
    total = b.op("ADD", transposed(b, x, 1, 0), transposed(b, y, 1, 0))
    graph = late(b.graph([transposed(b, total, 1, 0)]))
    assert operators(graph) == ["ADD"]


def test_operands_that_are_moved_differently_stay():
    b = Builder()
    x, y = b.input("x", I32, (2, 3)), b.input("y", I32, (3, 2))
    total = b.op("ADD", transposed(b, x, 1, 0), y)
    assert operators(late(b.graph([total]))) == ["TRANSPOSE", "ADD"]


def test_a_transpose_of_ones_is_a_reshape():
    b = Builder()
    x = b.input("x", I32, (1, 3, 1, 4))
    y = b.op("ABS", transposed(b, x, 2, 1, 3, 0))
    assert operators(late(b.graph([reshaped(b, y, 1, 3, 1, 4)]))) == ["ABS"]


def test_outputs_are_computed_tensors():
    b = Builder()
    x = b.input("x", I32, (2, 3))
    y = transposed(b, transposed(b, x, 1, 0), 1, 0)
    graph = late(b.graph([y, reshaped(b, reshaped(b, x, 6), 2, 3)]))
    assert operators(graph) == ["IDENTITY", "IDENTITY"]
    assert len({*graph.inputs, *graph.outputs}) == 3


def test_scales_of_channels_stay_where_channels_are():
    b = Builder()
    x = b.input("x", I32, (2, 3))
    y = transposed(b, x, 1, 0)
    many = [b.const(np.full(2, n), t) for n, t in ((1 << 30, I32), (31, DType.INT8))]
    zeros = b.const([0], I32), b.const([0], DType.INT8)
    y = b.op(
        "RESCALE", y, *many, *zeros, dtype=DType.INT8, scale32=True, per_channel=True,
        rounding_mode=tosajax.spec.RoundingMode.SINGLE_ROUND, input_unsigned=False,
        output_unsigned=False,
    )  # fmt: skip
    assert operators(late(b.graph([transposed(b, y, 1, 0)]))) == [
        *("TRANSPOSE", "RESCALE", "TRANSPOSE")
    ]


def test_origins_of_constants_follow():
    b = Builder()
    x = b.input("x", F32, (2, 3))
    y = b.op("ADD", transposed(b, x, 1, 0), b.const(np.ones((3, 2)), F32, name="w"))
    written = Written(b.graph([transposed(b, y, 1, 0)]), {"w": Origin("layer/w")})
    graph, origins = with_few_moves(written)
    assert origins == {"w": Origin("layer/w", moves=(Transposed((1, 0)),))}
    assert graph.tensors["w"].shape == (2, 3)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed):
    """Moves, elementwise operators and others, by chance; bits and legality are checked."""
    rng = random.Random(seed)
    b = Builder()
    found = [b.input("x", I32, (2, 3, 4)), b.input("y", I32, (2, 3, 4))]
    for _ in range(14):
        x = rng.choice(found)
        shape = x.shape or ()
        match rng.randrange(6):
            case 0:
                found.append(transposed(b, x, *rng.sample(range(len(shape)), len(shape))))
            case 1:
                sizes = rng.choice([(math.prod(shape),), (1, *shape), (*shape[:1], -1)])
                sizes = [n if n > 0 else math.prod(shape[1:]) for n in sizes]
                if len(sizes) <= 5:
                    found.append(reshaped(b, x, *sizes))
            case 2:
                others = [y for y in found if y.shape == shape]
                found.append(b.op("ADD", x, rng.choice(others)))
            case 3:
                dims = [n if rng.random() < 0.5 else 1 for n in shape]
                values = np.random.default_rng(seed).integers(-5, 5, dims)
                found.append(b.op("MAXIMUM", x, b.const(values, I32), nan_mode=NanMode.PROPAGATE))
            case 4:
                found.append(b.op("REVERSE", x, axis=rng.randrange(len(shape))))
            case 5:
                found.append(
                    b.op(
                        "REDUCE_MAX", x, axis=rng.randrange(len(shape)), nan_mode=NanMode.PROPAGATE
                    )
                )
    late(b.graph(rng.sample(found[2:], 3)))
