"""The recurrent layers in floats: the library's equations without rounding.

Weights, state and inputs are real numbers of one float type, with the same shapes as in `gru` and
`lstm`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.hifi.kernels._check import check_real, check_type
from tosajax.hifi.layers import _recurrent, gru, lstm
from tosajax.hifi.layers._recurrent import Gates
from tosajax.hifi.layers.gru import GRUState, GRUWeights, Update
from tosajax.hifi.layers.lstm import LSTMState, LSTMWeights


def gru_step_float(
    weights: GRUWeights, state: GRUState, x: jax.Array, *, update: Update = "library"
) -> tuple[GRUState, jax.Array]:
    """Computes `gru_step` in floats; shapes, `update` and results are the same.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.GRUState(np.zeros(4, np.float32))
      >>> state, y = layers.gru_step_float(weights, start, np.ones(4, np.float32))
      >>> y.dtype, y.shape
      (dtype('float32'), (4,))
    """
    _check("gru_step_float", (weights, GRUWeights), (state, GRUState), x=x)
    h = gru_update(gru_gates(weights), update, state.prev_h, x)
    return GRUState(h), h


def gru_scan_float(
    weights: GRUWeights, state: GRUState, xs: jax.Array, *, update: Update = "library"
) -> tuple[GRUState, jax.Array]:
    """Computes `gru_scan` in floats; shapes, `update` and results are the same.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.GRUState(np.zeros(4, np.float32))
      >>> state, ys = layers.gru_scan_float(weights, start, np.ones((3, 4), np.float32))
      >>> ys.shape
      (3, 4)
    """
    _check("gru_scan_float", (weights, GRUWeights), (state, GRUState), xs=xs)
    step = functools.partial(gru_update, gru_gates(weights), update)
    h, ys = _recurrent.scan_states(step, state.prev_h, xs)
    return GRUState(h), ys


def lstm_step_float(
    weights: LSTMWeights, state: LSTMState, x: jax.Array
) -> tuple[LSTMState, jax.Array]:
    """Computes `lstm_step` in floats; shapes and results are the same.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.LSTMState(np.zeros(4, np.float32), np.zeros(4, np.float32))
      >>> state, y = layers.lstm_step_float(weights, start, np.ones(4, np.float32))
      >>> y.dtype, y.shape
      (dtype('float32'), (4,))
    """
    _check("lstm_step_float", (weights, LSTMWeights), (state, LSTMState), x=x)
    h, c = lstm_update(lstm_gates(weights), (state.prev_h, state.prev_c), x)
    return LSTMState(h, c), h


def lstm_scan_float(
    weights: LSTMWeights, state: LSTMState, xs: jax.Array
) -> tuple[LSTMState, jax.Array]:
    """Computes `lstm_scan` in floats; shapes and results are the same.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.LSTMState(np.zeros(4, np.float32), np.zeros(4, np.float32))
      >>> state, ys = layers.lstm_scan_float(weights, start, np.ones((3, 4), np.float32))
      >>> ys.shape
      (3, 4)
    """
    _check("lstm_scan_float", (weights, LSTMWeights), (state, LSTMState), xs=xs)
    step = functools.partial(lstm_update, lstm_gates(weights))
    start = state.prev_h, state.prev_c
    (h, c), (ys, _) = _recurrent.scan_states(step, start, xs)
    return LSTMState(h, c), ys


def gru_gates(weights: GRUWeights) -> tuple[Gates, Gates]:
    """Joins the gates z and r, and the candidate g, for `gru_update`."""
    return (
        _recurrent.stack(gru.gates_of(weights, gru.ZR)),
        _recurrent.stack(gru.gates_of(weights, gru.G)),
    )


def gru_update(gates: tuple[Gates, Gates], update: str, h: jax.Array, x: jax.Array) -> jax.Array:
    """Computes the next state of a GRU."""
    of_zr, of_g = gates
    z, r = jnp.split(lax.logistic(_sums(of_zr, x, h)), 2)
    g = lax.tanh(_sums(of_g, x, r * h))
    old, new = gru.mixed(update, h, g)
    return z * old + (1 - z) * new


def lstm_gates(weights: LSTMWeights) -> Gates:
    """Joins all gates, for `lstm_update`."""
    return _recurrent.stack(lstm.gates_of(weights))


def lstm_update(
    gates: Gates,
    state: tuple[Any, Any],
    x: jax.Array,
    *,
    cell: Callable[[jax.Array], jax.Array] = lambda c: c,
) -> tuple[jax.Array, jax.Array]:
    """Computes the next output and cell of an LSTM; `cell` maps the cell before tanh reads it."""
    h, c = state
    *sigmoids, of_candidate = jnp.split(_sums(gates, x, h), 4)
    f, i, o = (lax.logistic(total) for total in sigmoids)
    c = cell(f * c + i * lax.tanh(of_candidate))
    return o * lax.tanh(c), c


def _check(function: str, weights: Any, state: Any, **inputs: Any) -> None:
    """Checks weights and state, pairs of a value and its class, and that all arrays are floats."""
    for name, (value, kind) in (("weights", weights), ("state", state)):
        check_type(function, name, value, kind)
    for name, value in weights[0]._asdict().items():
        check_real(function, name, value, 1 if name.startswith("b_") else 2)
    for name, value in state[0]._asdict().items():
        check_real(function, name, value, 1)
    for name, value in inputs.items():
        check_real(function, name, value, 2 if name == "xs" else 1)


def _sums(gates: Gates, x: jax.Array, h: Any) -> jax.Array:
    joined = jnp.concatenate([x, h])
    products = lax.dot_general(
        joined,
        gates.matrix,
        (((0,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=joined.dtype,
    )
    return products + gates.bias
