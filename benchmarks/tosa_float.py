"""Writes the float32 form of a network as a TOSA graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tosajax
from benchmarks import float_jax
from benchmarks.layers import (
    Add,
    AveragePool,
    Conv,
    Gelu,
    Layer,
    MatMul,
    Network,
    Reshape,
    Softmax,
    Transpose,
    same_padding,
)
from benchmarks.tosa_form import cropped
from tosajax import DType, Graph, Tensor
from tosajax.spec import NanMode

FP32 = DType.FP32


def to_float_graph(network: Network) -> Graph:
    """The network in float32, with an open batch dimension."""
    builder = tosajax.Builder(network.name)
    values = [builder.input("input", FP32, (-1, *network.shape))]
    for layer, params in zip(network.layers, float_jax.parameters(network), strict=True):
        values.append(_layer(builder, layer, params, [values[i] for i in layer.sources]))
    return builder.graph([values[-1]])


def _layer(
    b: tosajax.Builder, layer: Layer, params: Sequence[np.ndarray], sources: Sequence[Tensor]
) -> Tensor:
    x = sources[0]
    match layer:
        case Conv():
            return _relu(b, _conv(b, layer, params, x), layer.relu)
        case Add():
            return _relu(b, b.op("ADD", *sources), layer.relu)
        case AveragePool():
            window: dict[str, Any] = {
                "kernel": (x.shape or ())[1:3],
                "stride": (1, 1),
                "pad": (0,) * 4,
            }
            return b.op("AVG_POOL2D", x, zero(b), zero(b), acc_type=FP32, **window)
        case Reshape():
            return b.op("RESHAPE", x, b.const_shape(layer.shape))
        case Transpose():
            return b.op("TRANSPOSE", x, perms=layer.perms)
        case MatMul():
            return b.op("MATMUL", *sources, zero(b), zero(b), dtype=FP32)
        case Softmax():
            return softmax(b, x)
        case Gelu():
            return gelu(b, x)
    raise NotImplementedError(type(layer).__name__)


def _conv(b: tosajax.Builder, layer: Conv, params: Sequence[np.ndarray], x: Tensor) -> Tensor:
    weight, bias = params
    sizes = (x.shape or ())[1:3]
    pads = [same_padding(s, k, layer.stride) for s, k in zip(sizes, layer.kernel, strict=True)]
    x = cropped(b, x, layer, pads)
    return b.op(
        "DEPTHWISE_CONV2D" if layer.depthwise else "CONV2D",
        x,
        b.const(weight[..., None] if layer.depthwise else weight.transpose(3, 0, 1, 2), FP32),
        b.const(bias, FP32),
        zero(b),
        zero(b),
        pad=(*pads[0], *pads[1]),
        stride=(layer.stride,) * 2,
        dilation=(1, 1),
        acc_type=FP32,
    )


def _relu(b: tosajax.Builder, x: Tensor, wanted: bool) -> Tensor:
    if not wanted:
        return x
    largest = np.finfo(np.float32).max
    return b.op("CLAMP", x, min_val=0.0, max_val=largest, nan_mode=NanMode.PROPAGATE)


def softmax(b: tosajax.Builder, x: Tensor, name: str | None = None) -> Tensor:
    """Of the last of three axes."""
    below = b.op("SUB", x, b.op("REDUCE_MAX", x, axis=2, nan_mode=NanMode.PROPAGATE))
    powers = b.op("EXP", below)
    total = b.op("REDUCE_SUM", powers, axis=2)
    return b.op("MUL", powers, b.op("RECIPROCAL", total), shift(b), name=name)


def gelu(b: tosajax.Builder, x: Tensor, name: str | None = None) -> Tensor:
    """x * Phi(x)."""
    ones = (1,) * len(x.shape or ())
    half, one, root = (
        b.const(np.full(ones, value), FP32) for value in (0.5, 1.0, 1 / math.sqrt(2))
    )
    erf = b.op("ERF", b.op("MUL", x, root, shift(b)))
    twice = b.op("ADD", erf, one)
    return b.op("MUL", b.op("MUL", x, half, shift(b)), twice, shift(b), name=name)


def zero(b: tosajax.Builder) -> Tensor:
    """A zero point."""
    return b.const([0.0], FP32)


def shift(b: tosajax.Builder) -> Tensor:
    """What MUL of floats takes in place of a shift."""
    return b.const([0], DType.INT8)
