"""Decode steps of language models in plain JAX: one token, and a cache of keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_networks._network import Network, Size, example, normal

FRAMEWORK = "jax"


class _Sizes(NamedTuple):
    vocabulary: int
    length: int
    width: int
    heads: int
    groups: int
    """Heads of keys and values."""
    hidden: int
    depth: int
    choices: int


_DECODE = {
    "small": _Sizes(50, 8, 16, 2, 2, 32, 1, 1),
    "full": _Sizes(32000, 512, 512, 8, 8, 2048, 1, 1),
}
_GPT = {
    "small": _Sizes(50, 8, 16, 4, 2, 40, 2, 5),
    "full": _Sizes(32000, 1024, 768, 12, 4, 2048, 12, 40),
}


def _matrix(rng: np.random.Generator, inputs: int, outputs: int) -> jax.Array:
    return normal(rng, inputs, outputs, scale=inputs**-0.5)


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def decode_step(size: Size = "small") -> Network:
    """Writes keys and values at a traced position, attends to the past, takes the best token."""
    s = _DECODE[size]
    rng = np.random.default_rng(0)
    depth = s.width // s.heads
    params = {
        "embed": normal(rng, s.vocabulary, s.width),
        "positions": normal(rng, s.length, s.width, scale=0.1),
        "scale": jnp.asarray(rng.uniform(0.7, 1.3, s.width), jnp.float32),
        "bias": normal(rng, s.width, scale=0.1),
        "qkv": _matrix(rng, s.width, 3 * s.width),
        "out": _matrix(rng, s.width, s.width),
    }

    def step(params, token, position, keys, values):
        x = params["embed"][token] + params["positions"][position]
        y = _layer_norm(x, params["scale"], params["bias"])
        query, key, value = jnp.split(y @ params["qkv"], 3, axis=-1)
        place = (0, position, 0)
        keys = lax.dynamic_update_slice(keys, key.reshape(s.heads, 1, depth), place)
        values = lax.dynamic_update_slice(values, value.reshape(s.heads, 1, depth), place)
        scores = jnp.einsum("hd,hkd->hk", query.reshape(s.heads, depth), keys) * depth**-0.5
        past = jnp.arange(s.length) <= position
        weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1)
        x = x + jnp.einsum("hk,hkd->hd", weights, values).reshape(-1) @ params["out"]
        return jnp.argmax(x @ params["embed"].T), keys, values

    cache = (s.heads, s.length, depth)
    args = (jnp.int32(7), jnp.int32(s.length // 2), example(*cache), example(*cache, seed=1))
    return Network(
        "decode_step", FRAMEWORK, step, params, args, ("token", "position", "keys", "values")
    )


def _rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale


def _rotated(x: Any, position: Any) -> Any:
    """Turns pairs of channels by angles that grow with the position."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = position.astype(jnp.float32) * rates
    first, second = x[..., :half], x[..., half:]
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def _gpt_layer(rng: np.random.Generator, s: _Sizes) -> dict[str, jax.Array]:
    shared = s.groups * (s.width // s.heads)
    return {
        "norm1": jnp.asarray(rng.uniform(0.7, 1.3, s.width), jnp.float32),
        "query": _matrix(rng, s.width, s.width),
        "key": _matrix(rng, s.width, shared),
        "value": _matrix(rng, s.width, shared),
        "out": _matrix(rng, s.width, s.width),
        "norm2": jnp.asarray(rng.uniform(0.7, 1.3, s.width), jnp.float32),
        "gate": _matrix(rng, s.width, s.hidden),
        "up": _matrix(rng, s.width, s.hidden),
        "down": _matrix(rng, s.hidden, s.width),
    }


def _attend(layer: Any, x: Any, position: Any, cache: Any, s: _Sizes) -> tuple[Any, Any]:
    batch, depth = x.shape[0], s.width // s.heads
    query = _rotated((x @ layer["query"]).reshape(batch, s.heads, depth), position)
    key = _rotated((x @ layer["key"]).reshape(batch, 1, s.groups, depth), position)
    value = (x @ layer["value"]).reshape(batch, 1, s.groups, depth)
    keys = lax.dynamic_update_slice_in_dim(cache["keys"], key, position, axis=1)
    values = lax.dynamic_update_slice_in_dim(cache["values"], value, position, axis=1)
    query = query.reshape(batch, s.groups, -1, depth)
    scores = jnp.einsum("bghd,bkgd->bghk", query, keys) / jnp.sqrt(jnp.float32(depth))
    past = jnp.arange(s.length)[None, None, None, :] <= position
    scores = jnp.where(past, scores, jnp.finfo(jnp.float32).min)
    mixed = jnp.einsum("bghk,bkgd->bghd", jax.nn.softmax(scores), values)
    return mixed.reshape(batch, -1) @ layer["out"], {"keys": keys, "values": values}


def _sample(logits: Any, noise: Any, choices: int) -> Any:
    """Draws among the best tokens, by the largest sum of logit and Gumbel noise."""
    best, ids = lax.top_k(logits, choices)
    gumbel = -jnp.log(-jnp.log(noise))
    chosen = jnp.argmax(best / 0.8 + gumbel, axis=-1)
    return jnp.take_along_axis(ids, chosen[:, None], axis=-1)[:, 0]


def gpt_decode(size: Size = "small") -> Network:
    """Rotary positions, RMS norm, SwiGLU, shared keys, top-k sampling; full: 12 layers of 768."""
    s = _GPT[size]
    rng = np.random.default_rng(0)
    params = {
        "embed": normal(rng, s.vocabulary, s.width),
        "layers": [_gpt_layer(rng, s) for _ in range(s.depth)],
        "norm": jnp.asarray(rng.uniform(0.7, 1.3, s.width), jnp.float32),
        "head": _matrix(rng, s.width, s.vocabulary),
    }

    def step(params, token, position, caches, noise):
        x, kept = jnp.take(params["embed"], token, axis=0), []
        for layer, cache in zip(params["layers"], caches, strict=True):
            mixed, cache = _attend(layer, _rms_norm(x, layer["norm1"]), position, cache, s)
            kept.append(cache)
            x = x + mixed
            y = _rms_norm(x, layer["norm2"])
            x = x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
        logits = _rms_norm(x, params["norm"]) @ params["head"]
        return _sample(logits, noise, s.choices), kept

    shape = (1, s.length, s.groups, s.width // s.heads)
    caches = [
        {"keys": example(*shape, seed=i), "values": example(*shape, seed=100 + i)}
        for i in range(s.depth)
    ]
    noise = jnp.asarray(rng.uniform(0.01, 0.99, (1, s.choices)), jnp.float32)
    args = (jnp.array([7], jnp.int32), jnp.int32(s.length // 2), caches, noise)
    return Network(
        "gpt_decode", FRAMEWORK, step, params, args, ("token", "position", "caches", "noise")
    )
