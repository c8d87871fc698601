"""Builds int8 graphs that native kernels compute, and compares them with XLA's routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tosajax
from tosajax import Graph, Tensor
from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.spec import RoundingMode

RNG = np.random.default_rng(3)
IMAGE = RNG.integers(-128, 128, (1, 8, 8, 6)).astype(np.int8)


def convolved(
    b: Builder,
    x: Tensor,
    *,
    op: str = "CONV2D",
    size: tuple[int, int] = (3, 3),
    weight_zp: int = 0,
) -> Tensor:
    """A convolution of the image by a window of an odd `size`; the image keeps its size."""
    depthwise = op == "DEPTHWISE_CONV2D"
    shape = (*size, 6, 1) if depthwise else (10, *size, 6)
    channels = 6 if depthwise else 10
    pad = [n // 2 for n in size for _ in range(2)]
    weight = RNG.integers(-100, 100, shape).astype(np.int8)
    bias = RNG.integers(-(2**14), 2**14, channels).astype(np.int32)
    return b.op(
        op, x, b.const(weight, DType.INT8), b.const(bias, DType.INT32), b.const([5], DType.INT8),
        b.const([weight_zp], DType.INT8), pad=pad, stride=(1, 1), dilation=(1, 1),
        acc_type=DType.INT32,
    )  # fmt: skip


def convolved_3d(b: Builder, x: Tensor, weight_zp: int = 0) -> Tensor:
    """A CONV3D of the image, taken as four planes."""
    planes = b.op("RESHAPE", x, b.const_shape([1, 4, 8, 2, 6]))
    weight = RNG.integers(-100, 100, (9, 3, 2, 2, 6)).astype(np.int8)
    bias = RNG.integers(-(2**14), 2**14, 9).astype(np.int32)
    return b.op(
        "CONV3D", planes, b.const(weight, DType.INT8), b.const(bias, DType.INT32),
        b.const([5], DType.INT8), b.const([weight_zp], DType.INT8), pad=(1, 1, 0, 1, 1, 0),
        stride=(1, 2, 1), dilation=(1, 2, 1), acc_type=DType.INT32,
    )  # fmt: skip


def transposed(
    b: Builder,
    x: Tensor,
    *,
    out_pad: tuple[int, ...] = (0, 0, 0, 0),
    stride: tuple[int, int] = (2, 2),
    size: tuple[int, int] = (3, 3),
) -> Tensor:
    weight = RNG.integers(-100, 100, (10, *size, 6)).astype(np.int8)
    bias = RNG.integers(-(2**14), 2**14, 10).astype(np.int32)
    return b.op(
        "TRANSPOSE_CONV2D", x, b.const(weight, DType.INT8), b.const(bias, DType.INT32),
        b.const([5], DType.INT8), b.const([0], DType.INT8), out_pad=out_pad, stride=stride,
        acc_type=DType.INT32,
    )  # fmt: skip


def pointwise(
    b: Builder, x: Tensor, out: int = 6, stride: int = 1, pad: int = 0, op: str = "CONV2D"
) -> Tensor:
    """A 1x1 convolution, rescaled to int8; `pad` rows of padding at the bottom."""
    assert x.shape
    shape = (1, 1, 6, 1) if op == "DEPTHWISE_CONV2D" else (out, 1, 1, x.shape[3])
    sums = b.op(
        op, x, b.const(RNG.integers(-100, 100, shape), DType.INT8), b.const([77], DType.INT32),
        b.const([5], DType.INT8), b.const([0], DType.INT8), pad=(0, pad, 0, 0),
        stride=(stride, stride), dilation=(1, 1), acc_type=DType.INT32,
    )  # fmt: skip
    return rescaled(b, sums)


def joined_sum(b: Builder, left: Tensor, right: Tensor, op: str = "ADD") -> Tensor:
    return ended(b, b.op(op, term(b, left), term(b, right)))


def cut(
    b: Builder,
    x: Tensor,
    size: tuple[int, ...] = (1, 7, 7, 6),
    start: tuple[int, ...] = (0, 0, 0, 0),
) -> Tensor:
    return b.op("SLICE", x, b.const_shape(start), b.const_shape(size))


def multiplied(
    b: Builder, x: Tensor, *, count: int | None = None, zero_point: int = 0, left: bool = False
) -> Tensor:
    """MATMUL of the image's rows by constant matrices, or by their transpose."""
    rows = b.op("RESHAPE", x, b.const_shape([count or 1, 64 // (count or 1), 6]))
    zps = b.const([5], DType.INT8), b.const([zero_point], DType.INT8)
    if left:
        matrix = b.const(RNG.integers(-100, 100, (1, 7, 64)), DType.INT8)
        return b.op("MATMUL", matrix, rows, *zps)
    if count is None:
        return b.op("MATMUL", rows, b.op("TRANSPOSE", rows, perms=(0, 2, 1)), *zps)
    return b.op("MATMUL", rows, b.const(RNG.integers(-100, 100, (count, 6, 9)), DType.INT8), *zps)


def rescaled(
    b: Builder,
    x: Tensor,
    *,
    dtype: DType = DType.INT8,
    double: bool = False,
    scale32: bool = True,
    per_channel: bool = True,
) -> Tensor:
    assert x.shape
    count = x.shape[-1] if per_channel else 1
    high, shifts = (2**31, (38, 44)) if scale32 else (2**15, (22, 28))
    multiplier = RNG.integers(high // 2, high, count)
    mode = RoundingMode.DOUBLE_ROUND if double else RoundingMode.SINGLE_ROUND
    return b.op(
        "RESCALE", x, b.const(multiplier, DType.INT32 if scale32 else DType.INT16),
        b.const(RNG.integers(*shifts, count), DType.INT8), b.const([0], DType.INT32),
        b.const([-7 if dtype is DType.INT8 else 0], dtype), dtype=dtype, scale32=scale32,
        rounding_mode=mode, per_channel=per_channel, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


def term(b: Builder, x: Tensor, *, double: bool = False, per_channel: bool = False) -> Tensor:
    """Rescales an operand of an addition to int32."""
    zero_point = 7 if x.dtype is DType.INT8 else 0
    count = 6 if per_channel else 1
    mode = RoundingMode.DOUBLE_ROUND if double else RoundingMode.SINGLE_ROUND
    return b.op(
        "RESCALE", x, b.const(RNG.integers(2**30, 2**31, count), DType.INT32),
        b.const([12 - double] * count, DType.INT8), b.const([zero_point], x.dtype),
        b.const([0], DType.INT32), dtype=DType.INT32, scale32=True, rounding_mode=mode,
        per_channel=per_channel, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


def term_again(b: Builder, x: Tensor, *, first: int = 10, per_channel: bool = False) -> Tensor:
    """Rescales an operand to more bits, then by its scale, as converters do."""
    zeros, count = b.const([0], DType.INT32), 6 if per_channel else 1
    attributes: dict[str, Any] = {"scale32": True, "rounding_mode": RoundingMode.DOUBLE_ROUND}
    attributes |= {"input_unsigned": False, "output_unsigned": False, "dtype": DType.INT32}
    wide = b.op(
        "RESCALE", x, b.const([2**30], DType.INT32), b.const([first], DType.INT8),
        b.const([7], DType.INT8), zeros, per_channel=False, **attributes,
    )  # fmt: skip
    multipliers = b.const(RNG.integers(2**30, 2**31, count), DType.INT32)
    shifts = b.const(RNG.integers(31, 35, count), DType.INT8)
    return b.op(
        "RESCALE", wide, multipliers, shifts, zeros, zeros, per_channel=per_channel, **attributes
    )


def cast(b: Builder, x: Tensor) -> Tensor:
    return b.op("CAST", x, dtype=DType.INT32)


def mirrored(b: Builder, x: Tensor) -> Tensor:
    return b.op("REVERSE", x, axis=1)


def total(b: Builder, x: Tensor, op: str = "ADD", **left: bool) -> Tensor:
    """Adds the image and its mirror image."""
    pair = term(b, x, **left), term(b, mirrored(b, x), double=True)
    return ended(b, b.op(op, *pair))


def wide_sum(b: Builder, left: Tensor, right: Tensor) -> Tensor:
    """Adds values of about 30 bits, and rescales the sum to int8."""
    zero, out_zp = b.const([0], DType.INT32), b.const([-3], DType.INT8)
    scaled = b.op(
        "RESCALE", b.op("ADD", left, right), b.const([1098017566], DType.INT32),
        b.const([49], DType.INT8), zero, out_zp, dtype=DType.INT8, scale32=True,
        rounding_mode=RoundingMode.DOUBLE_ROUND, per_channel=False, input_unsigned=False,
        output_unsigned=False,
    )  # fmt: skip
    return clamped(b, scaled)


def scaled_sums(b: Builder, x: Tensor) -> Tensor:
    """Rescales int32 values that do not come from a RESCALE."""
    zero = b.const([0], DType.INT32)
    return b.op(
        "RESCALE", cast(b, x), b.const([2**30], DType.INT32), b.const([20], DType.INT8), zero, zero,
        dtype=DType.INT32, scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND,
        per_channel=False, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip


def ended(b: Builder, sums: Tensor) -> Tensor:
    """Rescales sums to int8 by one scale."""
    return rescaled(b, sums, double=True, per_channel=False)


def averaged(b: Builder, x: Tensor, side: int = 2, stride: int = 2) -> Tensor:
    zps = b.const([5], x.dtype), b.const([-9], x.dtype)
    return b.op(
        "AVG_POOL2D", x, *zps, kernel=(side, side), stride=(stride, stride), pad=(0, 0, 0, 0),
        acc_type=DType.INT32,
    )  # fmt: skip


def largest(b: Builder, x: Tensor, side: int = 3, stride: int = 1) -> Tensor:
    return b.op("MAX_POOL2D", x, kernel=(side, side), stride=(stride, stride), pad=(1, 1, 1, 1))


def few(b: Builder) -> list[Tensor]:
    """The start and the size of a small part of the image."""
    return [b.const_shape([0, 0, 0, 0]), b.const_shape([1, 4, 4, 6])]


def clamped(b: Builder, x: Tensor) -> Tensor:
    return b.op("CLAMP", x, min_val=-20, max_val=55)


def graph_of(write: Callable[[Builder, Tensor], Any]) -> Graph:
    b = Builder()
    result = write(b, b.input("x", DType.INT8, IMAGE.shape))
    return b.graph(result if isinstance(result, list) else [result])


def whys(graph: Graph) -> list[str]:
    """The reasons of the native kernels of a graph: operators that each computes."""
    return native_reasons(tosajax.compile(graph))


def native_reasons(run: tosajax.Executable) -> list[str]:
    """The reason of each native kernel of an executable: operators that it computes."""
    return [node.reason for node in run.cost().nodes if node.route.startswith("native")]


def check(graph: Graph, batch: int = 3) -> None:
    """Asserts the bits of XLA's routes, for one image and for a batch."""
    images = np.concatenate([np.roll(IMAGE, i, 1) for i in range(batch)])
    for examples, x in ((None, IMAGE), (batch, images)):
        found = tosajax.compile(graph, batch=examples)(x)
        wanted = tosajax.compile(graph, batch=examples, native=False)(x)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
