"""Networks in plain JAX that decide at run time what they compute."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_networks._network import Network, Size, example, normal

FRAMEWORK = "jax"


def generate(size: Size = "small") -> Network:
    """Writes tokens in a `while_loop` until the end token; full: 64 tokens, width 256."""
    vocabulary, width, length = (20, 12, 8) if size == "small" else (1000, 256, 64)
    end = 0
    rng = np.random.default_rng(0)
    params = {
        "embed": normal(rng, vocabulary, width),
        "state": normal(rng, width, width, scale=width**-0.5),
        "bias": normal(rng, width, scale=0.1),
    }

    def run(params, first, state):
        def goes_on(carry):
            ids, position, _ = carry
            return jnp.logical_and(position < length, ids[position - 1] != end)

        def write(carry):
            ids, position, state = carry
            token = params["embed"][ids[position - 1]]
            state = jnp.tanh(token + state @ params["state"] + params["bias"])
            best = jnp.argmax(params["embed"] @ state)
            return ids.at[position].set(best), position + 1, state

        ids = jnp.full((length,), end).at[0].set(first)
        ids, position, _ = lax.while_loop(goes_on, write, (ids, jnp.int32(1), state))
        return ids, position

    args = (jnp.int32(7), example(width))
    return Network("generate", FRAMEWORK, run, params, args, ("first", "state"))


def early_exit(size: Size = "small") -> Network:
    """Computes deep layers by `cond` only when unsure, and balances scores by `fori_loop`.

    Full: 20 layers of 512.
    """
    width, depth, classes = (8, 3, 4) if size == "small" else (512, 20, 100)
    rng = np.random.default_rng(0)
    params = {
        "layers": [normal(rng, width, width, scale=(2 / width) ** 0.5) for _ in range(depth)],
        "early": normal(rng, width, classes, scale=width**-0.5),
        "late": normal(rng, width, classes, scale=width**-0.5),
    }

    def balanced(scores):
        """Rows and columns that sum to 1, by turns (Sinkhorn)."""

        def turn(_, p):
            p = p / p.sum(axis=0, keepdims=True)
            return p / p.sum(axis=1, keepdims=True)

        return lax.fori_loop(0, 3, turn, jnp.exp(scores - scores.max()))

    def run(params, x):
        def deep(x):
            for weight in params["layers"]:
                x = x + jax.nn.relu(x @ weight)
            return x @ params["late"]

        early = jax.nn.softmax(x @ params["early"])
        sure = early.max(axis=-1).min() > 0.9
        return balanced(lax.cond(sure, lambda x: x @ params["early"], deep, x)), sure

    return Network("early_exit", FRAMEWORK, run, params, (example(4, width),), ("features",))
