"""Native kernels for int16; its sums are int48."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_graphs import native_reasons

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.spec import RoundingMode

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick", "native_kernels")

RNG = np.random.default_rng(9)
PLANE = {"pad": (2, 1, 0, 1), "stride": (2, 1), "dilation": (1, 2)}
SPACE = {"pad": (1, 0, 1, 1, 0, 1), "stride": (1, 2, 1), "dilation": (2, 1, 1)}
# Shapes of the input and of the weights, and attributes.
CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plane": ("CONV2D", (2, 8, 8, 5), (9, 3, 2, 5), PLANE),
    "many channels": ("CONV2D", (1, 3, 4, 64), (40, 1, 1, 64), {**PLANE, "pad": (0, 0, 0, 0)}),
    "space": ("CONV3D", (1, 4, 5, 6, 3), (7, 2, 3, 2, 3), SPACE),
    "depthwise": ("DEPTHWISE_CONV2D", (2, 8, 8, 5), (3, 2, 5, 2), PLANE),
    "transposed": (
        "TRANSPOSE_CONV2D",
        (1, 4, 5, 6),
        (8, 3, 3, 6),
        {"stride": (2, 3), "out_pad": (-1, 2, 0, 1)},
    ),
}


def drawn(low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """Of all values, every fourth one of the two extremes."""
    extremes = RNG.choice(np.array([low, high - 1]), shape)
    return np.where(RNG.random(shape) < 0.25, extremes, RNG.integers(low, high, shape))


def convolution(
    name: str, *, weight_zp: int = 0, known: bool = True, to: DType | None = None
) -> Graph:
    op, shape, of_weight, attributes = CONVOLUTIONS[name]
    b = Builder()
    x = b.input("x", DType.INT16, shape)
    channels = of_weight[2] * of_weight[3] if op == "DEPTHWISE_CONV2D" else of_weight[0]
    weights = drawn(-128, 128, of_weight).astype(np.int8)
    weight = b.const(weights, DType.INT8) if known else b.input("w", DType.INT8, of_weight)
    most = 2**44 if to is None else 2**26
    bias = b.const(drawn(-most, most, (channels,)), DType.INT48)
    zero_points = b.const([0], DType.INT16), b.const([weight_zp], DType.INT8)
    out = b.op(op, x, weight, bias, *zero_points, acc_type=DType.INT48, **attributes)
    if to is not None:
        most = 12_000 if to is DType.INT16 else 50
        out = rescaled(b, out, channels, to, known=known)
        out = b.op("CLAMP", out, min_val=-most - 7, max_val=most)
    return b.graph([out])


def rescaled(b: Builder, sums: Tensor, channels: int, to: DType, *, known: bool) -> Tensor:
    """Scaled by channel, to all of the type and a little more."""

    def operand(name: str, values: Any, dtype: DType) -> Tensor:
        return b.const(values, dtype) if known else b.input(name, dtype, (channels,))

    return b.op(
        "RESCALE", sums, operand("multiplier", drawn(2**14, 2**15, (channels,)), DType.INT16),
        b.const(np.full(channels, 27 if to is DType.INT16 else 35), DType.INT8),
        b.const([0], DType.INT48), b.const([0 if to is DType.INT16 else -3], to),
        scale32=False, rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=True,
        input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


def product(a: tuple[int, ...], b_shape: tuple[int, ...], *, scaled: bool = False) -> Graph:
    b = Builder()
    zero = b.const([0], DType.INT16)
    inputs = b.input("a", DType.INT16, a), b.input("b", DType.INT16, b_shape)
    out = b.op("MATMUL", *inputs, zero, zero)
    if scaled:
        out = rescaled(b, out, b_shape[2], DType.INT16, known=True)
    return b.graph([out])


def inputs_of(graph: Graph) -> list[np.ndarray]:
    types = {DType.INT16: np.iinfo(np.int16), DType.INT8: np.iinfo(np.int8)}
    limits = ((types[tensor.dtype], tensor.shape or ()) for tensor in graph.input_tensors)
    found = [drawn(of.min, of.max + 1, shape).astype(of.dtype) for of, shape in limits]
    names = (tensor.name for tensor in graph.input_tensors)
    # A multiplier is not negative.
    return [np.abs(x // 2) if n == "multiplier" else x for n, x in zip(names, found, strict=True)]


def check(graph: Graph, what: list[str]) -> None:
    """The bits of the other routes, also of a batch."""
    found, wanted = (tosajax.compile(graph, native=native) for native in (None, False))
    nodes = found.cost().nodes
    assert [n.reason for n in nodes if n.route.startswith("native")] == what
    inputs = inputs_of(graph)
    np.testing.assert_array_equal(found(*inputs)[0], wanted(*inputs)[0])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, known: bool):
    graph = convolution(name, known=known)
    check(graph, [CONVOLUTIONS[name][0]])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("to", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_scaled_convolutions(name: str, to: DType, known: bool):
    graph = convolution(name, to=to, known=known)
    check(graph, [f"{CONVOLUTIONS[name][0]}, RESCALE, CLAMP"])


def test_weights_less_a_zero_point():
    check(convolution("plane", weight_zp=3), ["CONV2D"])
    check(convolution("plane", weight_zp=-128), ["CONV2D"])
    check(convolution("plane", weight_zp=3, known=False), ["CONV2D"])


def test_batches():
    graph = convolution("space")
    run, one = tosajax.compile(graph, batch=5), tosajax.compile(graph, native=False)
    images = drawn(-(2**15), 2**15, (5, 4, 5, 6, 3)).astype(np.int16)
    for at, found in enumerate(np.asarray(run(images)[0])):
        np.testing.assert_array_equal(found, one(images[at : at + 1])[0][0])


@pytest.mark.parametrize(("a", "b"), [((2, 5, 7), (2, 7, 9)), ((1, 33, 64), (1, 64, 40))])
def test_products(a: tuple[int, ...], b: tuple[int, ...]):
    check(product(a, b), ["MATMUL"])
    check(product(a, b, scaled=True), ["MATMUL, RESCALE"])


@pytest.mark.parametrize("count", [65535, 65536])
def test_the_most_terms(count: int):
    """Of the low bytes: 255 * 128 * 65536 is more than int32 holds, less 65536 * 128 is not."""
    b = Builder()
    x = b.input("x", DType.INT16, (1, 1, 1, count))
    weight = b.input("w", DType.INT8, (1, 1, 1, count))
    bias, zeros = b.const([7], DType.INT48), (b.const([0], DType.INT16), b.const([0], DType.INT8))
    sums = b.op("CONV2D", x, weight, bias, *zeros, acc_type=DType.INT48,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    run = tosajax.compile(b.graph([sums]))
    assert bool(native_reasons(run)) == (count == 65535)
    weights = np.full((1, 1, 1, count), -128, np.int8)
    for value in (-(2**15), 2**15 - 1, 255, -256):
        (found,) = run(np.full((1, 1, 1, count), value, np.int16), weights)
        assert int(np.asarray(found)[0, 0, 0, 0]) == value * -128 * count + 7
