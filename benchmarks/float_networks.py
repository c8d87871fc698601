"""Float networks for generated images of 64x64x3, with random weights: TOSA graphs of one image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.layers import same_padding
from benchmarks.tosa_float import gelu, shift, softmax, zero
from tosajax import Builder, DType, Graph, Node, Tensor

FP32 = DType.FP32
# Expansion, channels and stride of each block.
_BLOCKS = ((1, 16, 1), (4, 24, 2), (4, 24, 1), (4, 32, 2), (4, 32, 1), (4, 48, 2), (4, 48, 1))


def mobilenet(
    seed: int = 0,
    *,
    size: int = 64,
    classes: int = 10,
    blocks: Sequence[tuple[int, int, int]] = _BLOCKS,
    last: int = 128,
) -> Graph:
    """Like MobileNetV2: inverted residuals and ReLU6. Every convolution but "scores" wants a norm.

    Args:
      seed: of the weights.
      size: of images.
      classes: of the scores.
      blocks: expansion, channels and stride of each.
      last: channels before the mean over the image.
    """
    n = _Layers("mobilenet", seed, size)
    x = n.clamp(n.conv(n.image, 16, 3, 2, name="stem"))
    for number, (expansion, channels, stride) in enumerate(blocks):
        x = _inverted_residual(n, x, expansion, channels, stride, f"block{number}")
    x = n.clamp(n.conv(x, last, name="last"))
    return n.graph(n.conv(n.average(x), classes, name="scores", gain=1))


def transformer(
    seed: int = 0,
    *,
    size: int = 64,
    classes: int = 10,
    blocks: int = 6,
    width: int = 64,
    heads: int = 4,
) -> Graph:
    """A vision transformer; the hidden layer of a block is twice as wide.

    Three convolutions of stride 2 make the tokens: with patches of 8x8 pixels, some thousand images
    teach it little.

    Args:
      seed: of the weights.
      size: of images.
      classes: of the scores.
      blocks: each of attention and a perceptron.
      width: of tokens.
      heads: of attention.
    """
    n = _Layers("transformer", seed, size)
    x = n.clamp(n.conv(n.image, width // 4, 3, 2, name="stem"))
    x = n.clamp(n.conv(x, width // 2, 3, 2, name="halved"))
    x = n.conv(x, width, 3, 2, name="tokens", gain=1)
    x = n.op("ADD", x, n.random(n.shape(x), 0.3, "positions"), name="embedded")
    for number in range(blocks):
        name = f"block{number}"
        attended = _attend(n, n.layer_norm(x, f"{name}/norm1"), heads, f"{name}/attention")
        x = n.op("ADD", x, attended, name=f"{name}/stream1")
        hidden = n.conv(n.layer_norm(x, f"{name}/norm2"), 2 * width, name=f"{name}/hidden")
        mixed = n.conv(gelu(n.b, hidden, f"{name}/gelu"), width, name=f"{name}/mixed", gain=0.5)
        x = n.op("ADD", x, mixed, name=f"{name}/stream2")
    x = n.average(n.layer_norm(x, "norm"))
    return n.graph(n.conv(x, classes, name="scores", gain=1))


def multiplications(graph: Graph) -> int:
    """Of the convolutions and products of one image."""
    return sum(_multiplications(graph, node) for node in graph.nodes)


def _multiplications(graph: Graph, node: Node) -> int:
    taps = {"CONV2D": slice(1, 4), "DEPTHWISE_CONV2D": slice(0, 2), "MATMUL": slice(1, 2)}
    if node.op not in taps:
        return 0
    right, out = (graph.tensors[name].shape or () for name in (node.inputs[1], node.outputs[0]))
    return math.prod(out) * math.prod(right[taps[node.op]])


def _inverted_residual(
    n: _Layers, x: Tensor, expansion: int, channels: int, stride: int, name: str
) -> Tensor:
    """A wide depthwise convolution between two 1x1 ones, added to x where shapes agree."""
    before = n.shape(x)[3]
    y = x
    if expansion > 1:
        y = n.clamp(n.conv(y, expansion * before, name=f"{name}/expand"))
    y = n.clamp(n.depthwise(y, stride, name=f"{name}/depthwise"))
    y = n.conv(y, channels, name=f"{name}/project", gain=1)
    return n.op("ADD", x, y, name=f"{name}/sum") if (stride, before) == (1, channels) else y


def _attend(n: _Layers, x: Tensor, heads: int, name: str) -> Tensor:
    """Attention of all tokens to all; [1, H, W, C]."""
    _, height, wide, width = shape = n.shape(x)
    length, depth = height * wide, width // heads
    found = []
    for kind, order in (("query", (1, 0, 2)), ("key", (1, 2, 0)), ("value", (1, 0, 2))):
        gain = 1 / depth if kind == "query" else 1
        y = n.conv(x, width, name=f"{name}/{kind}", gain=gain)
        y = n.reshape(y, (length, heads, depth))
        found.append(n.op("TRANSPOSE", y, perms=order))
    query, key, value = found
    similarity = n.matmul(query, key, name=f"{name}/similarity")
    y = n.matmul(softmax(n.b, similarity, f"{name}/shares"), value, name=f"{name}/weighted")
    y = n.reshape(n.op("TRANSPOSE", y, perms=(1, 0, 2)), shape)
    return n.conv(y, width, name=f"{name}/out", gain=0.5)


class _Layers:
    """A Builder with random weights and the layers that the networks share."""

    def __init__(self, name: str, seed: int, size: int) -> None:
        self.b = Builder(name)
        self.op = self.b.op
        self.image = self.b.input("image", FP32, (1, size, size, 3))
        self._rng = np.random.default_rng(seed)

    def graph(self, scores: Tensor) -> Graph:
        return self.b.graph([self.reshape(scores, (1, self.shape(scores)[3]))])

    def shape(self, x: Tensor) -> tuple[int, ...]:
        assert x.shape is not None
        return x.shape

    def random(self, shape: tuple[int, ...], deviation: float, name: str) -> Tensor:
        return self.b.const(self._rng.normal(0, deviation, shape), FP32, name=name)

    def conv(
        self,
        x: Tensor,
        channels: int,
        size: int = 1,
        stride: int = 1,
        *,
        name: str,
        gain: float = 2,
    ) -> Tensor:
        """A convolution; `gain` is the ratio of its variance to that of x."""
        return self._conv("CONV2D", x, (channels, size, size, self.shape(x)[3]), stride, name, gain)

    def depthwise(self, x: Tensor, stride: int, *, name: str) -> Tensor:
        return self._conv("DEPTHWISE_CONV2D", x, (3, 3, self.shape(x)[3], 1), stride, name, 2)

    def _conv(
        self, op: str, x: Tensor, shape: tuple[int, ...], stride: int, name: str, gain: float
    ) -> Tensor:
        is_depthwise = op == "DEPTHWISE_CONV2D"
        channels, kernel = (shape[2], shape[0]) if is_depthwise else (shape[0], shape[1])
        before, after = same_padding(self.shape(x)[1], kernel, stride)
        # TOSA forbids rows at the end that no window reads.
        after -= (self.shape(x)[1] + before + after - kernel) % stride
        deviation = math.sqrt(gain * channels / math.prod(shape))
        return self.op(
            op,
            x,
            self.random(shape, deviation, f"{name}/weight"),
            self.b.const(np.zeros(channels), FP32, name=f"{name}/bias"),
            zero(self.b),
            zero(self.b),
            pad=(before, after) * 2,
            stride=(stride, stride),
            dilation=(1, 1),
            acc_type=FP32,
            name=name,
        )

    def clamp(self, x: Tensor) -> Tensor:
        """ReLU6."""
        low, high = np.float32(0), np.float32(6)
        return self.op("CLAMP", x, min_val=low, max_val=high, name=f"{x.name}/relu6")

    def average(self, x: Tensor) -> Tensor:
        """The mean over the image."""
        kernel = self.shape(x)[1:3]
        zeros = zero(self.b), zero(self.b)
        return self.op(
            "AVG_POOL2D", x, *zeros, kernel=kernel, stride=(1, 1), pad=(0,) * 4, acc_type=FP32
        )

    def matmul(self, x: Tensor, y: Tensor, *, name: str) -> Tensor:
        return self.op("MATMUL", x, y, zero(self.b), zero(self.b), dtype=FP32, name=name)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.op("RESHAPE", x, self.b.const_shape(shape))

    def layer_norm(self, x: Tensor, name: str) -> Tensor:
        """Each token less its mean, over its deviation; the layer that follows has gains."""
        centred = self.op("SUB", x, self._mean(x, f"{name}/mean"), name=f"{name}/centred")
        variance = self._mean(self._times(centred, centred, f"{name}/square"), f"{name}/variance")
        small = self.b.const(np.full((1,) * len(self.shape(x)), 1e-5), FP32)
        inverse = self.op("RSQRT", self.op("ADD", variance, small), name=f"{name}/inverse")
        return self._times(centred, inverse, f"{name}/normed")

    def _mean(self, x: Tensor, name: str) -> Tensor:
        axis = len(self.shape(x)) - 1
        share = self.b.const(np.full((1,) * (axis + 1), 1 / self.shape(x)[axis]), FP32)
        return self._times(self.op("REDUCE_SUM", x, axis=axis), share, name)

    def _times(self, x: Tensor, y: Tensor, name: str) -> Tensor:
        return self.op("MUL", x, y, shift(self.b), name=name)
