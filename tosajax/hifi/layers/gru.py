"""The GRU layer (guide 4.1), one step at a time or over a sequence.

The gates r and z are sigmoid(W x + U h + b); the candidate g is tanh(W x + U (r h) + b), with the
reset gate applied before the product. The guide computes h = z g + (1 - z) h, the library
h = z h + (1 - z) g.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.hifi.errors import check_config
from tosajax.hifi.kernels import (
    ActivationCoefficients,
    _q15,
    interpolation_q15,
    sigmoid,
    tanh,
)
from tosajax.hifi.kernels._check import check_array, check_in, check_type
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.layers import _recurrent
from tosajax.hifi.layers._recurrent import Gates, RecurrentConfig
from tosajax.ops.recording import recorded_as, unrecorded

Update = Literal["library", "guide"]
UPDATES = ("library", "guide")
# The fields of each gate: matrix of the input, matrix of the state, bias. For g the state is r h.
ZR = (("w_z", "u_z", "b_z"), ("w_r", "u_r", "b_r"))
G = (("w_h", "u_h", "b_h"),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """The configuration of a GRU (xa_nnlib_gru_init_config_t).

    Args:
      in_feats: length of the input; a multiple of 4 within [4, 2048].
      out_feats: length of the output; a multiple of 4 within [4, 2048].
      pad: 1 if rows of matrices are padded in memory, else 0; values do not depend on it.
      mat_prec: bits of coefficients; ignored by the library.
      vec_prec: bits of input and output; ignored by the library.
      precision: a `Precision`, 16bx16b or 8bx16b.
      coeff_Qformat: fraction bits of the matrices, within [0, 15]; biases are always in Q15.
      io_Qformat: fraction bits of input and output, within [0, 15].

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.GRUConfig(in_feats=4, out_feats=8)
      >>> config.in_feats, config.out_feats, config.io_Qformat
      (4, 8, 12)
    """

    _layer = "GRU"


class GRUWeights(NamedTuple):
    """The matrices and biases of a GRU.

    Args:
      w_z: update gate, input matrix; [out_feats, in_feats], int16 or int8 by the precision.
      u_z: update gate, state matrix; [out_feats, out_feats], the type of `w_z`.
      w_r: reset gate, input matrix.
      u_r: reset gate, state matrix.
      w_h: candidate, input matrix.
      u_h: candidate, matrix of the reset state.
      b_z: update gate, bias; int16 in Q15, [out_feats].
      b_r: reset gate, bias.
      b_h: candidate, bias.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> weights.u_h.shape, weights.b_h.dtype
      ((4, 4), dtype('int16'))
    """

    w_z: Array
    u_z: Array
    w_r: Array
    u_r: Array
    w_h: Array
    u_h: Array
    b_z: Array
    b_r: Array
    b_h: Array


class GRUState(NamedTuple):
    """The state of a GRU between steps.

    Args:
      prev_h: the previous output, int16, [out_feats].

    Example:
      >>> from tosajax.hifi import layers
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> layers.gru_init(config).prev_h.tolist()
      [0, 0, 0, 0]
    """

    prev_h: Any


def gru_init(config: GRUConfig) -> GRUState:
    """Makes the initial state of a GRU: zeros.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.gru_init(layers.GRUConfig(in_feats=4, out_feats=4))
      GRUState(prev_h=Array([0, 0, 0, 0], dtype=int16))
    """
    check_type("gru_init", "config", config, GRUConfig)
    return GRUState(jnp.zeros(config.out_feats, jnp.int16))


@recorded_as("hifi.layers.gru_step", keeps_batches=True)
def gru_step(
    config: GRUConfig,
    weights: GRUWeights,
    state: GRUState,
    x: Array,
    *,
    update: Update = "library",
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[GRUState, jax.Array]:
    """Computes one output (xa_nnlib_gru_process, guide 4.1).

    Args:
      config: the configuration; static.
      weights: traced arrays, or constants.
      state: the state after the previous step.
      x: int16 in Q(io_Qformat), [in_feats].
      update: "library" for z h + (1 - z) g, or the guide's z g + (1 - z) h.
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
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> x = np.int16([1000, 2000, 3000, 4000])  # in Q12
      >>> step = jax.jit(layers.gru_step, static_argnums=0)
      >>> state, y = step(config, weights, layers.gru_init(config), x)
      >>> y.dtype, y.shape
      (dtype('int16'), (4,))
    """
    _check(config, weights, state)
    check_array("gru", "x", x, np.int16, (config.in_feats,))
    h = _step(config, update, activation, _prepare(weights), state.prev_h, x)
    return GRUState(h), h


@recorded_as("hifi.layers.gru_scan", keeps_batches=True)
def gru_scan(
    config: GRUConfig,
    weights: GRUWeights,
    state: GRUState,
    xs: Array,
    *,
    update: Update = "library",
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[GRUState, jax.Array]:
    """Computes the outputs of a sequence, with `gru_step` for each input.

    See `gru_step` for other arguments and errors.

    Args:
      state: the state before the first step.
      xs: int16 in Q(io_Qformat), [steps, in_feats].

    Returns:
      The last state, and the outputs: int16 in Q(io_Qformat), [steps, out_feats].

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 1000, np.int16) for size in sizes))
      >>> xs = np.ones((3, 4), np.int16)
      >>> state, ys = layers.gru_scan(config, weights, layers.gru_init(config), xs)
      >>> ys.shape
      (3, 4)
    """
    _check(config, weights, state)
    check_array("gru", "xs", xs, np.int16, (-1, config.in_feats))
    step = functools.partial(_step, config, update, activation, _prepare(weights))
    h, ys = _recurrent.scan_states(step, state.prev_h, xs)
    return GRUState(h), ys


def gates_of(weights: GRUWeights, names: tuple[tuple[str, str, str], ...]):
    """The matrices and biases of gates, for `_recurrent.stack`."""
    return [tuple(getattr(weights, field) for field in gate) for gate in names]


def mixed(update: str, h: jax.Array, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Orders state and candidate: z multiplies the first, 1 - z the second."""
    check_in("gru", "update", update, UPDATES)
    return (h, g) if update == "library" else (g, h)


def _check(config: GRUConfig, weights: GRUWeights, state: GRUState) -> None:
    check_config("GRU", GRUConfig, config)
    _recurrent.check_weights("gru", config, GRUWeights, weights, ZR + G)
    check_type("gru", "state", state, GRUState)
    check_array("gru", "prev_h", state.prev_h, np.int16, (config.out_feats,))


def _prepare(weights: GRUWeights) -> tuple[Gates, Gates]:
    exact = _recurrent.stack_exact
    return exact(gates_of(weights, ZR)), exact(gates_of(weights, G))


def _step(
    config: GRUConfig,
    update: str,
    activation: str | ActivationCoefficients,
    gates: tuple[Gates, Gates],
    h: Array,
    x: Array,
) -> jax.Array:
    of_zr, of_g = gates
    h = jnp.asarray(h)
    zr = sigmoid(_recurrent.pre_activation(config, of_zr, x, h), activation=activation)
    z, r = jnp.split(zr, 2)
    reset = _q15.multiply_floor(r, h).astype(jnp.int16)
    g = tanh(_recurrent.pre_activation(config, of_g, x, reset), activation=activation)
    g = g >> jnp.int16(15 - config.io_Qformat)
    return unrecorded(interpolation_q15)(z, *mixed(update, h, g))
