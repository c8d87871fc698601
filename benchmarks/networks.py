"""Generated networks: random int8 weights, and scales that make activations use their range.

The networks have the sizes of well-known ones. Scales are found as in post-training quantization:
each layer runs in float32 on random inputs, and the range of its results sets its scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from benchmarks import float_jax
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
)

_INPUT = Quant(0.02, 3)
_MOBILENET = (
    *((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)),
    *((128, 1),) * 5,
    *((256, 2), (256, 1)),
)
# Expansion, channels, blocks and stride of each stage.
_MOBILENET_V2 = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)
_EXAMPLES = 4  # that scales are found on
_BEYOND = 0.05  # percent of values that saturate on each side


def resnet8(size: int = 32) -> Network:
    """ResNet-8 of MLPerf Tiny: 12.5 MMAC for 32x32x3, 15 layers."""
    net = _Writer("resnet8", (size, size, 3))
    value = net.conv(0, 16, 3)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        value = _basic_block(net, value, channels, stride)
    net.dense(net.average_pool(value), 10)
    return net.network()


def mobilenet(size: int = 96, blocks: Sequence[tuple[int, int]] = _MOBILENET) -> Network:
    """MobileNetV1 of a quarter of the width: 7.5 MMAC for 96x96x3, 30 layers.

    Args:
      size: of the images.
      blocks: channels and stride of each block.
    """
    net = _Writer("mobilenet", (size, size, 3))
    value = net.conv(0, 8, 3, 2)
    for channels, stride in blocks:
        value = net.conv(net.depthwise(value, stride), channels, 1)
    net.dense(net.average_pool(value), 2)
    return net.network()


def mobilenet_v2(size: int = 224) -> Network:
    """MobileNetV2: 301 MMAC and 3.5 million weights for 224x224x3, 53 layers."""
    net = _Writer("mobilenet_v2", (size, size, 3))
    value = net.conv(0, 32, 3, 2)
    for expansion, channels, blocks, stride in _MOBILENET_V2:
        for block in range(blocks):
            value = _inverted_residual(net, value, expansion, channels, 1 if block else stride)
    net.dense(net.average_pool(net.conv(value, 1280, 1)), 1000)
    return net.network()


def resnet50(size: int = 64) -> Network:
    """ResNet-50, with three convolutions in place of its first one and its pool; 55 layers."""
    net = _Writer("resnet50", (size, size, 3))
    value = net.conv(net.conv(net.conv(0, 32, 3, 2), 32, 3), 64, 3, 2)
    for channels, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            value = _bottleneck(net, value, channels, 1 if block else stride)
    net.dense(net.average_pool(value), 1000)
    return net.network()


def residual(blocks: int, size: int = 16, channels: int = 32) -> Network:
    """A convolution and a chain of basic blocks: 3 * blocks + 1 layers."""
    net = _Writer(f"residual-{2 * blocks + 1}", (size, size, channels))
    value = net.conv(0, channels, 3)
    for _ in range(blocks):
        value = _basic_block(net, value, channels, 1)
    return net.network()


def transformer(length: int = 64, heads: int = 4, width: int = 128) -> Network:
    """Attention and a perceptron, each with its residual sum; no normalisation.

    [N, length, 1, width]; a dense layer is a 1x1 convolution of it.
    """
    net = _Writer("transformer", (length, 1, width))
    depth = width // heads
    query, key, value = (
        _split_heads(net, net.linear(0, width, gain=gain), heads, depth)
        for gain in (depth**-0.5, 1.0, 1.0)
    )
    scores = net.matmul(query, net.transpose(key, (0, 2, 1)))
    mixed = net.matmul(net.softmax(scores), value)
    attended = net.add(0, net.linear(_join_heads(net, mixed, heads, depth), width), relu=False)
    hidden = net.gelu(net.linear(attended, 4 * width))
    net.add(attended, net.linear(hidden, width), relu=False)
    return net.network()


def _basic_block(net: _Writer, value: int, channels: int, stride: int) -> int:
    """Two convolutions beside the value itself, or a 1x1 convolution of it."""
    inner = net.conv(value, channels, 3, stride)
    inner = net.conv(inner, channels, 3, relu=False)
    if stride != 1:
        value = net.conv(value, channels, 1, stride, relu=False)
    return net.add(value, inner)


def _bottleneck(net: _Writer, value: int, channels: int, stride: int) -> int:
    """A 3x3 convolution between two 1x1 ones, beside the value or a 1x1 convolution of it."""
    inner = net.conv(net.conv(value, channels, 1), channels, 3, stride)
    inner = net.conv(inner, 4 * channels, 1, relu=False)
    if net.values[value].shape[3] != 4 * channels:
        value = net.conv(value, 4 * channels, 1, stride, relu=False)
    return net.add(value, inner)


def _inverted_residual(net: _Writer, value: int, expansion: int, channels: int, stride: int) -> int:
    """A wide depthwise convolution between two 1x1 ones, beside the value where shapes agree."""
    before = net.values[value].shape[3]
    wide = net.conv(value, expansion * before, 1) if expansion > 1 else value
    inner = net.conv(net.depthwise(wide, stride), channels, 1, relu=False)
    return net.add(value, inner, relu=False) if (stride, before) == (1, channels) else inner


def _split_heads(net: _Writer, value: int, heads: int, depth: int) -> int:
    length = net.values[value].shape[1]
    split = net.transpose(net.reshape(value, (-1, length, heads, depth)), (0, 2, 1, 3))
    return net.reshape(split, (-1, length, depth))


def _join_heads(net: _Writer, value: int, heads: int, depth: int) -> int:
    length = net.values[value].shape[1]
    split = net.transpose(net.reshape(value, (-1, heads, length, depth)), (0, 2, 1, 3))
    return net.reshape(split, (-1, length, 1, heads * depth))


class _Writer:
    """Appends layers, each with random weights and the scale of its float32 values."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._name, self._shape = name, shape
        self._random = np.random.default_rng(len(name))
        images = self._random.integers(-128, 128, (_EXAMPLES, *shape)).astype(np.float32)
        self._quants, self._layers = [_INPUT], []
        self.values = [(images - _INPUT.zero_point) * np.float32(_INPUT.scale)]

    def network(self) -> Network:
        return Network(self._name, self._shape, _INPUT, tuple(self._layers))

    def conv(
        self, source: int, channels: int, kernel: int, stride: int = 1, *, relu: bool = True
    ) -> int:
        shape = (channels, kernel, kernel, self.values[source].shape[3])
        return self._conv(source, shape, channels, stride, relu=relu)

    def depthwise(self, source: int, stride: int) -> int:
        channels = self.values[source].shape[3]
        return self._conv(source, (3, 3, channels, 1), channels, stride, depthwise=True)

    def linear(self, source: int, channels: int, *, gain: float = 1.0) -> int:
        shape = (channels, 1, 1, self.values[source].shape[3])
        return self._conv(source, shape, channels, 1, gain=gain, relu=False)

    def dense(self, source: int, channels: int) -> int:
        return self.reshape(self.linear(source, channels), (-1, channels))

    def add(self, left: int, right: int, *, relu: bool = True) -> int:
        return self._measured(Add((left, right), _INPUT, relu))

    def average_pool(self, source: int) -> int:
        return self._append(AveragePool((source,), self._quants[source]))

    def reshape(self, source: int, shape: tuple[int, ...]) -> int:
        return self._append(Reshape((source,), self._quants[source], shape))

    def transpose(self, source: int, perms: tuple[int, ...]) -> int:
        return self._append(Transpose((source,), self._quants[source], perms))

    def matmul(self, left: int, right: int) -> int:
        return self._measured(MatMul((left, right), _INPUT))

    def softmax(self, source: int) -> int:
        return self._append(Softmax((source,), Quant(1 / 256, -128)))

    def gelu(self, source: int) -> int:
        return self._measured(Gelu((source,), _INPUT))

    def _conv(
        self,
        source: int,
        shape: tuple[int, ...],
        channels: int,
        stride: int,
        *,
        gain=1.0,
        **options,
    ) -> int:
        weight = self._random.integers(-127, 128, shape).astype(np.int8)
        # Channels of different scale, with outputs about as large as the inputs.
        taps = weight.size // channels
        scale = gain * self._random.uniform(0.5, 1.5, channels) / (74 * taps**0.5)
        bias = (
            gain * self._random.uniform(-0.5, 0.5, channels) / (self._quants[source].scale * scale)
        )
        layer = Conv(
            (source,), _INPUT, weight, scale, np.rint(bias).astype(np.int32), stride, **options
        )
        return self._measured(layer)

    def _measured(self, layer: Layer) -> int:
        """Appends a layer with the scale of its values."""
        low, high = np.percentile(self._run(layer), (_BEYOND, 100 - _BEYOND))
        low, high = min(float(low), 0.0), max(float(high), 0.0)
        scale = (high - low) / 255
        zero_point = int(np.clip(np.rint(-128 - low / scale), -128, 127))
        return self._append(dataclasses.replace(layer, out=Quant(scale, zero_point)))

    def _append(self, layer: Layer) -> int:
        self.values.append(self._run(layer))
        self._layers.append(layer)
        self._quants.append(layer.out)
        return len(self._layers)

    def _run(self, layer: Layer) -> np.ndarray:
        scale = self._quants[layer.sources[0]].scale
        sources = [self.values[i] for i in layer.sources]
        return np.asarray(float_jax.apply(layer, float_jax.layer_parameters(layer, scale), sources))
