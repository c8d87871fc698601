"""Networks in Flax nnx: graph definition and state, split and merged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jax_networks._network import Network, Size, example, seeded

FRAMEWORK = "flax.nnx"


def _network(name: str, make: Callable[..., nnx.Module], x: jax.Array) -> Network:
    model = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
    model.eval()
    definition, state = nnx.split(model)

    def apply(params, images):
        return nnx.merge(definition, params)(images)

    return Network(name, FRAMEWORK, apply, seeded(state), (x,), ("images",))


class _Cnn(nnx.Module):
    """Dropout keeps a random key and a counter among the state."""

    def __init__(self, side: int, classes: int, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(16, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, (3, 3), strides=2, padding="VALID", rngs=rngs)
        self.norm2 = nnx.BatchNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        pixels = (((side // 2 - 3) // 2 + 1) // 2) ** 2
        self.hidden = nnx.Linear(32 * pixels, 64, rngs=rngs)
        self.head = nnx.Linear(64, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm1(self.conv1(x))), (2, 2), strides=(2, 2))
        x = nnx.avg_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), strides=(2, 2))
        x = nnx.relu(self.hidden(self.dropout(x.reshape(x.shape[0], -1))))
        return nnx.log_softmax(self.head(x))


def flax_cnn(size: Size = "small") -> Network:
    """Convolutions, batch norm, both pools and dropout; full: a batch of 8 at 64x64."""
    side, batch = (16, 2) if size == "small" else (64, 8)
    return _network("flax_cnn", partial(_Cnn, side, 10), example(batch, side, side, 3))


class _Normed(nnx.Module):
    """Convolution and batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1,
                 *, rngs: nnx.Rngs):  # fmt: skip
        side = (kernel, kernel)
        self.conv = nnx.Conv(
            inputs, outputs, side, stride, feature_group_count=groups, use_bias=False, rngs=rngs
        )
        self.norm = nnx.BatchNorm(outputs, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.conv(x))


class _Bottleneck(nnx.Module):
    def __init__(self, inputs: int, width: int, stride: int, *, rngs: nnx.Rngs):
        normed = partial(_Normed, rngs=rngs)
        self.reduce = normed(inputs, width, 1)
        self.filter = normed(width, width, 3, stride)
        self.expand = normed(width, 4 * width, 1)
        projects = stride > 1 or inputs != 4 * width
        self.project = normed(inputs, 4 * width, 1, stride) if projects else None

    def __call__(self, x):
        y = nnx.relu(self.reduce(x))
        y = self.expand(nnx.relu(self.filter(y)))
        return nnx.relu(y + (x if self.project is None else self.project(x)))


class _ResNet50(nnx.Module):
    def __init__(self, width: int, depths: tuple[int, ...], classes: int, *, rngs: nnx.Rngs):
        self.stem = _Normed(3, width, 7, 2, rngs=rngs)
        inputs, blocks = width, []
        for stage, depth in enumerate(depths):
            for i in range(depth):
                stride = 2 if stage and not i else 1
                blocks.append(_Bottleneck(inputs, width << stage, stride, rngs=rngs))
                inputs = 4 * (width << stage)
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=(1, 2)))


def resnet50(size: Size = "small") -> Network:
    """Bottleneck blocks; full: ResNet-50 at 224x224."""
    small = size == "small"
    width, depths, classes = (8, (1, 2), 10) if small else (64, (3, 4, 6, 3), 1000)
    make = partial(_ResNet50, width, depths, classes)
    side = 32 if small else 224
    return _network("resnet50", make, example(1, side, side, 3))


class _Stage(NamedTuple):
    expansion: int
    features: int
    repeats: int
    stride: int
    kernel: int


_STAGES = {
    "small": (_Stage(1, 8, 1, 1, 3), _Stage(6, 12, 2, 2, 5)),
    "full": (
        _Stage(1, 16, 1, 1, 3), _Stage(6, 24, 2, 2, 3), _Stage(6, 40, 2, 2, 5),
        _Stage(6, 80, 3, 2, 3), _Stage(6, 112, 3, 1, 5), _Stage(6, 192, 4, 2, 5),
        _Stage(6, 320, 1, 1, 3),
    ),
}  # fmt: skip


class _MbConv(nnx.Module):
    """An inverted residual with swish, and a gate from the mean of each channel."""

    def __init__(self, inputs: int, stage: _Stage, stride: int, *, rngs: nnx.Rngs):
        normed, hidden = partial(_Normed, rngs=rngs), inputs * stage.expansion
        self.expand = normed(inputs, hidden, 1) if stage.expansion > 1 else None
        self.filter = normed(hidden, hidden, stage.kernel, stride, hidden)
        squeezed = max(1, inputs // 4)
        self.squeeze = nnx.Conv(hidden, squeezed, (1, 1), rngs=rngs)
        self.excite = nnx.Conv(squeezed, hidden, (1, 1), rngs=rngs)
        self.project = normed(hidden, stage.features, 1)
        self.residual = stride == 1 and inputs == stage.features

    def __call__(self, x):
        y = x if self.expand is None else nnx.swish(self.expand(x))
        y = nnx.swish(self.filter(y))
        gate = nnx.swish(self.squeeze(y.mean(axis=(1, 2), keepdims=True)))
        y = self.project(y * nnx.sigmoid(self.excite(gate)))
        return x + y if self.residual else y


class _EfficientNet(nnx.Module):
    def __init__(self, stem: int, stages: tuple[_Stage, ...], head: int, classes: int,
                 *, rngs: nnx.Rngs):  # fmt: skip
        self.stem = _Normed(3, stem, 3, 2, rngs=rngs)
        inputs, blocks = stem, []
        for stage in stages:
            for i in range(stage.repeats):
                blocks.append(_MbConv(inputs, stage, 1 if i else stage.stride, rngs=rngs))
                inputs = stage.features
        self.blocks = nnx.List(blocks)
        self.head = _Normed(inputs, head, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.classes = nnx.Linear(head, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.swish(self.stem(x))
        for block in self.blocks:
            x = block(x)
        x = nnx.swish(self.head(x)).mean(axis=(1, 2))
        return nnx.softmax(self.classes(self.dropout(x)))


def efficientnet_b0(size: Size = "small") -> Network:
    """Inverted residuals with swish and gates; full: EfficientNet-B0 at 224x224."""
    small = size == "small"
    stem, head, classes = (8, 32, 10) if small else (32, 1280, 1000)
    make = partial(_EfficientNet, stem, _STAGES[size], head, classes)
    side = 32 if small else 224
    return _network("efficientnet_b0", make, example(1, side, side, 3))


class _Block(nnx.Module):
    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x)), approximate=False))


class _Vit(nnx.Module):
    def __init__(self, side: int, patch: int, width: int, depth: int, heads: int, classes: int,
                 *, rngs: nnx.Rngs):  # fmt: skip
        self.patches = nnx.Conv(3, width, (patch, patch), strides=patch, padding="VALID", rngs=rngs)
        init, count = nnx.initializers.normal(0.02), (side // patch) ** 2 + 1
        self.class_token = nnx.Param(init(rngs.params(), (1, 1, width)))
        self.positions = nnx.Param(init(rngs.params(), (1, count, width)))
        self.blocks = nnx.List([_Block(width, heads, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, images):
        x: Any = self.patches(images)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        first = jnp.broadcast_to(self.class_token[...], (x.shape[0], 1, x.shape[-1]))
        x = jnp.concatenate([first, x], axis=1) + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vit(size: Size = "small") -> Network:
    """A vision transformer with a class token; full: ViT-B/16 at 224x224."""
    small = size == "small"
    side, *rest = (32, 8, 32, 2, 4, 10) if small else (224, 16, 768, 12, 12, 1000)
    return _network("vit", partial(_Vit, side, *rest), example(1, side, side, 3))
