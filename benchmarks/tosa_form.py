"""Writes a quantized network as a TOSA graph, as converters do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tosajax
from benchmarks.layers import (
    Add,
    AveragePool,
    Conv,
    Gelu,
    Layer,
    MatMul,
    Network,
    Quant,
    Reshape,
    Softmax,
    Transpose,
    same_padding,
)
from tosajax import DType, Graph, Tensor
from tosajax.spec import NanMode, RoundingMode

_ADD_BITS = 20  # by which the sources of a sum are scaled up
_BYTE = Quant(1 / 255, -128)  # numbers from 0 to 1


def to_graph(network: Network) -> Graph:
    """The network with an open batch dimension."""
    writer = _Writer(network.name)
    values = [writer.input(network.shape)]
    quants = network.quants
    for layer in network.layers:
        sources = [values[i] for i in layer.sources]
        values.append(writer.layer(layer, sources, [quants[i] for i in layer.sources]))
    return writer.builder.graph([values[-1]])


def multiplier_of(scale: float) -> tuple[int, int]:
    """multiplier in [2**30, 2**31) and shift with multiplier / 2**shift close to scale."""
    fraction, exponent = math.frexp(scale)
    multiplier = round(fraction * 2**31)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    return multiplier, 31 - exponent


def cropped(
    builder: tosajax.Builder, x: Tensor, layer: Conv, pads: Sequence[tuple[int, int]]
) -> Tensor:
    """x without rows and columns at the end that no window reads, which TOSA forbids."""
    sizes = zip(_sizes(x)[1:3], layer.kernel, pads, strict=True)
    surplus = [(size + sum(pad) - kernel) % layer.stride for size, kernel, pad in sizes]
    if not any(surplus):
        return x
    size = (-1, *(s - d for s, d in zip(_sizes(x)[1:3], surplus, strict=True)), _sizes(x)[3])
    shapes = (builder.const_shape((0,) * 4), builder.const_shape(size))
    return builder.op("SLICE", x, *shapes, shape=size)


class _Writer:
    """Adds the operators of one layer after the other."""

    def __init__(self, name: str) -> None:
        self.builder = tosajax.Builder(name)
        self._zeros: dict[tuple[int, DType], Tensor] = {}

    def input(self, shape: Sequence[int]) -> Tensor:
        return self.builder.input("input", DType.INT8, (-1, *shape))

    def layer(self, layer: Layer, sources: Sequence[Tensor], quants: Sequence[Quant]) -> Tensor:
        op, x = self.builder.op, sources[0]
        match layer:
            case Conv():
                return self._conv(layer, x, quants[0])
            case Add():
                return self._add(layer, sources, quants)
            case AveragePool():
                zero = self._zero_point(layer.out.zero_point)
                window: dict[str, Any] = {
                    "kernel": _sizes(x)[1:3],
                    "stride": (1, 1),
                    "pad": (0,) * 4,
                }
                return op("AVG_POOL2D", x, zero, zero, acc_type=DType.INT32, **window)
            case Reshape():
                return op("RESHAPE", x, self.builder.const_shape(layer.shape))
            case Transpose():
                return op("TRANSPOSE", x, perms=layer.perms)
            case MatMul():
                zeros = [self._zero_point(q.zero_point) for q in quants]
                scale = quants[0].scale * quants[1].scale / layer.out.scale
                sums = op("MATMUL", *sources, *zeros)
                return self._rescale(sums, [scale], 0, layer.out.zero_point, DType.INT8)
            case Softmax():
                return self._softmax(x, quants[0], layer.out)
            case Gelu():
                return self._table(x, quants[0], layer.out, _gelu)
        raise NotImplementedError(type(layer).__name__)

    def _conv(self, layer: Conv, x: Tensor, quant: Quant) -> Tensor:
        pads = [
            same_padding(s, k, layer.stride)
            for s, k in zip(_sizes(x)[1:3], layer.kernel, strict=True)
        ]
        x = cropped(self.builder, x, layer, pads)
        sums = self.builder.op(
            "DEPTHWISE_CONV2D" if layer.depthwise else "CONV2D",
            x,
            self.builder.const(layer.weight, DType.INT8),
            self.builder.const(layer.bias, DType.INT32),
            self._zero_point(quant.zero_point),
            self._zero_point(0),
            pad=(*pads[0], *pads[1]),
            stride=(layer.stride,) * 2,
            dilation=(1, 1),
            acc_type=DType.INT32,
        )
        scales = quant.scale * layer.weight_scale / layer.out.scale
        return self._rescale(sums, scales, 0, layer.out.zero_point, DType.INT8)

    def _add(self, layer: Add, sources: Sequence[Tensor], quants: Sequence[Quant]) -> Tensor:
        largest = 2 * max(q.scale for q in quants)
        terms = [
            self._rescale(x, [q.scale / largest * 2**_ADD_BITS], q.zero_point, 0, DType.INT32)
            for x, q in zip(sources, quants, strict=True)
        ]
        scale = largest / (layer.out.scale * 2**_ADD_BITS)
        total = self.builder.op("ADD", *terms)
        return self._rescale(total, [scale], 0, layer.out.zero_point, DType.INT8)

    def _softmax(self, x: Tensor, quant: Quant, out: Quant) -> Tensor:
        """Softmax by tables of int8, of the exponential and of the reciprocal of the sum."""
        op, length = self.builder.op, _sizes(x)[2]
        largest = op("REDUCE_MAX", x, axis=2, nan_mode=NanMode.PROPAGATE)
        below = op("SUB", *(self._rescale(t, [1.0], 0, 0, DType.INT32) for t in (x, largest)))
        below = self._rescale(below, [1.0], 0, 127, DType.INT8)
        powers = self._table(below, Quant(quant.scale, 127), _BYTE, np.exp)
        powers = self._rescale(powers, [1.0], _BYTE.zero_point, 0, DType.INT32)
        total = op("REDUCE_SUM", powers, axis=2)
        total = self._rescale(total, [1 / length], 0, -128, DType.INT8)
        inverse = self._table(total, Quant(length / 255, -128), _BYTE, _reciprocal)
        inverse = self._rescale(inverse, [1.0], _BYTE.zero_point, 0, DType.INT32)
        product = op("MUL", powers, inverse, self._zero_point(0))
        return self._rescale(product, [_BYTE.scale**2 / out.scale], 0, out.zero_point, DType.INT8)

    def _table(self, x: Tensor, quant: Quant, out: Quant, function) -> Tensor:
        reals = (np.arange(-128, 128) - quant.zero_point) * quant.scale
        values = np.rint(function(reals) / out.scale) + out.zero_point
        table = np.clip(values, -128, 127).astype(np.int8)
        return self.builder.op("TABLE", x, self.builder.const(table, DType.INT8))

    def _rescale(
        self,
        x: Tensor,
        scales: Sequence[float] | np.ndarray,
        zero: int,
        out_zero: int,
        dtype: DType,
    ) -> Tensor:
        pairs = [multiplier_of(float(s)) for s in scales]
        return self.builder.op(
            "RESCALE",
            x,
            self.builder.const([m for m, _ in pairs], DType.INT32),
            self.builder.const([s for _, s in pairs], DType.INT8),
            self._zero_point(zero, x.dtype),
            self._zero_point(out_zero, dtype),
            dtype=dtype,
            scale32=True,
            rounding_mode=RoundingMode.SINGLE_ROUND,
            per_channel=len(pairs) > 1,
            input_unsigned=False,
            output_unsigned=False,
        )

    def _zero_point(self, value: int, dtype: DType = DType.INT8) -> Tensor:
        if (value, dtype) not in self._zeros:
            self._zeros[value, dtype] = self.builder.const([value], dtype)
        return self._zeros[value, dtype]


def _sizes(x: Tensor) -> tuple[int, ...]:
    return x.shape or ()


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return 1 / np.maximum(x, 1.0)
