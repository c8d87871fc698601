"""Recurrent networks, a linear recurrence and a mixture of experts in plain JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_networks._network import Network, Size, example, normal

FRAMEWORK = "jax"


def _cell(rng: np.random.Generator, inputs: int, width: int, gates: int) -> dict[str, jax.Array]:
    return {
        "input": normal(rng, inputs, gates * width, scale=inputs**-0.5),
        "state": normal(rng, width, gates * width, scale=width**-0.5),
        "bias": normal(rng, gates * width, scale=0.1),
    }


def _gru_step(cell: Any, state: Any, frame: Any) -> Any:
    from_input = jnp.split(frame @ cell["input"] + cell["bias"], 3, axis=-1)
    from_state = jnp.split(state @ cell["state"], 3, axis=-1)
    update = jax.nn.sigmoid(from_input[0] + from_state[0])
    reset = jax.nn.sigmoid(from_input[1] + from_state[1])
    candidate = jnp.tanh(from_input[2] + reset * from_state[2])
    return update * state + (1 - update) * candidate


def gru_scan(size: Size = "small") -> Network:
    """A GRU that scans over time and returns every state; full: 50 frames, width 256."""
    length, inputs, width = (6, 5, 12) if size == "small" else (50, 40, 256)
    rng = np.random.default_rng(0)
    params = {
        "cell": _cell(rng, inputs, width, 3),
        "head": normal(rng, width, 4, scale=width**-0.5),
    }

    def run(params, frames, state):
        def step(state, frame):
            state = _gru_step(params["cell"], state, frame)
            return state, state @ params["head"]

        last, scores = lax.scan(step, state, jnp.swapaxes(frames, 0, 1))
        return jnp.swapaxes(scores, 0, 1), last

    args = (example(2, length, inputs), example(2, width, seed=1))
    return Network("gru_scan", FRAMEWORK, run, params, args, ("frames", "state"))


def _lstm_step(cell: Any, state: tuple[Any, Any], frame: Any) -> tuple[Any, Any]:
    hidden, memory = state
    gates = frame @ cell["input"] + hidden @ cell["state"] + cell["bias"]
    enter, forget, update, leave = jnp.split(gates, 4, axis=-1)
    memory = jax.nn.sigmoid(forget + 1.0) * memory + jax.nn.sigmoid(enter) * jnp.tanh(update)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


def lstm_scan(size: Size = "small") -> Network:
    """LSTMs forwards and backwards in time; full: 50 frames, width 256."""
    length, inputs, width = (6, 5, 12) if size == "small" else (50, 40, 256)
    rng = np.random.default_rng(0)
    params = {
        "forwards": _cell(rng, inputs, width, 4),
        "backwards": _cell(rng, inputs, width, 4),
        "head": normal(rng, 2 * width, 4, scale=width**-0.5),
    }

    def states(cell, frames, reverse):
        def step(state, frame):
            state = _lstm_step(cell, state, frame)
            return state, state[0]

        zero = jnp.zeros((frames.shape[1], width))
        return lax.scan(step, (zero, zero), frames, reverse=reverse)[1]

    def run(params, frames):
        frames = jnp.swapaxes(frames, 0, 1)
        forwards = states(params["forwards"], frames, False)
        backwards = states(params["backwards"], frames, True)
        return jnp.concatenate([forwards, backwards], axis=-1).mean(axis=0) @ params["head"]

    return Network("lstm_scan", FRAMEWORK, run, params, (example(2, length, inputs),), ("frames",))


def _scanned(decay: Any, x: Any) -> Any:
    """h[t] = decay[t] * h[t - 1] + x[t], along axis 1."""

    def joined(earlier, later):
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    return lax.associative_scan(joined, (decay, x), axis=1)[1]


def _linear_attention(query: Any, key: Any, value: Any) -> Any:
    """Causal attention with positive features in place of softmax: cumulative sums."""
    query, key = jax.nn.elu(query) + 1, jax.nn.elu(key) + 1
    products = jnp.cumsum(key[..., :, None] * value[..., None, :], axis=1)
    total = jnp.cumsum(key, axis=1)
    mixed = jnp.einsum("btk,btkv->btv", query, products)
    return mixed / jnp.einsum("btk,btk->bt", query, total)[..., None]


def linear_recurrence(size: Size = "small") -> Network:
    """A selective state space by `associative_scan`, and linear attention by `cumsum`.

    Full: 256 steps, width 128, 16 states.
    """
    length, width, states = (7, 6, 4) if size == "small" else (256, 128, 16)
    rng = np.random.default_rng(0)
    params = {
        "step": normal(rng, width, width, scale=width**-0.5),
        "step_bias": normal(rng, width),
        "log_rate": jnp.log(jnp.tile(jnp.arange(1.0, states + 1), (width, 1))),
        "write": normal(rng, width, states, scale=width**-0.5),
        "read": normal(rng, width, states, scale=width**-0.5),
        "skip": normal(rng, width),
        "qkv": normal(rng, width, 2 * states + width, scale=width**-0.5),
    }

    def run(params, x):
        step = jax.nn.softplus(x @ params["step"] + params["step_bias"])
        decay = jnp.exp(-step[..., None] * jnp.exp(params["log_rate"]))
        written = (step * x)[..., None] * (x @ params["write"])[:, :, None, :]
        hidden = _scanned(decay, written)
        y = jnp.einsum("btds,bts->btd", hidden, x @ params["read"]) + params["skip"] * x
        query, key, value = jnp.split(y @ params["qkv"], (states, 2 * states), axis=-1)
        return y + _linear_attention(query, key, value)

    x = example(1, length, width)
    return Network("linear_recurrence", FRAMEWORK, run, params, (x,), ("sequence",))


def _dispatch(gates: Any, experts: int, capacity: int) -> tuple[Any, Any]:
    """Who computes which token: [T, E, C] of 0 and 1, and of weights."""
    weights, chosen = lax.top_k(gates, 2)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    mask = jax.nn.one_hot(chosen, experts, dtype=jnp.int32)
    # First choices of all tokens take their places before second choices.
    by_choice = jnp.swapaxes(mask, 0, 1).reshape(-1, experts)
    place = (jnp.cumsum(by_choice, axis=0) * by_choice - 1).max(axis=-1)
    place = jnp.swapaxes(place.reshape(2, -1), 0, 1)
    slots = jax.nn.one_hot(place, capacity, dtype=jnp.float32)
    sent = mask.astype(jnp.float32)[..., None] * slots[:, :, None, :]
    return sent.sum(axis=1), (sent * weights[:, :, None, None]).sum(axis=1)


def mixture_of_experts(size: Size = "small") -> Network:
    """Softmax gate, two experts for each token, limited capacity; full: 8 experts of 768."""
    small = size == "small"
    count, width, hidden, experts = (12, 8, 16, 4) if small else (256, 768, 3072, 8)
    capacity = count * 2 // experts
    rng = np.random.default_rng(0)
    params = {
        "gate": normal(rng, width, experts, scale=width**-0.5),
        "up": normal(rng, experts, width, hidden, scale=width**-0.5),
        "down": normal(rng, experts, hidden, width, scale=hidden**-0.5),
    }

    def run(params, x):
        gates = jax.nn.softmax(x @ params["gate"])
        dispatch, combine = _dispatch(gates, experts, capacity)
        inside = jnp.einsum("tec,td->ecd", dispatch, x)
        inside = jax.nn.relu(jnp.einsum("ecd,edf->ecf", inside, params["up"]))
        inside = jnp.einsum("ecf,efd->ecd", inside, params["down"])
        return x + jnp.einsum("tec,ecd->td", combine, inside)

    x = example(count, width)
    return Network("mixture_of_experts", FRAMEWORK, run, params, (x,), ("tokens",))
