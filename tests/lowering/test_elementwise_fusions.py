"""Which elementwise operators and reductions one native kernel computes, and what stays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_graphs import pointwise, rescaled, whys

import tosajax
from tosajax import Graph, Tensor
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.spec import NanMode, ResizeMode, RoundingMode

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("quick", "native_kernels")
RNG = np.random.default_rng(11)
SHAPE = 1, 8, 8, 64
IMAGES = RNG.integers(-128, 128, (3, *SHAPE[1:])).astype(np.int8)
Write = Callable[[Builder, Tensor], Any]


def graph_of(write: Write) -> Graph:
    b = Builder()
    results = write(b, b.input("x", DType.INT8, SHAPE))
    return b.graph(results if isinstance(results, list) else [results])


def number(b: Builder, value: Any, dtype: DType = DType.INT32) -> Tensor:
    return b.const(np.full((1, 1, 1, 1), value), dtype)


def scaled(b: Builder, x: Tensor, dtype: DType, scale: tuple[int, int] = (2**30, 30)) -> Tensor:
    zero_in, zero_out = b.const([0], x.dtype), b.const([0], dtype)
    return b.op(
        "RESCALE", x, b.const([scale[0]], DType.INT32), b.const([scale[1]], DType.INT8), zero_in,
        zero_out, dtype=dtype, scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND,
        per_channel=False, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


def softmax(b: Builder, x: Tensor) -> Tensor:
    """As converters write it, but for the reciprocal of the sum."""
    wide = scaled(b, x, DType.INT32)
    below = b.op("SUB", wide, b.op("REDUCE_MAX", wide, axis=3))
    entries = np.linspace(0, 2**14, 513).astype(np.int16)
    parts = b.op("TABLE", scaled(b, below, DType.INT16, (2**30, 23)), b.const(entries, DType.INT16))
    total = b.op("REDUCE_SUM", b.op("ARITHMETIC_RIGHT_SHIFT", parts, number(b, 4), round=True),
        axis=3)  # fmt: skip
    zeros = b.op("CLZ", total)
    shares = b.op("MUL", parts, b.op("SUB", number(b, 2**20), total), b.const([14], DType.INT8))
    return scaled(b, b.op("ARITHMETIC_RIGHT_SHIFT", shares, zeros, round=True), DType.INT8)


def squared(b: Builder, x: Tensor) -> Tensor:
    return b.op("MUL", x, x, b.const([0], DType.INT8))


def mirrored(b: Builder, x: Tensor) -> Tensor:
    return b.op("REVERSE", x, axis=1)


def read_in_between(b: Builder, x: Tensor) -> Tensor:
    """XLA reverses what the last sum reads as well: it must come before the kernel."""
    y = squared(b, x)
    return b.op("ADD", b.op("SUB", y, number(b, 5)), mirrored(b, y))


def around_another(b: Builder, x: Tensor) -> Tensor:
    """What leads to REVERSE is not computed with what follows it."""
    y = squared(b, x)
    return b.op("SUB", b.op("ABS", mirrored(b, b.op("CLZ", y))), b.op("BITWISE_NOT", y))


def of_channels(b: Builder, x: Tensor) -> Tensor:
    added = b.const(RNG.integers(-9, 9, (1, 1, 1, 64)), DType.INT32)
    return rescaled(b, b.op("ADD", squared(b, x), added))


def of_other_axis(b: Builder, x: Tensor) -> Tensor:
    wide = b.op("CAST", x, dtype=DType.INT32)
    return b.op("ADD", wide, b.op("REDUCE_SUM", wide, axis=2))


def many_images(b: Builder, x: Tensor) -> Tensor:
    others = [mirrored(b, scaled(b, x, DType.INT32, (2**30, 30 - n))) for n in range(10)]
    return functools.reduce(lambda y, other: b.op("SUB", y, other), others)


def compared(b: Builder, x: Tensor) -> list[Tensor]:
    y = b.op("GREATER", squared(b, x), number(b, 77))
    return [y, b.op("SELECT", b.op("LOGICAL_NOT", y), x, b.op("BITWISE_NOT", x))]


def floats(b: Builder, x: Tensor) -> Tensor:
    y = b.op("CAST", x, dtype=DType.FP32)
    half = number(b, 0.5, DType.FP32)
    times = b.op("MUL", y, half, b.const([0], DType.INT8))
    less = b.op("SUB", times, b.op("REDUCE_MAX", times, axis=3))
    return b.op("CAST", b.op("CLAMP", less, min_val=-6.0, max_val=-0.25), dtype=DType.INT8)


def normalized(b: Builder, x: Tensor) -> Tensor:
    """Reads differences twice, once by a node that multiplies them by themselves."""
    wide = b.op("CAST", x, dtype=DType.INT32)
    less = b.op("SUB", wide, b.op("REDUCE_MAX", wide, axis=3))
    squares = b.op("MUL", less, less, b.const([0], DType.INT8))
    return b.op("SUB", less, b.op("REDUCE_SUM", squares, axis=3))


def moved(b: Builder, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A RESHAPE between two operators; the last reads an image of the new shape as well."""
    y = b.op("RESHAPE", squared(b, x), b.const_shape(shape))
    other = b.op("RESHAPE", mirrored(b, b.op("CAST", x, dtype=DType.INT32)), b.const_shape(shape))
    return b.op("SUB", b.op("SUB", other, y), b.op("REDUCE_MAX", y, axis=len(shape) - 1))


def narrow(b: Builder, x: Tensor, length: int) -> Tensor:
    rows = b.op("RESHAPE", x, b.const_shape([1, 4096 // length, length]))
    wide = b.op("CAST", rows, dtype=DType.INT32)
    return b.op("SUB", wide, b.op("REDUCE_MAX", wide, axis=2))


def long(b: Builder, x: Tensor) -> Tensor:
    return functools.reduce(
        lambda y, n: b.op("BITWISE_XOR", y, number(b, n)), range(70), squared(b, x)
    )


def resized(b: Builder, x: Tensor, mode: ResizeMode = ResizeMode.BILINEAR) -> Tensor:
    """Twice as high and wide."""
    dtype = x.dtype if mode == ResizeMode.NEAREST_NEIGHBOR or x.dtype.is_float else DType.INT32
    numbers = map(b.const_shape, ([4, 2, 4, 2], [-1, -1], [1, 1]))
    return b.op("RESIZE", x, *numbers, mode=mode, dtype=dtype)


def resized_in_place(b: Builder, x: Tensor) -> Tensor:
    """Moved by half a pixel."""
    y = b.op("CAST", x, dtype=DType.FP32)
    numbers = map(b.const_shape, ([2, 2, 2, 2], [1, 1], [1, 1]))
    return b.op("SUB", b.op("RESIZE", y, *numbers, mode=ResizeMode.BILINEAR, dtype=DType.FP32), y)


def resized_sum(b: Builder, x: Tensor) -> Tensor:
    """Only one RESIZE is in a kernel."""
    nearest = resized(b, x, ResizeMode.NEAREST_NEIGHBOR)
    return b.op("ADD", resized(b, x), b.op("CAST", nearest, dtype=DType.INT32))


def gated(b: Builder, x: Tensor) -> Tensor:
    """Each channel of an image times a number, as squeeze-and-excitation has it."""
    most = b.op("REDUCE_MAX", b.op("REDUCE_MAX", x, axis=1), axis=2)
    return squared_with(b, x, most)


def squared_with(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.op("MUL", x, y, b.const([0], DType.INT8))


SOFTMAX = (
    "RESCALE, REDUCE_MAX, SUB, RESCALE, TABLE, ARITHMETIC_RIGHT_SHIFT, REDUCE_SUM, CLZ, SUB, MUL, "
    "ARITHMETIC_RIGHT_SHIFT, RESCALE"
)
TOGETHER: dict[str, tuple[Write, list[str]]] = {
    "softmax": (softmax, [SOFTMAX]),
    "read in between": (read_in_between, ["MUL", "SUB, ADD"]),
    "around another": (around_another, ["MUL", "CLZ", "ABS, BITWISE_NOT, SUB"]),
    "an output of the graph": (
        lambda b, x: [y := squared(b, x), b.op("ABS", b.op("CLZ", y))],
        ["MUL", "CLZ, ABS"],
    ),
    "of channels": (of_channels, ["MUL, ADD, RESCALE"]),
    "a reduction of another axis": (of_other_axis, ["CAST"]),
    "more images than a kernel reads": (
        many_images,
        [*["RESCALE"] * 10, "SUB, SUB", ", ".join(["SUB"] * 7)],
    ),
    "comparisons": (compared, ["MUL, GREATER", "LOGICAL_NOT, BITWISE_NOT, SELECT"]),
    "floats": (floats, ["CAST, MUL, REDUCE_MAX, SUB, CLAMP, CAST"]),
    "RESIZE": (lambda b, x: rescaled(b, resized(b, x)), ["RESIZE, RESCALE"]),
    "RESIZE of floats": (
        lambda b, x: resized(b, b.op("CAST", x, dtype=DType.FP32)),
        ["CAST", "RESIZE"],
    ),
    "RESIZE to the same size, and its input": (resized_in_place, ["CAST", "RESIZE, SUB"]),
    "two RESIZEs": (resized_sum, ["RESIZE", "RESIZE, CAST, ADD"]),
    "a gate": (gated, ["MUL"]),
    "what one reads twice": (
        normalized,
        ["CAST, REDUCE_MAX, SUB, MUL, REDUCE_SUM, SUB"],
    ),
    "a RESHAPE that keeps rows": (
        lambda b, x: moved(b, x, (1, 64, 64)),
        ["CAST", "MUL, RESHAPE, RESHAPE, SUB, REDUCE_MAX, SUB"],
    ),
    "a RESHAPE that keeps rows, to a dimension more": (
        lambda b, x: moved(b, x, (1, 2, 4, 8, 64)),
        ["CAST", "MUL, RESHAPE, RESHAPE, SUB, REDUCE_MAX, SUB"],
    ),
    "a RESHAPE of rows": (
        lambda b, x: moved(b, x, (1, 32, 128)),
        ["MUL", "CAST", "SUB, REDUCE_MAX, SUB"],
    ),
    "a RESHAPE of images": (
        lambda b, x: moved(b, x, (8, 8, 64)),
        ["MUL", "CAST", "SUB, REDUCE_MAX, SUB"],
    ),
    "a reduction at the end": (
        lambda b, x: b.op("REDUCE_MIN", squared(b, x), axis=3),
        ["MUL, REDUCE_MIN"],
    ),
    "rows of 16": (lambda b, x: narrow(b, x, 16), ["CAST, REDUCE_MAX, SUB"]),
    "short rows": (lambda b, x: narrow(b, x, 8), ["CAST"]),
    "more steps than a kernel has": (
        long,
        [", ".join(["MUL", *["BITWISE_XOR"] * 6]), ", ".join(["BITWISE_XOR"] * 64)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str):
    """One example, and a batch, equal XLA's routes."""
    write, wanted = TOGETHER[name]
    graph = graph_of(write)
    assert whys(graph) == wanted
    for batch, x in ((None, IMAGES[:1]), (3, IMAGES)):
        found = tosajax.compile(graph, batch=batch)(x)
        for one, other in zip(
            found, tosajax.compile(graph, batch=batch, native=False)(x), strict=True
        ):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def float_graph(op: str, dtype: DType = DType.FP32, **attributes: Any) -> Graph:
    b = Builder()
    x = b.input("x", dtype, (1, 64, 64))
    inputs = [x, x] if op == "MAXIMUM" else [x]
    return b.graph([b.op(op, *inputs, **attributes)])


@pytest.mark.parametrize(
    "graph",
    [
        float_graph("MAXIMUM", nan_mode=NanMode.IGNORE),
        float_graph("REDUCE_MAX", axis=2, nan_mode=NanMode.IGNORE),
        float_graph("REDUCE_MAX", axis=1),
        float_graph("ABS", DType.BF16),
        float_graph("ABS", DType.FP16),
        float_graph("LOG"),
    ],
    ids=lambda graph: graph.nodes[-1].title,
)
def test_what_stays(graph: Graph):
    assert whys(graph) == []


@pytest.mark.parametrize(("count", "wanted"), [(4095, []), (4096, ["ABS"])])
def test_little_work_stays(count: int, wanted: list[str]):
    b = Builder()
    assert whys(b.graph([b.op("ABS", b.input("x", DType.INT32, (1, count)))])) == wanted


def test_constants_of_the_whole_shape_stay_operands_of_xla():
    b = Builder()
    x = b.input("x", DType.INT32, (2, 64, 64))
    whole = b.const(RNG.integers(-9, 9, (2, 64, 64)), DType.INT32)
    graph = b.graph([b.op("ABS", b.op("ADD", x, whole))])
    assert whys(graph) == ["ABS"]


def test_tensors_of_rank_1_stay():
    """Their first dimension is not one of examples."""
    b = Builder()
    x = b.input("x", DType.INT32, (8192,))
    assert whys(b.graph([b.op("REDUCE_MAX", b.op("ABS", x), axis=0)])) == []


def test_a_chain_is_one_call():
    """Between convolutions, images do not leave the call."""
    b = Builder()
    x = b.input("x", DType.INT8, (1, 16, 16, 6))
    y = pointwise(b, x, 16)
    table = b.const(RNG.integers(-128, 128, 256), DType.INT8)
    z = pointwise(b, b.op("TABLE", y, table), 6)
    graph = b.graph([z])
    assert len(whys(graph)) == 3
    for batch in (None, 3, 40):
        assert tosajax.compile(graph, batch=batch).hlo().count("custom-call(") == 1
