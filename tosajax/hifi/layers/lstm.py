"""The LSTM layer (guide 4.2), one step at a time or over a sequence.

The gates f, i and o are sigmoid(W x + U h + b), the candidate g is tanh(W x + U h + b). The next
cell is c = f c + i g, the output h = o tanh(c). Gates do not read the cell (no peepholes).
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.hifi.errors import check_config
from tosajax.hifi.kernels import ActivationCoefficients, _narrow, _q15, _q31, sigmoid, tanh
from tosajax.hifi.kernels._check import check_array, check_type
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.layers import _recurrent
from tosajax.hifi.layers._recurrent import Gates, RecurrentConfig
from tosajax.ops.recording import is_recording, recorded_as

# The fields of each gate: matrix of the input, matrix of the state, bias. The candidate is last.
GATES = (
    ("w_xf", "w_hf", "b_f"),
    ("w_xi", "w_hi", "b_i"),
    ("w_xo", "w_ho", "b_o"),
    ("w_xc", "w_hc", "b_c"),
)
CELL_FRACTION = 25


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    """The configuration of an LSTM (xa_nnlib_lstm_init_config_t).

    It has the fields of `GRUConfig`, and cell_Qformat.

    Args:
      cell_Qformat: fraction bits of the cell, within [0, 25]. Values other than 25 cause a warning,
        because tanh always reads the cell in Q6.25.

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=8)
      >>> config.in_feats, config.out_feats, config.cell_Qformat
      (4, 8, 25)
    """

    _layer = "LSTM"
    _formats: ClassVar[Mapping[str, int]] = {
        "coeff_Qformat": 15,
        "cell_Qformat": CELL_FRACTION,
        "io_Qformat": 15,
    }

    cell_Qformat: int = CELL_FRACTION

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cell_Qformat != CELL_FRACTION:
            problem = f"cell_Qformat is {self.cell_Qformat}"
            warnings.warn(f"{problem}, but tanh reads the cell in Q6.25 all the same", stacklevel=3)


class LSTMWeights(NamedTuple):
    """The matrices and biases of an LSTM.

    Args:
      w_xf: forget gate, input matrix; [out_feats, in_feats], int16 or int8 by the precision.
      w_xi: input gate, input matrix.
      w_xc: candidate, input matrix.
      w_xo: output gate, input matrix.
      w_hf: forget gate, state matrix; [out_feats, out_feats], the type of `w_xf`.
      w_hi: input gate, state matrix.
      w_hc: candidate, state matrix.
      w_ho: output gate, state matrix.
      b_f: forget gate, bias; int16 in Q15, [out_feats].
      b_i: input gate, bias.
      b_c: candidate, bias.
      b_o: output gate, bias.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> weights.w_hf.shape, weights.b_o.dtype
      ((4, 4), dtype('int16'))
    """

    w_xf: Array
    w_xi: Array
    w_xc: Array
    w_xo: Array
    w_hf: Array
    w_hi: Array
    w_hc: Array
    w_ho: Array
    b_f: Array
    b_i: Array
    b_c: Array
    b_o: Array


class LSTMState(NamedTuple):
    """The state of an LSTM between steps.

    Args:
      prev_h: the previous output, int16 in Q(io_Qformat), [out_feats].
      prev_c: the previous cell, int32 in Q(cell_Qformat), [out_feats].

    Example:
      >>> from tosajax.hifi import layers
      >>> state = layers.lstm_init(layers.LSTMConfig(in_feats=4, out_feats=4))
      >>> state.prev_h.dtype, state.prev_c.dtype
      (dtype('int16'), dtype('int32'))
    """

    prev_h: Any
    prev_c: Any


def lstm_init(config: LSTMConfig) -> LSTMState:
    """Makes the initial state of an LSTM: zeros.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.lstm_init(layers.LSTMConfig(in_feats=4, out_feats=4)).prev_c.tolist()
      [0, 0, 0, 0]
    """
    check_type("lstm_init", "config", config, LSTMConfig)
    length = config.out_feats
    return LSTMState(jnp.zeros(length, jnp.int16), jnp.zeros(length, jnp.int32))


@recorded_as("hifi.layers.lstm_step", keeps_batches=True)
def lstm_step(
    config: LSTMConfig,
    weights: LSTMWeights,
    state: LSTMState,
    x: Array,
    *,
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[LSTMState, jax.Array]:
    """Computes one output (xa_nnlib_lstm_process, guide 4.2).

    Args:
      config: the configuration; static.
      weights: traced arrays, or constants.
      state: the state after the previous step.
      x: int16 in Q(io_Qformat), [in_feats].
      activation: the method of computing sigmoid and tanh; see `kernels.activations`.

    Returns:
      The next state, and the output: int16 in Q(io_Qformat), [out_feats].

    Raises:
      NNLibConfigError: the library rejects the configuration.
      NNLibParamError: an array has the wrong shape.
      TypeError: an argument has the wrong type.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> x = np.int16([1000, 2000, 3000, 4000])  # in Q12
      >>> step = jax.jit(layers.lstm_step, static_argnums=0)
      >>> state, y = step(config, weights, layers.lstm_init(config), x)
      >>> y.dtype, y.shape
      (dtype('int16'), (4,))
    """
    _check(config, weights, state)
    check_array("lstm", "x", x, np.int16, (config.in_feats,))
    state = _step(config, activation, _prepare(weights), state, x)
    return state, state.prev_h


@recorded_as("hifi.layers.lstm_scan", keeps_batches=True)
def lstm_scan(
    config: LSTMConfig,
    weights: LSTMWeights,
    state: LSTMState,
    xs: Array,
    *,
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[LSTMState, jax.Array]:
    """Computes the outputs of a sequence, with `lstm_step` for each input.

    See `lstm_step` for other arguments and errors.

    Args:
      state: the state before the first step.
      xs: int16 in Q(io_Qformat), [steps, in_feats].

    Returns:
      The last state, and the outputs: int16 in Q(io_Qformat), [steps, out_feats].

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> xs = np.ones((3, 4), np.int16)
      >>> state, ys = layers.lstm_scan(config, weights, layers.lstm_init(config), xs)
      >>> ys.shape
      (3, 4)
    """
    last, states = lstm_states(config, weights, state, xs, activation=activation)
    return last, states.prev_h


def lstm_states(
    config: LSTMConfig,
    weights: LSTMWeights,
    state: LSTMState,
    xs: Array,
    *,
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[LSTMState, LSTMState]:
    """Computes `lstm_scan`; returns the last state, and all states, [steps, ...].

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> xs = np.ones((3, 4), np.int16)
      >>> last, states = layers.lstm_states(config, weights, layers.lstm_init(config), xs)
      >>> states.prev_c.shape
      (3, 4)
    """
    _check(config, weights, state)
    check_array("lstm", "xs", xs, np.int16, (-1, config.in_feats))
    step = functools.partial(_step, config, activation, _prepare(weights))
    return _recurrent.scan_states(step, state, xs)


def gates_of(weights: LSTMWeights):
    """The matrices and biases of all gates, for `_recurrent.stack`."""
    return [tuple(getattr(weights, field) for field in gate) for gate in GATES]


def _check(config: LSTMConfig, weights: LSTMWeights, state: LSTMState) -> None:
    check_config("LSTM", LSTMConfig, config)
    _recurrent.check_weights("lstm", config, LSTMWeights, weights, GATES)
    check_type("lstm", "state", state, LSTMState)
    check_array("lstm", "prev_h", state.prev_h, np.int16, (config.out_feats,))
    check_array("lstm", "prev_c", state.prev_c, np.int32, (config.out_feats,))


def _prepare(weights: LSTMWeights) -> Gates:
    return _recurrent.stack_exact(gates_of(weights))


def _step(
    config: LSTMConfig,
    activation: str | ActivationCoefficients,
    gates: Gates,
    state: LSTMState,
    x: Array,
) -> LSTMState:
    h, c = map(jnp.asarray, state)
    total = _recurrent.pre_activation(config, gates, x, h)
    length = config.out_feats
    fio = sigmoid(total[: 3 * length], activation=activation).astype(jnp.int32)
    candidate = tanh(total[3 * length :], activation=activation).astype(jnp.int32)
    f, i, o = jnp.split(fio, 3)
    old = _q31.multiply_half_away(c, f << 16)
    # Twice the product saturates if both are -1, which unusual coefficients of sigmoid can cause.
    new = 2 * jnp.minimum(i * candidate, (1 << 30) - 1) >> (31 - config.cell_Qformat)
    c = _saturating_add(old, new)
    squashed = tanh(c, activation=activation).astype(jnp.int32)
    h = _q15.multiply_floor(o, squashed) >> (15 - config.io_Qformat)
    return LSTMState(lax.convert_element_type(h, np.int16), c)


def _saturating_add(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes a + b in int32, saturated.

    The final select keeps XLA from computing the result twice for its two users: it would duplicate
    a plain sum, and with it the three activations on which the cell depends.
    """
    if is_recording():
        return _narrow.saturating_add(a, b)
    total = a + b
    overflows = ((a ^ total) & (b ^ total)) < 0
    limit = (a >> 31) ^ jnp.int32(np.iinfo(np.int32).max)
    return lax.select(overflows, limit, total)
