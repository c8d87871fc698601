"""Convolution networks in Flax linen."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from jax_networks._network import Network, Size, example
from jax_networks.linen_networks import linen_network

_norm = partial(nn.BatchNorm, use_running_average=True)


class _InvertedResidual(nn.Module):
    """Expands, filters each channel, projects."""

    expansion: int
    features: int
    stride: int

    @nn.compact
    def __call__(self, x):
        inputs, y = x.shape[-1], x
        hidden = inputs * self.expansion
        if self.expansion > 1:
            y = nn.relu6(_norm()(nn.Conv(hidden, (1, 1), use_bias=False)(y)))
        filtered = nn.Conv(
            hidden, (3, 3), strides=self.stride, feature_group_count=hidden, use_bias=False
        )(y)
        y = nn.relu6(_norm()(filtered))
        y = _norm()(nn.Conv(self.features, (1, 1), use_bias=False)(y))
        return x + y if self.stride == 1 and inputs == self.features else y


class _Stage(NamedTuple):
    expansion: int
    features: int
    repeats: int
    stride: int


_STAGES = {
    "small": (_Stage(1, 8, 1, 1), _Stage(6, 12, 2, 2)),
    "full": (
        _Stage(1, 16, 1, 1), _Stage(6, 24, 2, 2), _Stage(6, 32, 3, 2), _Stage(6, 64, 4, 2),
        _Stage(6, 96, 3, 1), _Stage(6, 160, 3, 2), _Stage(6, 320, 1, 1),
    ),
}  # fmt: skip


class _MobileNetV2(nn.Module):
    stem: int
    stages: tuple[_Stage, ...]
    head: int
    classes: int

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.stem, (3, 3), strides=2, use_bias=False, name="stem")(images)
        x = nn.relu6(_norm()(x))
        for stage in self.stages:
            for i in range(stage.repeats):
                stride = 1 if i else stage.stride
                x = _InvertedResidual(stage.expansion, stage.features, stride)(x)
        x = nn.relu6(_norm()(nn.Conv(self.head, (1, 1), use_bias=False, name="head")(x)))
        return nn.Dense(self.classes, name="classes")(x.mean(axis=(1, 2)))


def mobilenet_v2(size: Size = "small") -> Network:
    """Inverted residuals with relu6; full: MobileNetV2 at 224x224."""
    small = size == "small"
    stem, head, classes = (8, 32, 10) if small else (32, 1280, 1000)
    model = _MobileNetV2(stem, _STAGES[size], head, classes)
    side = 32 if small else 224
    return linen_network("mobilenet_v2", model, example(1, side, side, 3), "images")


class _Double(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(_norm()(nn.Conv(self.features, (3, 3), use_bias=False)(x)))
        return x


class _UNet(nn.Module):
    widths: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, images):
        x, skips = images, []
        for width in self.widths[:-1]:
            skips.append(_Double(width)(x))
            x = nn.max_pool(skips[-1], (2, 2), strides=(2, 2))
        x = _Double(self.widths[-1])(x)
        for width, skip in zip(self.widths[-2::-1], reversed(skips), strict=True):
            x = nn.ConvTranspose(width, (2, 2), strides=(2, 2))(x)
            x = _Double(width)(jnp.concatenate([skip, x], axis=-1))
        return nn.Conv(self.classes, (1, 1), name="classes")(x)


def unet(size: Size = "small") -> Network:
    """A U-Net with transposed convolutions; full: 64 to 1024 channels at 256x256."""
    small = size == "small"
    model = _UNet((8, 16, 24), 2) if small else _UNet((64, 128, 256, 512, 1024), 2)
    side = 32 if small else 256
    return linen_network("unet", model, example(1, side, side, 1), "images")


class _WaveNet(nn.Module):
    width: int
    skip: int
    dilations: tuple[int, ...]
    levels: int

    @nn.compact
    def __call__(self, x):
        conv = partial(nn.Conv, padding="CAUSAL")
        x, skips = conv(self.width, (2,), name="stem")(x), 0.0
        for dilation in self.dilations:
            hidden = conv(2 * self.width, (2,), kernel_dilation=dilation)(x)
            filtered, gate = jnp.split(hidden, 2, axis=-1)
            hidden = jnp.tanh(filtered) * nn.sigmoid(gate)
            x = x + nn.Conv(self.width, (1,))(hidden)
            skips = skips + nn.Conv(self.skip, (1,))(hidden)
        x = nn.relu(nn.Conv(self.skip, (1,))(nn.relu(skips)))
        return nn.log_softmax(nn.Conv(self.levels, (1,))(x))


def wavenet(size: Size = "small") -> Network:
    """Dilated causal convolutions along time; full: 30 layers, 4096 samples, 256 levels."""
    small = size == "small"
    if small:
        model, x = _WaveNet(8, 12, (1, 2, 4, 8), 16), example(1, 40, 1)
    else:
        model = _WaveNet(64, 256, tuple(2**i for i in range(10)) * 3, 256)
        x = example(1, 4096, 1)
    return linen_network("wavenet", model, x, "samples")


class _Segmenter(nn.Module):
    """Strided, then dilated convolutions; pyramid of rates; resized to the image."""

    widths: tuple[int, ...]
    rates: tuple[int, ...]
    classes: int

    @nn.compact
    def __call__(self, images):
        fine = x = self._halved(images, self.widths[0])
        for width in self.widths[1:]:
            x = self._halved(x, width)
        pyramid = [nn.Conv(x.shape[-1], (3, 3), kernel_dilation=rate)(x) for rate in self.rates]
        pooled = nn.Conv(x.shape[-1], (1, 1))(x.mean(axis=(1, 2), keepdims=True))
        pyramid.append(jax.image.resize(pooled, x.shape, "nearest"))
        x = nn.relu(nn.Conv(x.shape[-1], (1, 1))(jnp.concatenate(pyramid, axis=-1)))
        x = _resized(x, fine, "nearest")
        x = nn.relu(nn.Conv(self.widths[0], (3, 3))(jnp.concatenate([x, fine], axis=-1)))
        scores = _resized(nn.Conv(self.classes, (1, 1))(x), images, "bilinear")
        return scores, jnp.argmax(scores, axis=-1)

    def _halved(self, x: Any, width: int) -> Any:
        return nn.silu(nn.GroupNorm(4)(nn.Conv(width, (3, 3), strides=2)(x)))


def _resized(x: Any, like: Any, method: str) -> Any:
    return jax.image.resize(x, (*like.shape[:3], x.shape[-1]), method)


def segmentation(size: Size = "small") -> Network:
    """Dilated pyramid, group norm and `jax.image.resize`; full: 513x513 with 21 classes."""
    small = size == "small"
    model = (
        _Segmenter((8, 16), (1, 2), 5) if small
        else _Segmenter((64, 128, 256, 512), (1, 6, 12, 18), 21)
    )  # fmt: skip
    side = 33 if small else 513
    return linen_network("segmentation", model, example(1, side, side, 3), "images")
