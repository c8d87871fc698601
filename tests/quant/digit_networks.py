"""Float networks for 8x8 digits, with random weights, and the 540 digits of tests/data.

Each takes an image of (1, 8, 8, 1) in [0, 1]. Together they have every operator that quantizing
gives an integer form of its own, but for the rarest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from paths import DATA

from tosajax import Builder, DType, Graph, Tensor

_DATA = DATA / "digits_test"
_LARGEST = float(np.finfo(np.float32).max)
_SAME = (1, 1, 1, 1)  # padding of 3x3 that keeps the size
_HALVED = (0, 1, 0, 1)  # and of 3x3 with a stride of 2, that halves it
_NONE = (0, 0, 0, 0)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images, float32 (540, 8, 8, 1) in 17 steps from 0 to 1, and labels, int32 (540,)."""
    integers = np.load(_DATA / "inputs_0.npy").astype(np.float32)
    images = np.round((integers + 128) * (16 / 255)) / 16
    return images.astype(np.float32), np.load(_DATA / "labels.npy").astype(np.int32)


class _Layers:
    """A Builder with random weights and the layers that networks share."""

    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(7)
        self.image = self.b.input("image", DType.FP32, (1, 8, 8, 1))

    def const(self, values: Any) -> Tensor:
        return self.b.const(values, DType.FP32)

    def random(self, shape: tuple[int, ...], inputs: int) -> Tensor:
        return self.const(self.rng.normal(0, math.sqrt(2 / inputs), shape))

    def bias(self, channels: int) -> Tensor:
        return self.const(self.rng.normal(0, 0.1, channels))

    def conv(
        self,
        x: Tensor,
        channels: int,
        size: int = 1,
        pad: tuple[int, ...] = _NONE,
        stride: int = 1,
        *,
        name: str,
    ) -> Tensor:
        weight_shape = (channels, size, size, _shape(x)[-1])
        return self.b.op(
            "CONV2D",
            x,
            self.random(weight_shape, math.prod(weight_shape[1:])),
            self.bias(channels),
            *self._zero_points(),
            pad=pad,
            stride=(stride, stride),
            dilation=(1, 1),
            acc_type=DType.FP32,
            name=name,
        )

    def depthwise(
        self, x: Tensor, factor: int, pad: tuple[int, ...], stride: int, *, name: str
    ) -> Tensor:
        channels = _shape(x)[-1]
        return self.b.op(
            "DEPTHWISE_CONV2D",
            x,
            self.random((3, 3, channels, factor), 9),
            self.bias(channels * factor),
            *self._zero_points(),
            pad=pad,
            stride=(stride, stride),
            dilation=(1, 1),
            acc_type=DType.FP32,
            name=name,
        )

    def transpose_conv(
        self, x: Tensor, channels: int, size: int, out_pad: tuple[int, ...], *, name: str
    ) -> Tensor:
        inputs = _shape(x)[-1]
        return self.b.op(
            "TRANSPOSE_CONV2D",
            x,
            self.random((channels, size, size, inputs), size * inputs),
            self.bias(channels),
            *self._zero_points(),
            out_pad=out_pad,
            stride=(2, 2),
            acc_type=DType.FP32,
            name=name,
        )

    def matmul(self, a: Tensor, b: Tensor, *, name: str) -> Tensor:
        return self.b.op("MATMUL", a, b, *self._zero_points(), name=name)

    def times_weights(self, x: Tensor, channels: int, *, name: str) -> Tensor:
        """(1, H, C) by a constant."""
        inputs = _shape(x)[-1]
        return self.matmul(x, self.random((1, inputs, channels), inputs), name=name)

    def clamp(self, x: Tensor, low: float, high: float = _LARGEST) -> Tensor:
        name = f"{x.name}/clamp"
        return self.b.op("CLAMP", x, min_val=np.float32(low), max_val=np.float32(high), name=name)

    def times(self, x: Tensor, y: Tensor | float) -> Tensor:
        y = y if isinstance(y, Tensor) else self.number(x, y)
        return self.b.op("MUL", x, y, self.b.const([0], DType.INT8))

    def number(self, x: Tensor, value: float) -> Tensor:
        """A constant of one element that broadcasts against x."""
        return self.const(np.full([1 for _ in _shape(x)], value))

    def mean(self, x: Tensor, axis: int) -> Tensor:
        return self.times(self.b.op("REDUCE_SUM", x, axis=axis), 1 / _shape(x)[axis])

    def reshape(self, x: Tensor, *shape: int, name: str | None = None) -> Tensor:
        return self.b.op("RESHAPE", x, self.b.const_shape(shape), name=name)

    def slice(self, x: Tensor, start: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
        return self.b.op("SLICE", x, self.b.const_shape(start), self.b.const_shape(size))

    def _zero_points(self) -> tuple[Tensor, Tensor]:
        return self.const([0.0]), self.const([0.0])


def _shape(x: Tensor) -> tuple[int, ...]:
    assert x.shape is not None
    return x.shape


def cnn() -> Graph:
    """Three convolutions, as in examples/digits.py."""
    n = _Layers()
    x = n.clamp(n.conv(n.image, 16, 3, _SAME, name="conv1"), 0)
    x = n.clamp(n.conv(x, 32, 3, _HALVED, 2, name="conv2"), 0)
    x = n.conv(x, 10, 4, name="conv3")
    return n.b.graph([n.reshape(x, 1, 10, name="scores")])


def separable() -> Graph:
    """Depthwise and pointwise convolutions, a residual sum, all kinds of pooling."""
    n = _Layers()
    padding = n.b.const_shape((0, 0, 1, 1, 1, 1, 0, 0))
    x = n.b.op("PAD", n.image, padding, n.const([0.0]))
    x = stem = n.clamp(n.conv(x, 8, 3, name="stem"), 0)
    x = n.clamp(n.depthwise(x, 1, _SAME, 1, name="depthwise1"), 0, 6)
    x = n.b.op("ADD", n.conv(x, 8, name="pointwise1"), stem, name="residual")
    pool = {"kernel": (2, 2), "stride": (2, 2), "pad": _NONE}
    x = n.b.op("MAX_POOL2D", x, **pool)
    x = n.clamp(n.depthwise(x, 2, _HALVED, 2, name="depthwise2"), 0)
    x = n.conv(x, 16, name="pointwise2")
    zero_points = n.const([0.0]), n.const([0.0])
    averages = n.b.op("AVG_POOL2D", x, *zero_points, **pool, acc_type=DType.FP32)
    corner = n.slice(stem, (0, 2, 3, 0), (1, 4, 5, 8))
    means = n.mean(n.mean(corner, 1), 2)
    x = n.b.op("CONCAT", averages, means, axis=3)
    x = n.conv(x, 10, name="head")
    return n.b.graph([n.reshape(x, 1, 10, name="scores")])


def autoencoder() -> Graph:
    """Convolutions of stride 2 and transpose convolutions, TANH, SIGMOID; gives an image."""
    n = _Layers()
    x = n.clamp(n.conv(n.image, 8, 3, _HALVED, 2, name="down1"), 0)
    x = n.b.op("TANH", n.conv(x, 16, 3, _HALVED, 2, name="down2"), name="code")
    x = n.clamp(n.transpose_conv(x, 8, 2, _NONE, name="up1"), 0)
    x = n.transpose_conv(x, 1, 3, (0, -1, 0, -1), name="up2")
    return n.b.graph([n.b.op("SIGMOID", x, name="reconstruction")])


def attention() -> Graph:
    """Two heads of attention on 16 patches, a layer norm and a GELU, as converters spell them."""
    n = _Layers()
    x = n.b.op("TRANSPOSE", n.reshape(n.image, 1, 4, 2, 4, 2), perms=(0, 1, 3, 2, 4))
    x = n.times_weights(n.reshape(x, 1, 16, 4), 16, name="patches")
    x = n.b.op("ADD", x, n.random((1, 16, 16), 16), name="embedded")
    x = n.b.op("ADD", x, _attend(n, _layer_norm(n, x)), name="attended")
    x = _gelu(n, n.conv(n.reshape(x, 16, 1, 1, 16), 16, name="hidden"))
    x = n.mean(n.reshape(x, 1, 16, 1, 16), 1)
    x = n.conv(n.reshape(x, 1, 1, 1, 16), 10, name="head")
    return n.b.graph([n.reshape(x, 1, 10, name="scores")])


def _attend(n: _Layers, x: Tensor) -> Tensor:
    rows = n.reshape(x, 16, 1, 1, 16)
    query, key = (n.conv(rows, 16, name=name) for name in ("query", "key"))
    value = n.times_weights(x, 16, name="value")
    heads = [n.reshape(y, 16, 2, 8) for y in (query, key, value)]
    orders = (1, 0, 2), (1, 2, 0), (1, 0, 2)
    q, k, v = (n.b.op("TRANSPOSE", y, perms=p) for y, p in zip(heads, orders, strict=True))
    weights = _softmax(n, n.times(n.matmul(q, k, name="similarity"), 8**-0.5))
    joined = n.b.op("TRANSPOSE", n.matmul(weights, v, name="mixed"), perms=(1, 0, 2))
    return n.reshape(joined, 1, 16, 16)


def _softmax(n: _Layers, x: Tensor) -> Tensor:
    shifted = n.b.op("SUB", x, n.b.op("REDUCE_MAX", x, axis=2))
    powers = n.b.op("EXP", shifted)
    return n.times(powers, n.b.op("RECIPROCAL", n.b.op("REDUCE_SUM", powers, axis=2)))


def _gelu(n: _Layers, x: Tensor) -> Tensor:
    normal = n.b.op("ADD", n.b.op("ERF", n.times(x, 0.5**0.5)), n.number(x, 1.0))
    return n.times(n.times(normal, 0.5), x)


def _layer_norm(n: _Layers, x: Tensor) -> Tensor:
    centred = n.b.op("SUB", x, n.mean(x, 2))
    variance = n.mean(n.times(centred, centred), 2)
    deviation = n.b.op("RSQRT", n.b.op("ADD", variance, n.number(variance, 1e-5)))
    gain = n.const(n.rng.uniform(0.5, 1.5, (1, 1, 16)))
    scaled = n.times(n.times(centred, deviation), gain)
    return n.b.op("ADD", scaled, n.const(n.rng.normal(0, 0.1, (1, 1, 16))))
