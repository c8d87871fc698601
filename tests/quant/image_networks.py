"""Small networks of images with random weights, for tests of single passes."""

from __future__ import annotations

import numpy as np

from tosajax import Builder, DType, Graph


class Images:
    """A network of images: a first convolution, something between, and a last convolution."""

    def __init__(self) -> None:
        self.b = Builder()
        self.rng = np.random.default_rng(4)
        self.zero = self.const("zero", np.zeros(1))
        self.shift = self.b.const([0], DType.INT8)
        self.input = self.b.input("x", DType.FP32, (1, 6, 6, 3))

    def const(self, name: str, values: np.ndarray):
        return self.b.const(values, DType.FP32, name=name)

    def random(self, name: str, *shape: int):
        return self.const(name, self.rng.normal(0, 1, shape))

    def conv(self, x, name: str, channels: int = 4, bias=None, factors=(1.0,)):
        """A convolution whose channels are multiplied by factors."""
        by_channel = np.reshape(factors, (-1, 1, 1, 1))
        if bias is None:
            bias = self.const(f"{name}/b", self.rng.normal(0, 1, channels) * np.ravel(factors))
        shape = channels, 3, 3, x.shape[-1]
        w = self.const(f"{name}/w", self.rng.normal(0, 1, shape) * by_channel)
        return self.b.op(
            "CONV2D", x, w, bias, self.zero, self.zero, pad=(1, 1, 1, 1), stride=(1, 1),
            dilation=(1, 1), acc_type=DType.FP32, name=name,
        )  # fmt: skip

    def depthwise(self, x, name: str, multiplier: int = 1, factors=(1.0,), bias=None, weight=None):
        """A depthwise convolution whose input's channels are multiplied by factors."""
        bias = self.random(f"{name}/b", x.shape[-1] * multiplier) if bias is None else bias
        shape = 3, 3, x.shape[-1], multiplier
        by_channel = np.reshape(factors, (1, 1, -1, 1))
        w = weight
        if w is None:
            w = self.const(f"{name}/w", self.rng.normal(0, 1, shape) * by_channel)
        return self.b.op(
            "DEPTHWISE_CONV2D", x, w, bias, self.zero, self.zero, pad=(1, 1, 1, 1),
            stride=(1, 1), dilation=(1, 1), acc_type=DType.FP32, name=name,
        )  # fmt: skip

    def mul(self, x, y):
        return self.b.op("MUL", x, y, self.shift)

    def relu(self, x, least: float = 0.0, most: float = float(np.finfo(np.float32).max), name=None):
        low, high = np.float32(least), np.float32(most)
        return self.b.op("CLAMP", x, min_val=low, max_val=high, name=name)

    def network(self, between) -> Graph:
        y = between(self, self.conv(self.input, "first"))
        return self.b.graph([self.conv(y, "last", 2)])
