"""Quantized networks as data, from which each contender writes its own model.

A network is a list of layers over numbered values: value 0 is the input, layer k makes value
k + 1. A value holds int8 q for the real number scale * (q - zero_point), as in LiteRT and ONNX.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np


class Quant(NamedTuple):
    """The real numbers that the int8 values of a tensor stand for."""

    scale: float
    zero_point: int


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer reads one value or two; `out` gives the real numbers of its result."""

    sources: tuple[int, ...]
    out: Quant


@dataclasses.dataclass(frozen=True, eq=False)
class Conv(Layer):
    """A convolution of [N, H, W, C] with the "same" padding of LiteRT.

    Args:
      weight: int8, [OC, KH, KW, IC]; depthwise [KH, KW, C, 1].
      weight_scale: float64, [OC].
      bias: int32, [OC], in units of the input's scale times weight_scale.
      stride: of both axes.
      relu: negative numbers become 0.
      depthwise: each channel by itself.
    """

    weight: np.ndarray
    weight_scale: np.ndarray
    bias: np.ndarray
    stride: int = 1
    relu: bool = True
    depthwise: bool = False

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weight.shape[:2] if self.depthwise else self.weight.shape[1:3]


@dataclasses.dataclass(frozen=True)
class Add(Layer):
    """The sum of two values of one shape."""

    relu: bool = True


@dataclasses.dataclass(frozen=True)
class AveragePool(Layer):
    """The mean over all of H and W, which stay as 1."""


@dataclasses.dataclass(frozen=True)
class Reshape(Layer):
    """The same elements in another shape; its first dimension is open (-1)."""

    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Transpose(Layer):
    """Axis i of the result is axis perms[i]."""

    perms: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class MatMul(Layer):
    """left @ right, batched on the first axis; both are activations."""


@dataclasses.dataclass(frozen=True)
class Softmax(Layer):
    """Softmax over the last axis of [N, H, W]."""


@dataclasses.dataclass(frozen=True)
class Gelu(Layer):
    """x * Phi(x), elementwise."""


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """Layers, and the shape of one example of the input."""

    name: str
    shape: tuple[int, ...]
    quant: Quant
    layers: tuple[Layer, ...]

    def images(self, values: np.ndarray) -> np.ndarray:
        """The real numbers, in float32, that int8 inputs stand for."""
        return (values.astype(np.float32) - self.quant.zero_point) * np.float32(self.quant.scale)

    @property
    def quants(self) -> list[Quant]:
        """Of every value."""
        return [self.quant, *(layer.out for layer in self.layers)]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of every value, for a batch of one; [H * N, ...] appears as H examples."""
        found: list[tuple[int, ...]] = [(1, *self.shape)]
        for layer in self.layers:
            found.append(_shape(layer, [found[i] for i in layer.sources]))
        return found


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after, so that ceil(size / stride) windows fit."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return total // 2, total - total // 2


def _shape(layer: Layer, sources: list[tuple[int, ...]]) -> tuple[int, ...]:
    first = sources[0]
    match layer:
        case Conv():
            channels = layer.bias.size
            return (first[0], *(-(-s // layer.stride) for s in first[1:3]), channels)
        case AveragePool():
            return (first[0], 1, 1, first[3])
        case Reshape():
            return (math.prod(first) // math.prod(layer.shape[1:]), *layer.shape[1:])
        case Transpose():
            return tuple(first[p] for p in layer.perms)
        case MatMul():
            return (*first[:2], sources[1][2])
    return first
