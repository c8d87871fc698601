"""Graphs of one operator at the ends of what Ethos-U NPUs run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import small_networks as small

from tosajax import Builder, DType, Graph, Tensor
from tosajax.spec import NanMode, ResizeMode, RoundingMode

I8, I16, I32, I48, I4, BOOL = (
    DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.INT4, DType.BOOL,
)  # fmt: skip

NEAREST, BILINEAR = ResizeMode.NEAREST_NEIGHBOR, ResizeMode.BILINEAR


def _zp(b: Builder, dtype: DType) -> Tensor:
    return b.const([0], dtype)


def _ended(b: Builder, y: Tensor, ends: bool) -> Graph:
    """The graph, whose sums a RESCALE takes to INT8."""
    return b.graph([_rescaled(b, y) if ends else y])


def _rescaled(b: Builder, y: Tensor, dtype: DType = I8, **options: Any) -> Tensor:
    if y.dtype is I48:
        return small.rescale(b, y, (1 << 14,), (30,), dtype, scale32=False, **options)
    return small.rescale(b, y, (1 << 30,), (38,), dtype, **options)


def conv(
    op: str,
    x: Sequence[int],
    weight: Sequence[int],
    stride: Sequence[int],
    *,
    types: tuple[DType, DType] = (I8, I8),
    value: int = 1,
    bias: int = 0,
    rescaled: bool = True,
    dynamic: Sequence[str] = (),
) -> Graph:
    """CONV2D, CONV3D, DEPTHWISE_CONV2D or TRANSPOSE_CONV2D."""
    b = Builder()
    given, kind = types
    acc = I48 if given is I16 else I32
    source = b.input("x", given, x)
    channels = weight[2] * weight[3] if op.startswith("DEPTH") else weight[0]
    if "weight" in dynamic:
        w = b.input("w", kind, weight)
    else:
        w = b.const(np.full(weight, value), kind)
    bias_t = (
        b.input("b", acc, (channels,)) if "bias" in dynamic else b.const([bias] * channels, acc)
    )
    arguments: dict[str, Any] = {"stride": tuple(stride), "acc_type": acc}
    if op == "TRANSPOSE_CONV2D":
        arguments["out_pad"] = (0, 0, 0, 0)
    else:
        arguments |= {"pad": (0,) * 2 * len(stride), "dilation": (1,) * len(stride)}
    y = b.op(op, source, w, bias_t, _zp(b, given), _zp(b, kind), **arguments)
    return _ended(b, y, rescaled)


def pool(op: str, x: Sequence[int], kernel: Sequence[int], stride: Sequence[int], *, pad: int = 0):
    b = Builder()
    source = b.input("x", I8, x)
    arguments: dict[str, Any] = {
        "kernel": tuple(kernel),
        "stride": tuple(stride),
        "pad": (pad,) * 4,
    }
    if op == "AVG_POOL2D":
        zeros = _zp(b, I8), _zp(b, I8)
        return b.graph([b.op(op, source, *zeros, acc_type=I32, **arguments)])
    return b.graph([b.op(op, source, nan_mode=NanMode.PROPAGATE, **arguments)])


def argmax(x: Sequence[int], axis: int) -> Graph:
    b = Builder()
    y = b.op("ARGMAX", b.input("x", I8, x), axis=axis, nan_mode=NanMode.PROPAGATE)
    return b.graph([y])


def unary(op: str, dtype: DType, x: Sequence[int] = (1, 4, 4, 2), **arguments: Any) -> Graph:
    b = Builder()
    return b.graph([b.op(op, b.input("x", dtype, x), **arguments)])


def binary(op: str, dtype: DType, x: Sequence[int] = (1, 4, 4, 2), **arguments: Any) -> Graph:
    b = Builder()
    inputs = [b.input(name, dtype, x) for name in "xy"]
    more = [_zp(b, I8)] if op == "MUL" else []
    return b.graph([b.op(op, *inputs, *more, **arguments)])


def matmul(x: Sequence[int], y: Sequence[int], dtype: DType = I8) -> Graph:
    b = Builder()
    sources = b.input("x", dtype, x), b.input("y", dtype, y)
    return _ended(b, b.op("MATMUL", *sources, _zp(b, dtype), _zp(b, dtype)), True)


def table(dtype: DType) -> Graph:
    b = Builder()
    entries = b.const(np.zeros(256 if dtype is I8 else 513), dtype if dtype is I8 else I16)
    y = b.op("TABLE", b.input("x", dtype, (1, 4, 4, 2)), entries)
    return _ended(b, y, dtype is I16)


def transpose(dtype: DType, x: Sequence[int], perms: Sequence[int]) -> Graph:
    return unary("TRANSPOSE", dtype, x, perms=tuple(perms))


def resize(factor: int, mode: ResizeMode, shift: int | None = None) -> Graph:
    """By a whole number; a RESCALE follows that divides by 2**shift."""
    b = Builder()
    scale, offset, border = (
        b.const(values, DType.SHAPE)
        for values in ([factor, 1, factor, 1], [0, 0], [factor - 1] * 2)
    )
    dtype = I8 if mode is NEAREST else I32
    y = b.op(
        "RESIZE", b.input("x", I8, (1, 4, 4, 2)), scale, offset, border, mode=mode, dtype=dtype
    )
    if shift is not None:
        y = small.rescale(b, y, (1 << 30,), (30 + shift,), I8)
    return b.graph([y])


def int48(first: str, last: DType) -> Graph:
    """A CONV2D of INT16, whose sums pass through an operator."""
    b = Builder()
    x = b.input("x", I16, (1, 4, 4, 2))
    w, bias = b.const(np.ones((2, 1, 1, 2)), I8), b.const([0, 0], I48)
    y = b.op(
        "CONV2D", x, w, bias, _zp(b, I16), _zp(b, I8), pad=(0,) * 4, stride=(1, 1),
        dilation=(1, 1), acc_type=I48,
    )  # fmt: skip
    if first:
        y = b.op(first, y)
    return b.graph([_rescaled(b, y, last)])


def pad(dtype: DType) -> Graph:
    b = Builder()
    sizes = b.const([0, 0, 1, 1, 1, 1, 0, 0], DType.SHAPE)
    values = b.const([0], dtype)
    return b.graph([b.op("PAD", b.input("x", dtype, (1, 4, 4, 2)), sizes, values)])


def cast(before: DType, after: DType) -> Graph:
    b = Builder()
    return b.graph([b.op("CAST", b.input("x", before, (1, 4, 4, 2)), dtype=after)])


def moved(op: str, dtype: DType) -> Graph:
    b = Builder()
    x = b.input("x", dtype, (1, 4, 4, 2))
    match op:
        case "CONCAT":
            y = b.op(op, x, x, axis=3)
        case "RESHAPE":
            y = b.op(op, x, b.const([1, 4, 8], DType.SHAPE))
        case "SLICE":
            y = b.op(op, x, b.const([0, 1, 0, 0], DType.SHAPE), b.const([1, 2, 4, 2], DType.SHAPE))
        case _:
            y = b.op(op, x, b.const([1, 2, 1, 1], DType.SHAPE))
    return b.graph([y])


def rescale(before: DType, after: DType, rounding: RoundingMode = RoundingMode.SINGLE_ROUND):
    b = Builder()
    return b.graph([_rescaled(b, b.input("x", before, (1, 4, 4, 2)), after, rounding=rounding)])


W = 65536
# By name, graphs that are legal TOSA.
CASES: dict[str, Callable[[], Graph]] = {
    "conv2d": lambda: conv("CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1)),
    "conv2d-i4": lambda: conv("CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), types=(I8, I4)),
    "conv2d-i16": lambda: conv("CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), types=(I16, I8)),
    "conv2d-i16-alone": lambda: conv(
        "CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), types=(I16, I8), rescaled=False
    ),
    "conv2d-stride3": lambda: conv("CONV2D", (1, 7, 7, 2), (3, 1, 1, 2), (3, 3)),
    "conv2d-stride4": lambda: conv("CONV2D", (1, 9, 9, 2), (3, 1, 1, 2), (4, 4)),
    "conv2d-kernel64": lambda: conv("CONV2D", (1, 64, 64, 1), (1, 64, 64, 1), (1, 1)),
    "conv2d-kernel65": lambda: conv("CONV2D", (1, 65, 8, 1), (1, 65, 1, 1), (1, 1)),
    "conv2d-kernel-wide": lambda: conv("CONV2D", (1, 1, 4096, 1), (1, 1, 4096, 1), (1, 1)),
    "conv2d-kernel-4160": lambda: conv("CONV2D", (1, 64, 65, 1), (1, 64, 65, 1), (1, 1)),
    "conv2d-channels": lambda: conv("CONV2D", (1, 1, 1, W), (1, 1, 1, W), (1, 1)),
    "conv2d-channels+1": lambda: conv("CONV2D", (1, 1, 1, W + 1), (1, 1, 1, W + 1), (1, 1)),
    "conv2d-sum": lambda: conv("CONV2D", (1, 1, 1, W), (1, 1, 1, W), (1, 1), value=127),
    "conv2d-sum+": lambda: conv("CONV2D", (1, 2, 1, W), (1, 2, 1, W), (1, 1), value=127),
    "conv2d-bias40": lambda: conv(
        "CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), types=(I16, I8), bias=2**39 - 1
    ),
    "conv2d-bias41": lambda: conv(
        "CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), types=(I16, I8), bias=2**39
    ),
    "conv2d-dynamic-weight": lambda: conv(
        "CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), dynamic=["weight"]
    ),
    "conv2d-dynamic-bias": lambda: conv(
        "CONV2D", (1, 8, 8, 2), (3, 3, 3, 2), (1, 1), dynamic=["bias"]
    ),
    "depthwise": lambda: conv("DEPTHWISE_CONV2D", (1, 8, 8, 2), (3, 3, 2, 1), (1, 1)),
    "depthwise-stride4": lambda: conv("DEPTHWISE_CONV2D", (1, 9, 9, 2), (1, 1, 2, 1), (4, 4)),
    "depthwise-kernel65": lambda: conv("DEPTHWISE_CONV2D", (1, 65, 8, 1), (65, 1, 1, 1), (1, 1)),
    "conv3d": lambda: conv("CONV3D", (1, 2, 8, 8, 2), (3, 1, 3, 3, 2), (1, 1, 1)),
    "conv3d-z2": lambda: conv("CONV3D", (1, 2, 8, 8, 2), (3, 2, 3, 3, 2), (1, 1, 1)),
    "conv3d-dynamic-weight": lambda: conv(
        "CONV3D", (1, 2, 8, 8, 2), (3, 1, 3, 3, 2), (1, 1, 1), dynamic=["weight"]
    ),
    "tconv-11": lambda: conv("TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (1, 1)),
    "tconv-22": lambda: conv("TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (2, 2)),
    "tconv-12": lambda: conv("TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (1, 2)),
    "tconv-12-flat": lambda: conv("TRANSPOSE_CONV2D", (1, 1, 4, 2), (3, 1, 3, 2), (1, 2)),
    "tconv-21-flat": lambda: conv("TRANSPOSE_CONV2D", (1, 4, 1, 2), (3, 3, 1, 2), (2, 1)),
    "tconv-33": lambda: conv("TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (3, 3)),
    "tconv-dynamic-weight": lambda: conv(
        "TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (2, 2), dynamic=["weight"]
    ),
    "tconv-dynamic-bias": lambda: conv(
        "TRANSPOSE_CONV2D", (1, 4, 4, 2), (3, 3, 3, 2), (2, 2), dynamic=["bias"]
    ),
    "avg": lambda: pool("AVG_POOL2D", (1, 8, 8, 2), (2, 2), (2, 2)),
    "avg-batch": lambda: pool("AVG_POOL2D", (2, 8, 8, 2), (2, 2), (2, 2)),
    "avg-pad-8": lambda: pool("AVG_POOL2D", (1, 8, 8, 2), (8, 8), (1, 1), pad=1),
    "avg-pad-9": lambda: pool("AVG_POOL2D", (1, 9, 9, 2), (9, 9), (1, 1), pad=1),
    "avg-256": lambda: pool("AVG_POOL2D", (1, 256, 256, 1), (256, 256), (1, 1)),
    "avg-257": lambda: pool("AVG_POOL2D", (1, 257, 1, 1), (257, 1), (1, 1)),
    "avg-stride4": lambda: pool("AVG_POOL2D", (1, 6, 6, 2), (2, 2), (4, 4)),
    "max": lambda: pool("MAX_POOL2D", (3, 8, 8, 2), (2, 2), (2, 2)),
    "max-stride4": lambda: pool("MAX_POOL2D", (1, 6, 6, 2), (2, 2), (4, 4)),
    "max-257": lambda: pool("MAX_POOL2D", (1, 257, 1, 1), (257, 1), (1, 1)),
    "argmax": lambda: argmax((1, 4, 4, 127), 3),
    "argmax-128": lambda: argmax((1, 4, 4, 128), 3),
    "argmax-axis": lambda: argmax((1, 4, 4, 8), 1),
    "argmax-batch": lambda: argmax((2, 4, 4, 8), 3),
    "matmul": lambda: matmul((2, 4, 8), (2, 8, 3)),
    "matmul-i16": lambda: matmul((2, 4, 8), (2, 8, 3), I16),
    "matmul-wide": lambda: matmul((1, 1, W), (1, W, 1)),
    "matmul-wide+1": lambda: matmul((1, 1, W + 1), (1, W + 1, 1)),
    "table": lambda: table(I8),
    "table-i16": lambda: table(I16),
    "shift-round": lambda: binary("ARITHMETIC_RIGHT_SHIFT", I32, round=True),
    "shift-plain": lambda: binary("ARITHMETIC_RIGHT_SHIFT", I32, round=False),
    "shift-i16": lambda: binary("ARITHMETIC_RIGHT_SHIFT", I16, round=True),
    "left-i32": lambda: binary("LOGICAL_LEFT_SHIFT", I32),
    "left-i16": lambda: binary("LOGICAL_LEFT_SHIFT", I16),
    "transpose-nwhc": lambda: transpose(I8, (1, 4, 5, 6), (0, 2, 1, 3)),
    "transpose-i32-nwhc": lambda: transpose(I32, (1, 4, 5, 6), (0, 2, 1, 3)),
    "transpose-i32-batch": lambda: transpose(I32, (2, 4, 5, 6), (0, 2, 1, 3)),
    "transpose-i32-nchw": lambda: transpose(I32, (1, 4, 5, 6), (0, 3, 1, 2)),
    "transpose-i32-rank5": lambda: transpose(I32, (1, 2, 4, 5, 6), (0, 1, 3, 2, 4)),
    "transpose-bool": lambda: transpose(BOOL, (1, 4, 5, 6), (0, 2, 1, 3)),
    "resize-nearest-2": lambda: resize(2, NEAREST),
    "resize-nearest-3": lambda: resize(3, NEAREST),
    "resize-nearest-16": lambda: resize(16, NEAREST),
    "resize-nearest-8": lambda: resize(8, NEAREST),
    "resize-bilinear-2": lambda: resize(2, BILINEAR, 2),
    "resize-bilinear-8": lambda: resize(8, BILINEAR, 6),
    "resize-bilinear-shift": lambda: resize(2, BILINEAR, 3),
    "resize-bilinear-alone": lambda: resize(2, BILINEAR),
    "sum-depth": lambda: unary("REDUCE_SUM", I32, (2, 4, 4, 8), axis=3),
    "sum-height": lambda: unary("REDUCE_SUM", I32, (1, 4, 4, 8), axis=1),
    "reduce-max-i32": lambda: unary("REDUCE_MAX", I32, axis=1, nan_mode=NanMode.PROPAGATE),
    "reduce-max-i8": lambda: unary("REDUCE_MAX", I8, axis=1, nan_mode=NanMode.PROPAGATE),
    "concat-i8": lambda: moved("CONCAT", I8),
    "concat-bool": lambda: moved("CONCAT", BOOL),
    "reshape-i32": lambda: moved("RESHAPE", I32),
    "slice-bool": lambda: moved("SLICE", BOOL),
    "tile-i8": lambda: moved("TILE", I8),
    "tile-bool": lambda: moved("TILE", BOOL),
    "cast-up": lambda: cast(I8, I32),
    "cast-down": lambda: cast(I32, I8),
    "cast-i16-i8": lambda: cast(I16, I8),
    "cast-bool": lambda: cast(BOOL, I8),
    "identity-i32": lambda: unary("IDENTITY", I32),
    "identity-bool": lambda: unary("IDENTITY", BOOL),
    "pad-i8": lambda: pad(I8),
    "pad-i32": lambda: pad(I32),
    "pad-bool": lambda: pad(BOOL),
    "reverse-h": lambda: unary("REVERSE", I8, axis=1),
    "reverse-c": lambda: unary("REVERSE", I8, axis=3),
    "reverse-n": lambda: unary("REVERSE", I8, axis=0),
    "reverse-i32": lambda: unary("REVERSE", I32, axis=1),
    "rescale-i48": lambda: int48("", I8),
    "rescale-i48-i32": lambda: int48("", I32),
    "rescale-i48-through": lambda: int48("IDENTITY", I8),
    "rescale-double": lambda: rescale(I32, I8, RoundingMode.DOUBLE_ROUND),
    "add": lambda: binary("ADD", I32),
    "mul-i8": lambda: binary("MUL", I8),
    "maximum": lambda: binary("MAXIMUM", I32, nan_mode=NanMode.PROPAGATE),
    "intdiv": lambda: binary("INTDIV", I32),
    "bitwise-and": lambda: binary("BITWISE_AND", I8),
    "logical-and": lambda: binary("LOGICAL_AND", BOOL),
    "equal": lambda: binary("EQUAL", I32),
    "abs": lambda: unary("ABS", I32),
    "clz": lambda: unary("CLZ", I32),
    "bitwise-not": lambda: unary("BITWISE_NOT", I8),
    "reduce-any": lambda: unary("REDUCE_ANY", BOOL, axis=1),
}
