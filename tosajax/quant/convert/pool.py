"""AVG_POOL2D: means with a scale of their own."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale


def avg_pool2d(c: Converter, node: Node) -> None:
    windows = _Windows.of(c, node)
    bits = c.dtype(node.inputs[0]).bits + 1 + (windows.divisor - 1).bit_length()
    if not c.options.own_pool_scales or bits > 32:
        _in_unit_of_input(c, node)
    elif windows.is_global:
        _global_mean(c, node, windows.divisor, bits)
    else:
        _windowed_mean(c, node, windows, bits)


class _Windows(NamedTuple):
    """How many elements of the image the windows of an AVG_POOL2D cover, padding aside.

    Args:
      counts: int32 [1, OH, OW, 1]; of elements in each window.
      divisor: the least common multiple of the counts.
      is_global: one window covers the image.
    """

    counts: np.ndarray
    divisor: int
    is_global: bool

    @classmethod
    def of(cls, c: Converter, node: Node) -> _Windows:
        top, bottom, left, right = node.attributes["pad"]
        sizes = (c.graph.tensors[node.inputs[0]].shape or ())[1:3]
        settings = (sizes, node.attributes["kernel"], node.attributes["stride"])
        ends = ((top, bottom), (left, right))
        rows, columns = (
            _window_counts(size, kernel, stride, *pad)
            for size, kernel, stride, pad in zip(*settings, ends, strict=True)
        )
        counts = np.outer(rows, columns)[None, :, :, None].astype(np.int32)
        is_global = counts.size == 1 and counts.item() == math.prod(sizes)
        return cls(counts, math.lcm(*np.unique(counts).tolist()), is_global)


def _window_counts(size: int, kernel: int, stride: int, before: int, after: int) -> np.ndarray:
    """How many elements of an axis are in each window."""
    starts = np.arange((size + before + after - kernel) // stride + 1) * stride - before
    return np.minimum(starts + kernel, size) - np.maximum(starts, 0)


def _global_mean(c: Converter, node: Node, count: int, bits: int) -> None:
    (input, *_), (output,) = node.inputs, node.outputs
    wide = c.integers(input, f"{output}/input", Scale())
    rows = c.builder.op("REDUCE_SUM", wide, axis=1, name=f"{output}/rows", location=node.location)
    acc = c.builder.op("REDUCE_SUM", rows, axis=2, name=f"{output}/acc", location=node.location)
    c.finish_sum(output, Accumulator(acc, c.unit(input).times(1 / count), bits=bits))


def _windowed_mean(c: Converter, node: Node, windows: _Windows, bits: int) -> None:
    """A convolution with ones: AVG_POOL2D would round means to the unit of its input."""
    (input, *_), (output,) = node.inputs, node.outputs
    x = c.get(input)
    assert x.shape is not None
    acc_type = DType.INT48 if x.dtype is DType.INT16 else DType.INT32
    ones = np.ones((*node.attributes["kernel"], x.shape[3], 1), np.int8)
    sums = c.builder.op(
        "DEPTHWISE_CONV2D",
        x,
        c.builder.const(ones, DType.INT8, name=f"{output}/ones"),
        c.zero(f"{output}/no_bias", acc_type),
        c.zero_point(input, f"{output}/sums"),
        c.zero(f"{output}/ones_zp", DType.INT8),
        name=f"{output}/sums",
        dtype=acc_type,
        location=node.location,
        pad=node.attributes["pad"],
        stride=node.attributes["stride"],
        dilation=(1, 1),
        acc_type=acc_type,
    )
    if acc_type is DType.INT48:  # the sums fit int32, whose multiplier is the larger
        sums = c.rescale(f"{output}/narrow", sums, Scale(), DType.INT32)
    if np.any(windows.counts != windows.divisor):
        factors = c.builder.const(
            windows.divisor // windows.counts, DType.INT32, name=f"{output}/factors"
        )
        shift = c.zero(f"{output}/shift_of_product", DType.INT8)
        sums = c.builder.op("MUL", sums, factors, shift, name=f"{output}/acc")
    unit = c.unit(input).times(1 / windows.divisor)
    c.finish_sum(output, Accumulator(sums, unit, bits=bits))


def _in_unit_of_input(c: Converter, node: Node) -> None:
    (input, *_), (output,) = node.inputs, node.outputs
    pooled = c.builder.op(
        "AVG_POOL2D",
        c.get(input),
        c.zero_point(input, f"{output}/input"),
        c.zero_point(input, f"{output}/output"),
        name=output,
        location=node.location,
        **{**node.attributes, "acc_type": DType.INT32},
    )
    c.put(output, pooled, like=input)
