"""Networks in Equinox: modules of one example, batched by `vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jax_networks._network import Network, Size, example, normal, seeded

FRAMEWORK = "equinox"


def _partitioned(
    name: str, make: Callable[..., Any], config: tuple[Any, ...], x: jax.Array, argument: str
) -> Network:
    """The arrays of a module are its parameters; examples of `x` run side by side."""
    params, static = eqx.partition(_made(make, *config), eqx.is_array)

    def apply(arrays, batch):
        return jax.vmap(eqx.combine(arrays, static))(batch)

    return Network(name, FRAMEWORK, apply, params, (x,), (argument,))


def _made(make: Callable[..., Any], *config: Any) -> Any:
    """A module with seeded weights."""
    shapes = eqx.filter_eval_shape(make, *config, jax.random.key(0))
    shaped, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(seeded(shaped, outputs_first=True), rest)


def _keys(key: jax.Array, count: int) -> list[jax.Array]:
    return list(jax.random.split(key, count))


class _AttentionBlock(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.RMSNorm
    mlp: eqx.nn.MLP

    def __init__(self, width: int, heads: int, key: jax.Array):
        attention_key, mlp_key = jax.random.split(key)
        self.norm1 = eqx.nn.LayerNorm(width)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=attention_key)
        self.norm2 = eqx.nn.RMSNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=mlp_key)

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        x = x + self.attention(y, y, y, mask=mask)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


def equinox_attention(size: Size = "small") -> Network:
    """One block of causal attention, the module itself as the function; full: width 512."""
    width, heads, length = (16, 2, 6) if size == "small" else (512, 8, 128)
    block = _made(_AttentionBlock, width, heads)
    return Network(
        "equinox_attention", FRAMEWORK, block, None, (example(length, width),), ("sequence",)
    )


class _Gru(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, inputs: int, width: int, classes: int, key: jax.Array):
        cell_key, head_key = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(inputs, width, key=cell_key)
        self.head = eqx.nn.Linear(width, classes, key=head_key)

    def __call__(self, frames):
        def step(state, frame):
            return self.cell(frame, state), None

        state, _ = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), frames)
        return self.head(state)


def equinox_gru(size: Size = "small") -> Network:
    """A GRU cell in a scan; full: 100 frames of 40 features, width 256."""
    small = size == "small"
    config = (5, 12, 3) if small else (40, 256, 35)
    x = example(2, 6, 5) if small else example(1, 100, 40)
    return _partitioned("equinox_gru", _Gru, config, x, "frames")


class _ConvNextBlock(eqx.Module):
    filter: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    layer_scale: jax.Array

    def __init__(self, width: int, key: jax.Array):
        keys = _keys(key, 3)
        self.filter = eqx.nn.Conv2d(width, width, 7, padding=3, groups=width, key=keys[0])
        self.norm = eqx.nn.LayerNorm(width, eps=1e-6)
        self.up = eqx.nn.Linear(width, 4 * width, key=keys[1])
        self.down = eqx.nn.Linear(4 * width, width, key=keys[2])
        self.layer_scale = jnp.full((width,), 1e-6)

    def __call__(self, x):
        def pixel(y):
            return self.layer_scale * self.down(_exact_gelu(self.up(self.norm(y))))

        y = jnp.moveaxis(self.filter(x), 0, -1)
        return x + jnp.moveaxis(jax.vmap(jax.vmap(pixel))(y), -1, 0)


_exact_gelu = functools.partial(jax.nn.gelu, approximate=False)


def _channel_norm(norm: eqx.nn.LayerNorm, x: Any) -> Any:
    return jax.vmap(jax.vmap(norm, 1, 1), 1, 1)(x)


class _ConvNext(eqx.Module):
    reduce: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.LayerNorm]
    stages: list[list[_ConvNextBlock]]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...], classes: int, key: Any):
        keys = iter(_keys(key, len(widths) + sum(depths) + 1))
        inputs = (3, *widths)
        self.reduce = [
            eqx.nn.Conv2d(before, width, side, side, key=next(keys))
            for before, width, side in zip(inputs, widths, (4, 2, 2, 2), strict=False)
        ]
        # The stem normalizes after its convolution, the other stages before theirs.
        self.norms = [eqx.nn.LayerNorm(width) for width in (widths[0], *widths[:-1])]
        self.stages = [
            [_ConvNextBlock(width, next(keys)) for _ in range(depth)]
            for width, depth in zip(widths, depths, strict=True)
        ]
        self.norm = eqx.nn.LayerNorm(widths[-1])
        self.head = eqx.nn.Linear(widths[-1], classes, key=next(keys))

    def __call__(self, x):
        for i, (reduce, norm, blocks) in enumerate(
            zip(self.reduce, self.norms, self.stages, strict=True)
        ):
            x = reduce(_channel_norm(norm, x)) if i else _channel_norm(norm, reduce(x))
            for block in blocks:
                x = block(x)
        return self.head(self.norm(x.mean(axis=(1, 2))))


def convnext(size: Size = "small") -> Network:
    """Depthwise 7x7, layer norm, exact GELU, channels first; full: ConvNeXt-T at 224x224."""
    small = size == "small"
    config = ((8, 16), (1, 2), 10) if small else ((96, 192, 384, 768), (3, 3, 9, 3), 1000)
    side = 32 if small else 224
    return _partitioned("convnext", _ConvNext, config, example(1, 3, side, side), "images")


class _MixerBlock(eqx.Module):
    norm1: eqx.nn.LayerNorm
    tokens: eqx.nn.MLP
    norm2: eqx.nn.LayerNorm
    channels: eqx.nn.MLP

    def __init__(self, count: int, width: int, hidden: tuple[int, int], key: jax.Array):
        token_key, channel_key = jax.random.split(key)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.tokens = eqx.nn.MLP(count, count, hidden[0], 1, jax.nn.gelu, key=token_key)
        self.channels = eqx.nn.MLP(width, width, hidden[1], 1, jax.nn.gelu, key=channel_key)

    def __call__(self, x):
        x = x + jax.vmap(self.tokens, 1, 1)(jax.vmap(self.norm1)(x))
        return x + jax.vmap(self.channels)(jax.vmap(self.norm2)(x))


class _MixerSize(NamedTuple):
    side: int
    patch: int
    width: int
    hidden: tuple[int, int]
    depth: int
    classes: int


class _Mixer(eqx.Module):
    patches: eqx.nn.Conv2d
    blocks: list[_MixerBlock]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, size: _MixerSize, key: jax.Array):
        first, last, *keys = _keys(key, size.depth + 2)
        count = (size.side // size.patch) ** 2
        self.patches = eqx.nn.Conv2d(3, size.width, size.patch, size.patch, key=first)
        self.blocks = [_MixerBlock(count, size.width, size.hidden, k) for k in keys]
        self.norm = eqx.nn.LayerNorm(size.width)
        self.head = eqx.nn.Linear(size.width, size.classes, key=last)

    def __call__(self, image):
        patches = self.patches(image)
        x = patches.reshape(patches.shape[0], -1).T
        for block in self.blocks:
            x = block(x)
        return self.head(jax.vmap(self.norm)(x).mean(axis=0))


def mixer(size: Size = "small") -> Network:
    """MLPs over patches, then over channels; full: MLP-Mixer S/16 at 224x224."""
    small = size == "small"
    chosen = (
        _MixerSize(32, 8, 16, (8, 32), 2, 10)
        if small
        else _MixerSize(224, 16, 512, (256, 2048), 8, 1000)
    )
    x = example(2, 3, chosen.side, chosen.side)
    return _partitioned("mixer", _Mixer, (chosen,), x, "images")


class _Normed(eqx.Module):
    """Convolution and batch norm, which carries statistics as state."""

    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, key: jax.Array):
        self.conv = eqx.nn.Conv2d(
            inputs, outputs, kernel, stride, kernel // 2, use_bias=False, key=key
        )
        self.norm = eqx.nn.BatchNorm(outputs, axis_name="batch", mode="batch")

    def __call__(self, x, state):
        return self.norm(self.conv(x), state)


class _BasicBlock(eqx.Module):
    first: _Normed
    second: _Normed
    project: _Normed | None

    def __init__(self, inputs: int, outputs: int, stride: int, key: jax.Array):
        keys = _keys(key, 3)
        self.first = _Normed(inputs, outputs, 3, stride, keys[0])
        self.second = _Normed(outputs, outputs, 3, 1, keys[1])
        projects = stride > 1 or inputs != outputs
        self.project = _Normed(inputs, outputs, 1, stride, keys[2]) if projects else None

    def __call__(self, x, state):
        y, state = self.first(x, state)
        y, state = self.second(jax.nn.relu(y), state)
        if self.project is not None:
            x, state = self.project(x, state)
        return jax.nn.relu(x + y), state


class _ResNet18(eqx.Module):
    stem: _Normed
    pool: eqx.nn.MaxPool2d
    blocks: list[_BasicBlock]
    head: eqx.nn.Linear

    def __init__(self, widths: tuple[int, ...], depth: int, classes: int, key: jax.Array):
        first, last, *keys = _keys(key, 2 + depth * len(widths))
        self.stem = _Normed(3, widths[0], 7, 2, first)
        self.pool = eqx.nn.MaxPool2d(3, 2, 1)
        inputs, self.blocks = widths[0], []
        for i, block_key in enumerate(keys):
            stage, place = divmod(i, depth)
            stride = 2 if stage and not place else 1
            self.blocks.append(_BasicBlock(inputs, widths[stage], stride, block_key))
            inputs = widths[stage]
        self.head = eqx.nn.Linear(inputs, classes, key=last)

    def __call__(self, x, state):
        x, state = self.stem(x, state)
        x = self.pool(jax.nn.relu(x))
        for block in self.blocks:
            x, state = block(x, state)
        return self.head(x.mean(axis=(1, 2))), state


def _statistics(model: _ResNet18, state: eqx.nn.State) -> eqx.nn.State:
    """The state after 200 steps of training."""
    rng = np.random.default_rng(0)
    norms = jax.tree.leaves(model, is_leaf=lambda x: isinstance(x, eqx.nn.BatchNorm))
    for norm in norms:
        if isinstance(norm, eqx.nn.BatchNorm) and norm.batch_state_index and norm.batch_counter:
            mean = normal(rng, norm.input_size, scale=0.1)
            variance = jnp.asarray(rng.uniform(0.5, 2.0, norm.input_size), jnp.float32)
            state = state.set(norm.batch_state_index, (mean, variance))
            state = state.set(norm.batch_counter, jnp.asarray(200, jnp.int32))
    return state


def resnet18(size: Size = "small") -> Network:
    """Basic blocks, with module and state as parameters; full: ResNet-18 at 224x224."""
    small = size == "small"
    widths, classes = ((8, 16), 10) if small else ((64, 128, 256, 512), 1000)
    make = eqx.nn.make_with_state(_ResNet18)
    model, state = _made(make, widths, 1 if small else 2, classes)
    state = _statistics(model, state)
    arrays, static = eqx.partition(eqx.nn.inference_mode(model), eqx.is_array)

    def apply(params, images):
        weights, statistics = params
        batched = jax.vmap(
            eqx.combine(weights, static), in_axes=(0, None), out_axes=(0, None), axis_name="batch"
        )
        return batched(images, statistics)[0]

    side = 32 if small else 224
    params = (arrays, state)
    return Network("resnet18", FRAMEWORK, apply, params, (example(2, 3, side, side),), ("images",))


class _Autoencoder(eqx.Module):
    encode: list[eqx.nn.Conv2d]
    middle: eqx.nn.MLP
    decode: list[eqx.nn.ConvTranspose2d]
    side: int = eqx.field(static=True)

    def __init__(self, side: int, widths: tuple[int, ...], code: int, key: jax.Array):
        middle, *keys = _keys(key, 2 * len(widths) + 1)
        inputs, count = (3, *widths), len(widths)
        self.side = side >> count
        flat = self.side * self.side * widths[-1]
        self.encode = [
            eqx.nn.Conv2d(inputs[i], widths[i], 4, 2, 1, key=keys[i]) for i in range(count)
        ]
        self.middle = eqx.nn.MLP(flat, flat, code, 1, jax.nn.softplus, key=middle)
        self.decode = [
            eqx.nn.ConvTranspose2d(
                widths[i], inputs[i], 3, 2, output_padding=1, padding=1, key=keys[count + i]
            )
            for i in reversed(range(count))
        ]

    def __call__(self, x):
        for conv in self.encode:
            x = jax.nn.leaky_relu(conv(x))
        x = self.middle(x.reshape(-1)).reshape(-1, self.side, self.side)
        for conv in self.decode[:-1]:
            x = jax.nn.selu(conv(x))
        return jax.nn.sigmoid(self.decode[-1](x))


def autoencoder(size: Size = "small") -> Network:
    """Overlapping transposed convolutions, channels first; full: 128x128, 4 levels."""
    small = size == "small"
    side, widths, code = (16, (6, 10), 12) if small else (128, (32, 64, 128, 256), 256)
    x = example(2, 3, side, side)
    return _partitioned("autoencoder", _Autoencoder, (side, widths, code), x, "images")
