"""What native kernels of float32 compute together, and what they leave alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_graphs import whys

import tosajax
from tosajax import Graph, Tensor
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.lowering.fusions import obstacle
from tosajax.spec import NanMode

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("quick", "native_kernels")
RNG = np.random.default_rng(5)
IMAGES = RNG.normal(0, 1, (3, 8, 8, 6)).astype(np.float32)
Write = Callable[[Builder, Tensor], Any]


def graph_of(write: Write) -> Graph:
    b = Builder()
    results = write(b, b.input("x", DType.FP32, (1, 8, 8, 6)))
    return b.graph(results if isinstance(results, list) else [results])


def number(b: Builder, values: Any, dtype: DType = DType.FP32) -> Tensor:
    return b.const(np.asarray(values), dtype)


def convolved(
    b: Builder,
    x: Tensor,
    op: str = "CONV2D",
    *,
    stride: int = 1,
    first: float = 1.0,
    padding: int = 1,
) -> Tensor:
    """A convolution of 6 channels to 6, whose first weight is `first`."""
    weight = RNG.normal(0, 1, (3, 3, 6, 1) if op[0] == "D" else (6, 3, 3, 6))
    weight.flat[0] = first
    zero = number(b, [0.0])
    return b.op(
        op, x, number(b, weight.astype(np.float32)), number(b, RNG.normal(0, 1, 6)), zero, zero,
        pad=(padding,) * 4 if stride == 1 else (1, 0, 1, 0), stride=(stride, stride),
        dilation=(1, 1), acc_type=DType.FP32,
    )  # fmt: skip


def clamped(b: Builder, x: Tensor, nan_mode: NanMode = NanMode.PROPAGATE) -> Tensor:
    return b.op("CLAMP", x, min_val=-0.5, max_val=6.0, nan_mode=nan_mode)


def padded(b: Builder, x: Tensor, less: int, *, value: float = 0.0, axis: int = 7) -> Tensor:
    """The image, with `less` channels made anew."""
    kept = b.op("SLICE", x, b.const_shape([0] * 4), b.const_shape([1, 8, 8, 6 - less]))
    return b.op(
        "PAD", kept, b.const_shape([less * (n == axis) for n in range(8)]), number(b, [value])
    )


def shifted(b: Builder, x: Tensor, by: int) -> Tensor:
    """The image times a number, computed by XLA."""
    return times(b, x, number(b, np.full((1, 1, 1, 1), by / 8)))


def times(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.op("MUL", x, y, number(b, [0], DType.INT8))


def hard_swish(b: Builder, x: Tensor) -> Tensor:
    """x * clamp(x + 3, 0, 6) / 6."""
    three, sixth = (number(b, np.full((1, 1, 1, 1), value)) for value in (3.0, 1 / 6))
    gate = b.op("CLAMP", b.op("ADD", x, three), min_val=0.0, max_val=6.0)
    return times(b, times(b, gate, x), sixth)


def all_operators(b: Builder, y: Tensor, x: Tensor) -> Tensor:
    one, zero = number(b, np.ones((1, 1, 1, 1))), number(b, [0.0])
    z = b.op("MAXIMUM", b.op("SUB", x, b.op("ABS", y)), one)
    z = b.op("SELECT", b.op("GREATER", y, x), b.op("NEGATE", z, zero, zero), z)
    return b.op("MINIMUM", b.op("RECIPROCAL", b.op("ADD", z, y)), one)


def sloped(
    b: Builder, x: Tensor, *, least: float = 0.0, swapped: bool = False, shape: tuple = (1, 1, 1, 6)
) -> Tensor:
    """PReLU, as converters write it."""
    slope, shift = number(b, RNG.normal(0, 1, shape)), number(b, [0], DType.INT8)
    is_kept = b.op("GREATER_EQUAL", x, number(b, np.full((1, 1, 1, 1), least)))
    scaled = b.op("MUL", *((slope, x) if swapped else (x, slope)), shift)
    return b.op("SELECT", is_kept, x, scaled)


def multiplied(b: Builder, x: Tensor, *, count: int = 1, is_left: bool = False) -> Tensor:
    rows = b.op("RESHAPE", x, b.const_shape([count, 64 // count, 6]))
    shape = (count, 7, 64) if is_left else (count, 6, 7)
    matrix, zero = number(b, RNG.normal(0, 1, shape)), number(b, [0.0])
    return b.op("MATMUL", *((matrix, rows) if is_left else (rows, matrix)), zero, zero)


def transposed(
    b: Builder,
    x: Tensor,
    *,
    size: tuple[int, int] = (2, 2),
    out_pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    first: float = 1.0,
) -> Tensor:
    weight = RNG.normal(0, 1, (3, *size, 6))
    weight.flat[0] = first
    zero = number(b, [0.0])
    return b.op(
        "TRANSPOSE_CONV2D", x, number(b, weight), number(b, RNG.normal(0, 1, 3)), zero, zero,
        out_pad=out_pad, stride=(2, 2), acc_type=DType.FP32,
    )  # fmt: skip


def biased(b: Builder, x: Tensor) -> Tensor:
    return b.op("ADD", x, number(b, RNG.normal(0, 1, (1, 1, 7))))


def rows_of(b: Builder, x: Tensor) -> Tensor:
    """Other values of the shape of products."""
    rows = b.op("RESHAPE", x, b.const_shape([1, 64, 6]))
    return b.op("CONCAT", rows, b.op("REDUCE_MAX", rows, axis=2), axis=2)


SLOPE = "GREATER_EQUAL, MUL, SELECT"
TOGETHER: dict[str, tuple[Write, list[str]]] = {
    "sums": (convolved, ["CONV2D"]),
    "clamped": (lambda b, x: clamped(b, convolved(b, x)), ["CONV2D, CLAMP"]),
    "clamped, NaN ignored": (
        lambda b, x: clamped(b, convolved(b, x), NanMode.IGNORE),
        ["CONV2D"],
    ),
    "a slope": (lambda b, x: sloped(b, convolved(b, x)), [f"CONV2D, {SLOPE}"]),
    "a slope on the left": (
        lambda b, x: sloped(b, convolved(b, x), swapped=True),
        [f"CONV2D, {SLOPE}"],
    ),
    "one slope": (
        lambda b, x: sloped(b, convolved(b, x), shape=(1, 1, 1, 1)),
        [f"CONV2D, {SLOPE}"],
    ),
    "a slope for each column": (
        lambda b, x: sloped(b, convolved(b, x), shape=(1, 1, 8, 1)),
        ["CONV2D"],
    ),
    "a slope of larger values": (
        lambda b, x: sloped(b, convolved(b, x), least=0.5),
        [f"CONV2D, {SLOPE}"],
    ),
    "a slope that more reads": (
        lambda b, x: [y := convolved(b, x), sloped(b, y)],
        ["CONV2D"],
    ),
    "depthwise": (
        lambda b, x: clamped(b, convolved(b, x, "DEPTHWISE_CONV2D")),
        ["DEPTHWISE_CONV2D, CLAMP"],
    ),
    "a sum": (
        lambda b, x: clamped(b, b.op("ADD", convolved(b, x), x)),
        ["CONV2D, ADD, CLAMP"],
    ),
    "a sum on the right": (
        lambda b, x: sloped(b, b.op("ADD", x, convolved(b, x, "DEPTHWISE_CONV2D"))),
        [f"DEPTHWISE_CONV2D, ADD, {SLOPE}"],
    ),
    "a sum with itself": (
        lambda b, x: b.op("ADD", y := convolved(b, x), y),
        ["CONV2D, ADD"],
    ),
    "a sum with channels": (
        lambda b, x: b.op("ADD", convolved(b, x), number(b, RNG.normal(0, 1, (1, 1, 1, 6)))),
        ["CONV2D, ADD"],
    ),
    "a sum with a row": (
        lambda b, x: b.op("ADD", convolved(b, x), number(b, RNG.normal(0, 1, (1, 1, 8, 1)))),
        ["CONV2D"],
    ),
    "a sum with rows of another image": (
        lambda b, x: b.op("ADD", convolved(b, x), b.op("REDUCE_MAX", x, axis=1)),
        ["CONV2D"],
    ),
    "a sum with padded channels": (
        lambda b, x: clamped(b, b.op("ADD", padded(b, x, 4), convolved(b, x))),
        ["CONV2D, PAD, ADD, CLAMP"],
    ),
    "a sum with channels padded by another value": (
        lambda b, x: b.op("ADD", convolved(b, x), padded(b, x, 4, value=0.5)),
        ["CONV2D, ADD"],
    ),
    "a sum with channels padded before": (
        lambda b, x: b.op("ADD", convolved(b, x), padded(b, x, 4, axis=6)),
        ["CONV2D, ADD"],
    ),
    "a sum with padded channels that more reads": (
        lambda b, x: [y := padded(b, x, 4), b.op("ADD", convolved(b, x), y)],
        ["CONV2D, ADD"],
    ),
    "depthwise, and padded channels": (
        lambda b, x: b.op("ADD", convolved(b, x, "DEPTHWISE_CONV2D"), padded(b, x, 4)),
        ["DEPTHWISE_CONV2D, ADD"],
    ),
    "a gate of itself, as converters write HARD_SWISH": (
        lambda b, x: hard_swish(b, convolved(b, x)),
        ["CONV2D, ADD, CLAMP, MUL, MUL"],
    ),
    "a gate by SIGMOID": (
        lambda b, x: times(b, y := convolved(b, x), b.op("SIGMOID", y)),
        ["CONV2D, SIGMOID, MUL"],
    ),
    "all operators": (
        lambda b, x: all_operators(b, convolved(b, x), x),
        ["CONV2D, ABS, SUB, MAXIMUM, GREATER, NEGATE, SELECT, ADD, RECIPROCAL, MINIMUM"],
    ),
    "maxima, NaN ignored": (
        lambda b, x: b.op("MAXIMUM", convolved(b, x), x, nan_mode=NanMode.IGNORE),
        ["CONV2D"],
    ),
    "another shape": (
        lambda b, x: b.op("ADD", b.op("REDUCE_MAX", convolved(b, x), axis=1), x),
        ["CONV2D"],
    ),
    "a comparison": (
        lambda b, x: b.op("CAST", b.op("GREATER", convolved(b, x), x), dtype=DType.INT8),
        ["CONV2D"],
    ),
    "more images than a kernel reads": (
        lambda b, x: functools.reduce(
            lambda y, axis: b.op("ADD", y, shifted(b, x, axis)), range(1, 11), convolved(b, x)
        ),
        [f"CONV2D, {', '.join(['ADD'] * 8)}"],
    ),
    "more steps than a kernel has": (
        lambda b, x: functools.reduce(lambda y, _: b.op("ADD", y, x), range(20), convolved(b, x)),
        [f"CONV2D, {', '.join(['ADD'] * 16)}"],
    ),
    "a sum of two convolutions": (
        lambda b, x: b.op("ADD", convolved(b, x), convolved(b, x, "DEPTHWISE_CONV2D")),
        ["CONV2D", "DEPTHWISE_CONV2D, ADD"],
    ),
    "one after the other": (
        lambda b, x: clamped(b, convolved(b, sloped(b, convolved(b, x)), stride=2)),
        [f"CONV2D, {SLOPE}", "CONV2D, CLAMP"],
    ),
    "an infinite weight, which padding must not meet": (
        lambda b, x: convolved(b, x, first=np.inf),
        [],
    ),
    "an infinite weight without padding": (
        lambda b, x: convolved(b, x, first=np.inf, padding=0),
        ["CONV2D"],
    ),
    "products by a constant": (multiplied, ["MATMUL"]),
    "products by a constant, a bias and others": (
        lambda b, x: clamped(b, b.op("ADD", biased(b, multiplied(b, x)), rows_of(b, x))),
        ["MATMUL, ADD, ADD, CLAMP"],
    ),
    "a RESHAPE between products and a sum": (
        lambda b, x: b.op(
            "ADD",
            b.op("RESHAPE", convolved(b, x), b.const_shape([1, 64, 6])),
            b.op("RESHAPE", x, b.const_shape([1, 64, 6])),
        ),
        ["CONV2D, RESHAPE, ADD"],
    ),
    "a RESHAPE of pixels": (
        lambda b, x: clamped(b, b.op("RESHAPE", convolved(b, x), b.const_shape([1, 32, 12]))),
        ["CONV2D"],
    ),
    "a RESHAPE at the end": (
        lambda b, x: b.op("RESHAPE", clamped(b, convolved(b, x)), b.const_shape([1, 64, 6])),
        ["CONV2D, CLAMP"],
    ),
    "rows of products by a constant, as images": (
        lambda b, x: b.op(
            "ADD",
            b.op("RESHAPE", y := multiplied(b, x), b.const_shape([1, 8, 8, 7])),
            b.op("RESHAPE", b.op("REVERSE", y, axis=1), b.const_shape([1, 8, 8, 7])),
        ),
        ["MATMUL"],
    ),
    "transposed": (transposed, ["TRANSPOSE_CONV2D"]),
    "transposed, and cut": (
        lambda b, x: transposed(b, x, size=(4, 2), out_pad=(-3, 2, 1, -1)),
        ["TRANSPOSE_CONV2D"],
    ),
    "transposed, clamped": (
        lambda b, x: clamped(b, transposed(b, x)),
        ["TRANSPOSE_CONV2D"],
    ),
    "a transposed window of no multiple of the stride": (
        lambda b, x: transposed(b, x, size=(3, 2)),
        [],
    ),
    "transposed, an infinite weight": (
        lambda b, x: transposed(b, x, first=np.inf),
        [],
    ),
    "products by constants": (lambda b, x: multiplied(b, x, count=4), []),
    "products of a constant": (lambda b, x: multiplied(b, x, is_left=True), []),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str):
    """Examples of a batch have the bits that they have alone, and are near to XLA's."""
    write, wanted = TOGETHER[name]
    graph = graph_of(write)
    assert whys(graph) == wanted
    alone = tosajax.compile(graph)
    by_xla = tosajax.compile(graph, batch=3, native=False)(IMAGES)
    together = tosajax.compile(graph, batch=3)(IMAGES)
    for number_, image in enumerate(IMAGES):
        for y, of_batch, reference in zip(alone(image[None]), together, by_xla, strict=True):
            own, other = (each.reshape(3, *y.shape)[number_] for each in (of_batch, reference))
            if wanted:
                np.testing.assert_array_equal(y, own)
            np.testing.assert_allclose(y, other, rtol=1e-4, atol=1e-5)


def test_a_chain_is_one_call():
    def write(b: Builder, x: Tensor) -> Tensor:
        y = sloped(b, convolved(b, x, "DEPTHWISE_CONV2D"))
        return clamped(b, b.op("ADD", convolved(b, y), x))

    graph = graph_of(write)
    for batch in (None, 3, 40):
        assert tosajax.compile(graph, batch=batch).hlo().count("custom-call(") == 1


@pytest.mark.parametrize("taps", [128, 129])
def test_a_large_depthwise_window_is_not_for_it(taps: int):
    """Its kernel would take minutes to compile."""
    b = Builder()
    x, zero = b.input("x", DType.FP32, (1, 130, 1, 2)), number(b, [0.0])
    weight = number(b, np.ones((taps, 1, 2, 1)))
    y = b.op("DEPTHWISE_CONV2D", x, weight, zero, zero, zero, acc_type=DType.FP32,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    wanted = "XLA" if taps > 128 else "native"
    assert str(tosajax.plan_kernels(b.graph([y]))).startswith(wanted)


def test_other_types_stay():
    """float16 and bfloat16 add in float32, and round once, by XLA."""
    for dtype in (DType.FP16, DType.BF16):
        b = Builder()
        x, zero = b.input("x", dtype, (1, 4, 4, 3)), number(b, [0.0], dtype)
        weight, bias = number(b, np.ones((5, 1, 1, 3)), dtype), number(b, [0.0], dtype)
        y = b.op("CONV2D", x, weight, bias, zero, zero, acc_type=DType.FP32,
            pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
        assert whys(b.graph([y])) == []


def test_weights_that_are_inputs_stay():
    b = Builder()
    x, weight = b.input("x", DType.FP32, (1, 4, 4, 3)), b.input("w", DType.FP32, (5, 1, 1, 3))
    zero = number(b, [0.0])
    y = b.op("CONV2D", x, weight, zero, zero, zero, acc_type=DType.FP32,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    assert whys(b.graph([y])) == []


def of_type(b: Builder, dtype: DType) -> Graph:
    x, zero = b.input("x", dtype, (1, 4, 4, 3)), number(b, [0.0], dtype)
    weight = number(b, np.ones((5, 1, 1, 3)), dtype)
    y = b.op("CONV2D", x, weight, zero, zero, zero, acc_type=DType.FP32,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))  # fmt: skip
    return b.graph([y])


OBSTACLES = {
    "none": (graph_of(convolved), ""),
    "no product": (graph_of(clamped), ""),
    "another type": (of_type(Builder(), DType.BF16), "none of BF16"),
    "several matrices": (
        graph_of(lambda b, x: multiplied(b, x, count=4)),
        "several right matrices",
    ),
    "a constant on the left": (
        graph_of(lambda b, x: multiplied(b, x, is_left=True)),
        "right matrix not constant",
    ),
    "an infinite weight": (
        graph_of(lambda b, x: convolved(b, x, first=np.inf)),
        "infinite weights beside padding",
    ),
    "a transposed window": (
        graph_of(lambda b, x: transposed(b, x, size=(2, 3))),
        "window no multiple of the stride",
    ),
    "transposed, an infinite weight": (
        graph_of(lambda b, x: transposed(b, x, first=np.inf)),
        "infinite weights beside padding",
    ),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_obstacles_are_named(case: str):
    """By the plan, and by `explain`."""
    graph, wanted = OBSTACLES[case]
    node = graph.nodes[-1]
    assert obstacle(node, graph.tensors) == wanted
    if wanted:
        assert f"XLA     {node.title}: {wanted}" in str(tosajax.plan_kernels(graph))
        assert wanted in str(tosajax.compile(graph).explain())
