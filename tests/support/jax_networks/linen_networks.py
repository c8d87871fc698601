"""Transformers and recurrent networks in Flax linen."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jax_networks._network import Network, Size, example, seeded, tokens

FRAMEWORK = "flax.linen"


def linen_network(name: str, module: nn.Module, x: jax.Array, argument: str) -> Network:
    """A linen module with seeded variables; `apply` takes them first."""
    params = seeded(jax.eval_shape(module.init, jax.random.key(0), x))
    return Network(name, FRAMEWORK, module.apply, params, (x,), (argument,))


class _Block(nn.Module):
    """A transformer block that normalizes before each branch."""

    heads: int
    dtype: Any = None

    @nn.compact
    def __call__(self, x, mask=None):
        width, dtype = x.shape[-1], self.dtype
        y = nn.LayerNorm(dtype=dtype, name="norm1")(x)
        attention = nn.MultiHeadDotProductAttention(self.heads, dtype=dtype, name="attention")
        x = x + attention(y, mask=mask)
        y = nn.LayerNorm(dtype=dtype, name="norm2")(x)
        hidden = nn.gelu(nn.Dense(4 * width, dtype=dtype, name="up")(y))
        return x + nn.Dense(width, dtype=dtype, name="down")(hidden)


class _Vit(nn.Module):
    patch: int
    width: int
    depth: int
    heads: int
    classes: int
    dtype: Any = None

    @nn.compact
    def __call__(self, images):
        patch, dtype = (self.patch, self.patch), self.dtype
        x = nn.Conv(self.width, patch, strides=patch, padding="VALID", dtype=dtype, name="patches")(
            images
        )
        x = x.reshape(x.shape[0], -1, self.width)
        positions = self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        x = x + positions.astype(x.dtype)
        for i in range(self.depth):
            x = _Block(self.heads, dtype, name=f"block{i}")(x)
        x = nn.LayerNorm(dtype=dtype, name="norm")(x).mean(axis=1)
        return nn.Dense(self.classes, name="head")(x)


def flax_vit(size: Size = "small") -> Network:
    """A vision transformer with mean pooling; full: ViT-Ti/16 at 224x224."""
    return _vit("flax_vit", size, None)


def flax_vit_bfloat16(size: Size = "small") -> Network:
    """The same computed in bfloat16, from float32 parameters and images."""
    return _vit("flax_vit_bfloat16", size, jnp.bfloat16)


def _vit(name: str, size: Size, dtype: Any) -> Network:
    config = (8, 32, 2, 4, 10) if size == "small" else (16, 192, 12, 3, 1000)
    side = 32 if size == "small" else 224
    return linen_network(name, _Vit(*config, dtype), example(1, side, side, 3), "images")


class _LanguageModel(nn.Module):
    vocabulary: int
    width: int
    depth: int
    heads: int

    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(self.vocabulary, self.width, name="embed")
        positions = nn.Embed(ids.shape[1], self.width, name="positions")
        x = embed(ids) + positions(jnp.arange(ids.shape[1]))
        mask = nn.make_causal_mask(ids)
        for i in range(self.depth):
            x = _Block(self.heads, name=f"block{i}")(x, mask)
        return embed.attend(nn.LayerNorm(name="norm")(x))


def flax_language_model(size: Size = "small") -> Network:
    """A causal language model with tied embeddings; full: the size of GPT-2, 128 tokens."""
    small = size == "small"
    model = _LanguageModel(97, 32, 2, 4) if small else _LanguageModel(50257, 768, 12, 12)
    ids = tokens(model.vocabulary, 1, 12 if small else 128)
    return linen_network("flax_language_model", model, ids, "ids")


class _Recurrent(nn.Module):
    width: int
    classes: int

    @nn.compact
    def __call__(self, x):
        gru = nn.RNN(nn.GRUCell(self.width), name="gru")
        states: Any = nn.RNN(nn.OptimizedLSTMCell(self.width), name="lstm")(cast(Any, gru(x)))
        return nn.Dense(self.classes, name="head")(states[:, -1])


def flax_recurrent(size: Size = "small") -> Network:
    """A GRU and an LSTM, each a scan; full: 100 frames of 40 features, width 256."""
    small = size == "small"
    model = _Recurrent(16, 5) if small else _Recurrent(256, 35)
    x = example(2, 6, 8) if small else example(1, 100, 40)
    return linen_network("flax_recurrent", model, x, "frames")


class _SwinSize(NamedTuple):
    side: int
    window: int
    width: int
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    classes: int


_SWIN = {
    "small": _SwinSize(32, 4, 16, (2, 2), (2, 4), 10),
    "full": _SwinSize(224, 7, 96, (2, 2, 6, 2), (3, 6, 12, 24), 1000),
}


def _windows(x: Any, window: int) -> Any:
    """[N, H, W, C] as [N, windows, window**2, C]."""
    n, height, width, channels = x.shape
    x = x.reshape(n, height // window, window, width // window, window, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, window * window, channels)


def _image(x: Any, window: int, height: int, width: int) -> Any:
    """Undoes `_windows`."""
    n, channels = x.shape[0], x.shape[-1]
    x = x.reshape(n, height // window, width // window, window, window, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(n, height, width, channels)


def _relative_positions(window: int) -> np.ndarray:
    """The row of the bias table for each pair of pixels in a window."""
    grid = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij"))
    pixels = grid.reshape(2, -1)
    rows, columns = pixels[:, :, None] - pixels[:, None, :] + window - 1
    return rows * (2 * window - 1) + columns


def _shift_mask(height: int, width: int, window: int, shift: int) -> np.ndarray:
    """Which pairs of a shifted window were neighbours before the roll: [windows, 1, P, P]."""

    def regions(side: int) -> np.ndarray:
        return np.digitize(np.arange(side), [side - window, side - shift])

    regions_2d = 3 * regions(height)[:, None] + regions(width)[None, :]
    parts = np.asarray(_windows(regions_2d[None, :, :, None], window))[0, :, :, 0]
    return (parts[:, None, :, None] == parts[:, None, None, :]).astype(bool)


class _WindowAttention(nn.Module):
    heads: int
    window: int
    shift: int

    @nn.compact
    def __call__(self, x):
        height, width, channels = x.shape[1:]
        if self.shift:
            x = jnp.roll(x, (-self.shift, -self.shift), axis=(1, 2))
        parts = _windows(x, self.window)
        qkv = nn.DenseGeneral((3, self.heads, channels // self.heads), name="qkv")(parts)
        query, key, value = jnp.moveaxis(qkv, -3, 0)
        scores = jnp.einsum("nwphc,nwqhc->nwhpq", query, key) / np.sqrt(channels // self.heads)
        scores = scores + self._bias()
        if self.shift:
            near = _shift_mask(height, width, self.window, self.shift)
            scores = jnp.where(near, scores, -1e9)
        mixed = jnp.einsum("nwhpq,nwqhc->nwphc", nn.softmax(scores), value)
        out = nn.DenseGeneral(channels, axis=(-2, -1), name="out")(mixed)
        out = _image(out, self.window, height, width)
        return jnp.roll(out, (self.shift, self.shift), axis=(1, 2)) if self.shift else out

    def _bias(self) -> Any:
        rows = (2 * self.window - 1) ** 2
        table = self.param("relative", nn.initializers.normal(0.02), (rows, self.heads))
        return jnp.transpose(table[_relative_positions(self.window)], (2, 0, 1))


class _SwinBlock(nn.Module):
    heads: int
    window: int
    shift: int

    @nn.compact
    def __call__(self, x):
        attention = _WindowAttention(self.heads, self.window, self.shift, name="attention")
        x = x + attention(nn.LayerNorm(name="norm1")(x))
        hidden = nn.Dense(4 * x.shape[-1], name="up")(nn.LayerNorm(name="norm2")(x))
        return x + nn.Dense(x.shape[-1], name="down")(nn.gelu(hidden, approximate=False))


def _merge(x: Any) -> Any:
    """Each 2x2 pixels side by side in one."""
    quarters = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
    return jnp.concatenate(quarters, axis=-1)


class _Swin(nn.Module):
    size: _SwinSize

    @nn.compact
    def __call__(self, images):
        x = nn.Conv(self.size.width, (4, 4), strides=4, padding="VALID", name="patches")(images)
        x = nn.LayerNorm(name="norm")(x)
        for stage, (depth, heads) in enumerate(zip(self.size.depths, self.size.heads, strict=True)):
            if stage:
                x = nn.LayerNorm(name=f"norm{stage}")(_merge(x))
                x = nn.Dense(x.shape[-1] // 2, use_bias=False, name=f"merge{stage}")(x)
            window = min(self.size.window, x.shape[1])
            for i in range(depth):
                # One window covers the whole of a small stage: nothing to shift.
                shift = window // 2 if i % 2 and window < x.shape[1] else 0
                x = _SwinBlock(heads, window, shift, name=f"block{stage}_{i}")(x)
        x = nn.LayerNorm(name="norm_out")(x).mean(axis=(1, 2))
        return nn.Dense(self.size.classes, name="head")(x)


def swin(size: Size = "small") -> Network:
    """Attention in shifted windows; full: Swin-T at 224x224."""
    chosen = _SWIN[size]
    return linen_network("swin", _Swin(chosen), example(1, chosen.side, chosen.side, 3), "images")
