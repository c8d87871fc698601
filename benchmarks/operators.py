"""Graphs of one operator, with constant weights; inputs use the whole range of their type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tosajax
from benchmarks.work import Work
from tosajax import Builder, DType, Tensor
from tosajax.spec import NanMode, ResizeMode, RoundingMode

_ACCUMULATORS = {DType.INT8: DType.INT32, DType.INT16: DType.INT48, DType.FP32: DType.FP32}
_WEIGHTS = {DType.INT8: DType.INT8, DType.INT16: DType.INT8, DType.FP32: DType.FP32}


def matmul(name: str, rows: int, depth: int, columns: int, dtype: DType = DType.INT8) -> Work:
    """a [1, rows, depth] times a constant b, with zero points if the type has them."""

    def build(maker: _Maker, a: Tensor) -> Tensor:
        b = maker.const((1, depth, columns), dtype)
        zeros = (3, -5) if dtype is DType.INT8 else (0, 0)
        return maker.op("MATMUL", a, b, *(maker.builder.const([z], dtype) for z in zeros))

    return _work(name, (1, rows, depth), dtype, build)


def conv(
    name: str,
    shape: Sequence[int],
    channels: int,
    kernel: Sequence[int],
    *,
    stride: int = 1,
    dtype: DType = DType.INT8,
) -> Work:
    """CONV2D or CONV3D of [N, ..., IC], padded so that a stride of 1 keeps the size."""
    rank, depth = len(kernel), shape[-1]

    def build(maker: _Maker, x: Tensor) -> Tensor:
        pads = [((k - 1) // 2, (k - 1) // 2 - (stride - 1) * (k > 1)) for k in kernel]
        return maker.op(
            f"CONV{rank}D",
            x,
            maker.const((channels, *kernel, depth), _WEIGHTS[dtype]),
            maker.const((channels,), _ACCUMULATORS[dtype]),
            *maker.zero_points(dtype),
            pad=tuple(p for pair in pads for p in pair),
            stride=(stride,) * rank,
            dilation=(1,) * rank,
            acc_type=_ACCUMULATORS[dtype],
        )

    return _work(name, shape, dtype, build)


def depthwise(
    name: str, shape: Sequence[int], kernel: int, *, stride: int = 1, dtype: DType = DType.INT8
) -> Work:
    """DEPTHWISE_CONV2D with one output for each channel."""

    def build(maker: _Maker, x: Tensor) -> Tensor:
        side = (kernel - 1) // 2
        return maker.op(
            "DEPTHWISE_CONV2D",
            x,
            maker.const((kernel, kernel, shape[-1], 1), _WEIGHTS[dtype]),
            maker.const((shape[-1],), _ACCUMULATORS[dtype]),
            *maker.zero_points(dtype),
            pad=(side, side - (stride - 1)) * 2,
            stride=(stride,) * 2,
            dilation=(1, 1),
            acc_type=_ACCUMULATORS[dtype],
        )

    return _work(name, shape, dtype, build)


def transpose_conv(
    name: str, shape: Sequence[int], channels: int, kernel: int, stride: int
) -> Work:
    """TRANSPOSE_CONV2D of int8."""

    def build(maker: _Maker, x: Tensor) -> Tensor:
        return maker.op(
            "TRANSPOSE_CONV2D",
            x,
            maker.const((channels, kernel, kernel, shape[-1]), DType.INT8),
            maker.const((channels,), DType.INT32),
            *maker.zero_points(DType.INT8),
            out_pad=(0,) * 4,
            stride=(stride,) * 2,
            acc_type=DType.INT32,
        )

    return _work(name, shape, DType.INT8, build)


def pool(name: str, op: str, shape: Sequence[int], kernel: int, stride: int) -> Work:
    """MAX_POOL2D or AVG_POOL2D of int8, padded by half the kernel where the stride is 1."""
    side = (kernel - 1) // 2 if stride == 1 else 0
    window: dict[str, Any] = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (side,) * 4}

    def build(maker: _Maker, x: Tensor) -> Tensor:
        if op == "MAX_POOL2D":
            return maker.op(op, x, nan_mode=NanMode.PROPAGATE, **window)
        zeros = [maker.builder.const([z], DType.INT8) for z in (3, -7)]
        return maker.op(op, x, *zeros, acc_type=DType.INT32, **window)

    return _work(name, shape, DType.INT8, build)


def rescale(name: str, shape: Sequence[int], *, per_channel: bool) -> Work:
    """RESCALE of int32 accumulators to int8."""
    count = shape[-1] if per_channel else 1

    def build(maker: _Maker, x: Tensor) -> Tensor:
        multipliers = maker.random.integers(1 << 30, (1 << 31) - 1, count)
        return maker.op(
            "RESCALE",
            x,
            maker.builder.const(multipliers, DType.INT32),
            maker.builder.const([40] * count, DType.INT8),
            maker.builder.const([0], DType.INT32),
            maker.builder.const([-4], DType.INT8),
            dtype=DType.INT8,
            scale32=True,
            rounding_mode=RoundingMode.SINGLE_ROUND,
            per_channel=per_channel,
            input_unsigned=False,
            output_unsigned=False,
        )

    return _work(name, shape, DType.INT32, build, limit=1 << 17)


def table(name: str, shape: Sequence[int], dtype: DType) -> Work:
    """TABLE of int8 or int16."""
    size = 256 if dtype is DType.INT8 else 513

    def build(maker: _Maker, x: Tensor) -> Tensor:
        # In the specification the difference of neighbouring int16 entries fits int16.
        entries = values(maker.random, (size,), dtype, 1 << 14)
        return maker.op("TABLE", x, maker.builder.const(entries, dtype))

    return _work(name, shape, dtype, build)


def resize(name: str, shape: Sequence[int], factor: int, mode: ResizeMode) -> Work:
    """RESIZE of int8 to `factor` times the size, corners on corners."""

    def build(maker: _Maker, x: Tensor) -> Tensor:
        const_shape = maker.builder.const_shape
        inputs = [(factor, 1, factor, 1), (0, 0), (factor - 1, factor - 1)]
        is_bilinear = mode == ResizeMode.BILINEAR
        dtype = DType.INT32 if is_bilinear else DType.INT8
        return maker.op("RESIZE", x, *map(const_shape, inputs), mode=mode, dtype=dtype)

    return _work(name, shape, DType.INT8, build)


def reduction(name: str, op: str, shape: Sequence[int], dtype: DType) -> Work:
    """ARGMAX or REDUCE_SUM over the last axis."""
    options: dict[str, Any] = {"nan_mode": NanMode.PROPAGATE} if op == "ARGMAX" else {}

    def build(maker: _Maker, x: Tensor) -> Tensor:
        return maker.op(op, x, axis=len(shape) - 1, **options)

    return _work(name, shape, dtype, build, limit=1 << 20)


class _Maker:
    """A builder with random constants."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.random = np.random.default_rng(0)
        self.op = self.builder.op

    def const(self, shape: Sequence[int], dtype: DType) -> Tensor:
        return self.builder.const(values(self.random, shape, dtype, 1 << 20), dtype)

    def zero_points(self, dtype: DType) -> list[Tensor]:
        """Zero points of input and weight; that of int8 inputs is not 0."""
        input_zp = 3 if dtype is DType.INT8 else 0
        return [self.builder.const([input_zp], dtype), self.builder.const([0], _WEIGHTS[dtype])]


def values(
    random: np.random.Generator, shape: Sequence[int], dtype: DType, limit: int
) -> np.ndarray:
    """Random values of a type; integers in [-limit, limit) and the range of the type."""
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.storage)
    low, high = max(dtype.minimum, -limit), min(dtype.maximum + 1, limit)
    return random.integers(low, high, shape).astype(dtype.storage)


def _work(
    name: str,
    shape: Sequence[int],
    dtype: DType,
    build: Callable[[_Maker, Tensor], Tensor],
    *,
    limit: int = 1 << 20,
) -> Work:
    maker = _Maker()
    output = build(maker, maker.builder.input("input", dtype, tuple(shape)))
    inputs = (values(maker.random, shape, dtype, limit),)
    graph = maker.builder.graph([output])
    tosajax.validate(graph).raise_errors()
    return Work(name, "operators", graph, inputs)


def everything() -> dict[str, Callable[[], Work]]:
    """Functions that make the works, by name."""
    int8, int16, int32, fp32 = DType.INT8, DType.INT16, DType.INT32, DType.FP32
    nearest, bilinear = ResizeMode.NEAREST_NEIGHBOR, ResizeMode.BILINEAR
    images = (8, 32, 32, 64)
    return _by_name(
        _case(matmul, "matmul-1024", 1024, 1024, 1024),
        _case(matmul, "matmul-256", 256, 256, 256),
        _case(matmul, "matmul-m1", 1, 1024, 1000),
        _case(matmul, "matmul-int16", 256, 256, 256, int16),
        _case(conv, "conv-1x1-c128", (8, 12, 12, 128), 128, (1, 1)),
        _case(conv, "conv-3x3-c3-16", (8, 32, 32, 3), 16, (3, 3)),
        _case(conv, "conv-3x3-c16", (8, 32, 32, 16), 16, (3, 3)),
        _case(conv, "conv-3x3-c64", images, 64, (3, 3)),
        _case(conv, "conv-3x3-c256", (1, 14, 14, 256), 256, (3, 3)),
        _case(conv, "conv-3x3-stride2", (8, 32, 32, 32), 64, (3, 3), stride=2),
        _case(conv, "conv-3x3-int16", (1, 32, 32, 64), 64, (3, 3), dtype=int16),
        _case(conv, "conv3d-3x3x3-c16", (1, 8, 16, 16, 16), 16, (3, 3, 3)),
        _case(depthwise, "depthwise-3x3", (8, 24, 24, 64), 3),
        _case(depthwise, "depthwise-stride2", (8, 24, 24, 64), 3, stride=2),
        _case(depthwise, "depthwise-fp32", (8, 24, 24, 64), 3, dtype=fp32),
        _case(transpose_conv, "transpose-conv-4x4s2", (1, 16, 16, 64), 32, 4, 2),
        _case(pool, "max-pool-2x2", "MAX_POOL2D", images, 2, 2),
        _case(pool, "max-pool-3x3s1", "MAX_POOL2D", images, 3, 1),
        _case(pool, "avg-pool-3x3s1", "AVG_POOL2D", images, 3, 1),
        _case(pool, "avg-pool-8x8", "AVG_POOL2D", (32, 8, 8, 64), 8, 8),
        _case(rescale, "rescale", (16, 32, 32, 64), per_channel=False),
        _case(rescale, "rescale-channels", (16, 32, 32, 64), per_channel=True),
        _case(table, "table-int8", (16, 32, 32, 64), int8),
        _case(table, "table-int16", (16, 32, 32, 64), int16),
        _case(resize, "resize-nearest", (4, 32, 32, 32), 2, nearest),
        _case(resize, "resize-bilinear", (4, 32, 32, 32), 2, bilinear),
        _case(reduction, "argmax", "ARGMAX", (1024, 1000), int8),
        _case(reduction, "reduce-sum", "REDUCE_SUM", (1024, 1000), int32),
    )


def _case(make: Callable[..., Work], name: str, *sizes: Any, **options: Any):
    return name, functools.partial(make, name, *sizes, **options)


def _by_name(*cases: tuple[str, Callable[[], Work]]) -> dict[str, Callable[[], Work]]:
    return dict(cases)
