"""Small float networks for 8x8 images: convolutions with a residual, and a transformer block."""

from __future__ import annotations

import math

import numpy as np

from tosajax import Builder, DType, Graph, Tensor

_LARGEST = np.finfo(np.float32).max
_SAME, _HALVED, _NONE = (1, 1, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0)
_PATCHES, _WIDTH, _HEADS = 16, 16, 2


def convolutional(seed: int = 0) -> Graph:
    """A convolution, a residual block of depthwise and pointwise ones, one of stride 2, a head."""
    n = _Layers("convolutional", seed)
    x = n.b.input("image", DType.FP32, (1, 8, 8, 1))
    x = stem = n.relu(n.conv(x, 16, 3, _SAME, name="stem"))
    x = n.relu(n.depthwise(x, _SAME, name="depthwise"))
    x = n.conv(x, 16, 1, _NONE, name="pointwise")
    x = n.b.op("ADD", x, stem, name="residual")
    x = n.relu(n.conv(x, 32, 3, _HALVED, 2, name="halved"))
    x = n.conv(x, 10, 4, _NONE, name="head")
    return n.b.graph([n.reshape(x, 1, 10)])


def transformer(seed: int = 0) -> Graph:
    """Attention of two heads on patches of 2x2, then an MLP with GELU; layer norms, residuals."""
    n = _Layers("transformer", seed)
    x = n.b.input("image", DType.FP32, (1, 8, 8, 1))
    x = n.b.op("TRANSPOSE", n.reshape(x, 1, 4, 2, 4, 2), perms=(0, 1, 3, 2, 4))
    x = n.dense(n.reshape(x, _PATCHES, 1, 1, 4), _WIDTH, name="patches")
    x = n.b.op("ADD", x, n.normal((_PATCHES, 1, 1, _WIDTH), 0.3, "position"), name="embedded")
    x = n.b.op("ADD", x, n.attention(n.layer_norm(x, "norm1")), name="attended")
    hidden = n.gelu(n.dense(n.layer_norm(x, "norm2"), 2 * _WIDTH, name="hidden"))
    x = n.b.op("ADD", x, n.dense(hidden, _WIDTH, name="mixed"), name="processed")
    x = n.mean(x, 0)
    return n.b.graph([n.reshape(n.dense(x, 10, name="head"), 1, 10)])


class _Layers:
    """A Builder with random weights."""

    def __init__(self, name: str, seed: int) -> None:
        self.b = Builder(name)
        self.rng = np.random.default_rng(seed)

    def normal(self, shape: tuple[int, ...], deviation: float, name: str) -> Tensor:
        return self.b.const(self.rng.normal(0, deviation, shape), DType.FP32, name=name)

    def conv(
        self,
        x: Tensor,
        channels: int,
        size: int,
        pad: tuple[int, ...],
        stride: int = 1,
        *,
        name: str,
    ) -> Tensor:
        shape = (channels, size, size, _shape(x)[-1])
        return self._conv("CONV2D", x, shape, math.prod(shape[1:]), channels, pad, stride, name)

    def dense(self, x: Tensor, channels: int, *, name: str) -> Tensor:
        return self.conv(x, channels, 1, _NONE, name=name)

    def depthwise(self, x: Tensor, pad: tuple[int, ...], *, name: str) -> Tensor:
        channels = _shape(x)[-1]
        return self._conv("DEPTHWISE_CONV2D", x, (3, 3, channels, 1), 9, channels, pad, 1, name)

    def _conv(
        self,
        op: str,
        x: Tensor,
        shape: tuple[int, ...],
        inputs: int,
        channels: int,
        pad: tuple[int, ...],
        stride: int,
        name: str,
    ) -> Tensor:
        return self.b.op(
            op,
            x,
            self.normal(shape, math.sqrt(2 / inputs), f"{name}/weight"),
            self.b.const(np.zeros(channels), DType.FP32, name=f"{name}/bias"),
            *(self.b.const([0.0], DType.FP32) for _ in range(2)),
            pad=pad,
            stride=(stride, stride),
            dilation=(1, 1),
            acc_type=DType.FP32,
            name=name,
        )

    def attention(self, x: Tensor) -> Tensor:
        names = ("query", "key", "value")
        q, k, v = (
            self.reshape(self.dense(x, _WIDTH, name=name), _PATCHES, _HEADS, _WIDTH // _HEADS)
            for name in names
        )
        q, v = (self.b.op("TRANSPOSE", y, perms=(1, 0, 2)) for y in (q, v))
        k = self.b.op("TRANSPOSE", k, perms=(1, 2, 0))
        similarity = self.times(self.matmul(q, k, "similarity"), (_WIDTH // _HEADS) ** -0.5)
        found = self.matmul(self.softmax(similarity), v, "found")
        joined = self.b.op("TRANSPOSE", found, perms=(1, 0, 2))
        joined = self.reshape(joined, _PATCHES, 1, 1, _WIDTH)
        return self.dense(joined, _WIDTH, name="projected")

    def matmul(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        zero_points = (self.b.const([0.0], DType.FP32) for _ in range(2))
        return self.b.op("MATMUL", a, b, *zero_points, name=name)

    def softmax(self, x: Tensor) -> Tensor:
        shifted = self.b.op("SUB", x, self.b.op("REDUCE_MAX", x, axis=2))
        powers = self.b.op("EXP", shifted)
        total = self.b.op("REDUCE_SUM", powers, axis=2)
        return self.times(powers, self.b.op("RECIPROCAL", total))

    def gelu(self, x: Tensor) -> Tensor:
        normal = self.b.op("ERF", self.times(x, 0.5**0.5))
        normal = self.b.op("ADD", normal, self._number(normal, 1.0))
        return self.times(self.times(normal, 0.5), x)

    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        axis = len(_shape(x)) - 1
        centred = self.b.op("SUB", x, self.mean(x, axis))
        variance = self.mean(self.times(centred, centred), axis)
        variance = self.b.op("ADD", variance, self._number(variance, 1e-5))
        return self.times(centred, self.b.op("RSQRT", variance), name=name)

    def mean(self, x: Tensor, axis: int) -> Tensor:
        return self.times(self.b.op("REDUCE_SUM", x, axis=axis), 1 / _shape(x)[axis])

    def relu(self, x: Tensor) -> Tensor:
        name = f"{x.name}/relu"
        return self.b.op("CLAMP", x, min_val=np.float32(0), max_val=_LARGEST, name=name)

    def times(self, x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
        y = y if isinstance(y, Tensor) else self._number(x, y)
        return self.b.op("MUL", x, y, self.b.const([0], DType.INT8), name=name)

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        return self.b.op("RESHAPE", x, self.b.const_shape(shape))

    def _number(self, x: Tensor, value: float) -> Tensor:
        """A constant of one element that broadcasts against x."""
        return self.b.const(np.full([1 for _ in _shape(x)], value), DType.FP32)


def _shape(x: Tensor) -> tuple[int, ...]:
    assert x.shape is not None
    return x.shape
