"""Fewer bits, against Python integers and Arm's reference model."""

from __future__ import annotations

import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, Graph, reference_model, rewrite
from tosajax.runtime.dump import dump


def through(dtype: DType, zero_point: int) -> Graph:
    """Every integer of a type, as it is: a RESCALE by 1."""
    b = Builder()
    x = b.input("x", dtype, (1, 512))
    y = small.rescale(
        b, x, (1 << 30,), (30,), dtype, name="y", input_zp=zero_point, output_zp=zero_point
    )
    return b.graph([y])


def on_grid(value: int, dtype: DType, zero_point: int, drop: int) -> int:
    unit = 1 << drop
    most = (2 << dtype.bits) // unit
    multiples = range(-most, most + 1)
    held = [m for m in multiples if dtype.minimum <= m * unit + zero_point <= dtype.maximum]
    wanted = (2 * (value - zero_point) + unit) // (2 * unit)
    return min(max(wanted, held[0]), held[-1]) * unit + zero_point


@pytest.mark.parametrize("zero_point", [0, -128, 127, 5, -1])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_activations_of_int8(n, zero_point):
    graph = rewrite.bits(through(DType.INT8, zero_point), n)
    tosajax.validate(graph).raise_errors()
    x = np.resize(np.arange(-128, 128), (1, 512)).astype(np.int8)
    want = [[on_grid(int(v), DType.INT8, zero_point, 8 - n) for v in x[0]]]
    (found,) = tosajax.compile(graph)(x)
    np.testing.assert_array_equal(np.asarray(found), want)
    assert len(np.unique(want)) <= 1 << n
    if n == 5:
        np.testing.assert_array_equal(reference_model.run(graph, x)["y"], want)


def test_activations_of_int16():
    graph = rewrite.bits(through(DType.INT16, 0), 6)
    x = np.linspace(-32768, 32767, 512).astype(np.int16)[None]
    (found,) = tosajax.compile(graph)(x)
    np.testing.assert_array_equal(
        np.asarray(found), [[on_grid(int(v), DType.INT16, 0, 10) for v in x[0]]]
    )


def test_a_clamp_is_rounded_in_the_place_of_what_it_reads():
    graph, x = small.two_layers(), small.images(4)
    fewer = rewrite.bits(graph, 4, "act1|relu1")
    tosajax.validate(fewer).raise_errors()
    found = dump(fewer, x)
    np.testing.assert_array_equal(found["act1"], dump(graph, x)["act1"])
    assert set(np.unique((found["relu1"].astype(int) - 5) % 16)) == {0}
    want = reference_model.run(fewer, x[:, None])["out"]
    np.testing.assert_array_equal(found["out"][:, None], want)
    (node,) = [n for n in fewer.nodes if "relu1" in n.outputs]
    assert node.location == small.LOCATIONS[0]
    # The CLAMP is not chosen, so nothing is left to do for what it reads.
    assert rewrite.bits(graph, 4, "act1") == graph


@pytest.mark.parametrize("n", [1, 4, 7])
def test_weights(n):
    graph = small.two_layers()
    fewer = rewrite.bits(graph, n, "first", "weights")
    tosajax.validate(fewer).raise_errors()
    before, after = (g.tensors["acc1/weight"].values for g in (graph, fewer))
    assert before is not None
    want = [on_grid(int(v), DType.INT8, 0, 8 - n) for v in before.reshape(-1)]
    np.testing.assert_array_equal(np.asarray(after).reshape(-1), want)
    assert fewer.tensors["acc2/weight"] == graph.tensors["acc2/weight"]


def test_weights_behind_a_reshape_and_of_zero_points():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 1, 1, 4))
    flat = b.const(np.arange(-6, 6), DType.INT8, name="w")
    weight = b.op("RESHAPE", flat, b.const_shape((3, 1, 1, 4)))
    zero, zp = b.const([0], DType.INT8), b.const([3], DType.INT8)
    y = b.op(
        "CONV2D", x, weight, b.const([0], DType.INT32), zero, zp, pad=(0,) * 4, stride=(1, 1),
        dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip
    fewer = rewrite.bits(b.graph([y]), 6, tensors="weights")
    want = [on_grid(v, DType.INT8, 3, 2) for v in range(-6, 6)]
    np.testing.assert_array_equal(np.asarray(fewer.tensors["w"].values), want)


def test_int4_weights_keep_their_range():
    b = Builder()
    x = b.input("x", DType.INT8, (1, 1, 1, 15))
    weight = b.const(np.arange(-7, 8).reshape(1, 1, 1, 15), DType.INT4, name="w")
    zeros = b.const([0], DType.INT8), b.const([0], DType.INT4)
    y = b.op(
        "CONV2D", x, weight, b.const([0], DType.INT32), *zeros, pad=(0,) * 4, stride=(1, 1),
        dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip
    fewer = rewrite.bits(b.graph([y]), 3, tensors="weights")
    tosajax.validate(fewer).raise_errors()
    want = [on_grid(v, DType.INT4, 0, 1) for v in range(-7, 8)]
    np.testing.assert_array_equal(np.asarray(fewer.tensors["w"].values).reshape(-1), want)


def test_what_cannot_be():
    graph = small.two_layers()
    assert rewrite.bits(graph, 8) == graph
    with pytest.raises(ValueError, match="0 bits, expected at least 1"):
        rewrite.bits(graph, 0)
    with pytest.raises(ValueError, match="'biases', expected 'activations' or 'weights'"):
        rewrite.bits(graph, 4, tensors="biases")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no constant weight of graph 'main' matches 'act1'"):
        rewrite.bits(graph, 4, "act1", "weights")
