"""Training through fixed point: exact integer results with straight-through gradients.

`gru_scan_trainable` and `lstm_scan_trainable` take real weights and inputs. They quantize them, and
return exactly the outputs of `gru_scan` and `lstm_scan`. Their gradients are the gradients of
`gru_scan_float` and `lstm_scan_float` at the integers of each step, and 0 where an input, a weight,
an output or a cell saturates (the straight-through estimator).

For a kernel, quantize its operands, call it on their integers, and give its result the gradient of
the same function of real numbers:

    w, x = quantize(w, 7, np.int8), quantize(x, 12, np.int16)
    y = fully_connected(w.q, x.q, b.q, precision="8x16_16", acc_shift=-7, bias_shift=4)
    y = with_gradient_of(y, 12, real(w, 7) @ real(x, 12) + real(b, 15))
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.grad.estimators import clipped_ste
from tosajax.grad.qtensor import QTensor, follow, tie
from tosajax.hifi.errors import check_config, wrong_type
from tosajax.hifi.kernels import ActivationCoefficients
from tosajax.hifi.kernels._check import check_type, integer
from tosajax.hifi.layers import _float, _recurrent
from tosajax.hifi.layers._recurrent import BIAS_FRACTION, RecurrentConfig
from tosajax.hifi.layers.gru import GRUConfig, GRUState, GRUWeights, Update, gru_scan
from tosajax.hifi.layers.lstm import (
    CELL_FRACTION,
    LSTMConfig,
    LSTMState,
    LSTMWeights,
    lstm_states,
)

Weights = TypeVar("Weights", GRUWeights, LSTMWeights)


def quantize(x: Any, fraction: int, dtype: type) -> QTensor:
    """Quantizes real numbers to a Q format: rounded to nearest, ties to even, and saturated.

    Args:
      x: floats of any shape; integers and QTensors are not changed.
      fraction: the number of fraction bits.
      dtype: int8, int16 or int32.

    Returns:
      The integers, with the gradient of `x`, 0 where they saturate.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import training
      >>> training.quantize(np.float32([-2, 0.25, 0.5]), 15, np.int16).q.tolist()
      [-32768, 8192, 16384]
    """
    if isinstance(x, QTensor):
        return x
    fraction = integer("quantize", "fraction", fraction)
    if not any(dtype == allowed for allowed in (np.int8, np.int16, np.int32)):
        raise wrong_type("quantize", "dtype", dtype, "int8, int16 or int32")
    x = _array("quantize", "x", x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return QTensor.of(x)
    scaled = x.astype(jnp.float32) * jnp.float32(2.0**fraction)
    low, high = _range_of(dtype)
    # Rounding has no useful derivative; the gradient passes through `clipped_ste`.
    nearest = lax.round(lax.stop_gradient(scaled), lax.RoundingMethod.TO_NEAREST_EVEN)
    return QTensor(jnp.clip(nearest, low, high).astype(dtype), clipped_ste(scaled, low, high))


def real(x: QTensor, fraction: int) -> jax.Array:
    """Converts integers with `fraction` fraction bits to real numbers.

    Returns:
      float32, with the gradient of `x`.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import training
      >>> training.real(training.quantize(np.float32([-1, 0.25]), 15, np.int16), 15).tolist()
      [-1.0, 0.25]
    """
    check_type("real", "x", x, QTensor)
    return tie(x) * jnp.float32(2.0 ** -integer("real", "fraction", fraction))


def with_gradient_of(exact: Any, fraction: int, value: jax.Array) -> jax.Array:
    """Converts integers to real numbers, with the gradient of a float approximation.

    Args:
      exact: int8, int16 or int32 with `fraction` fraction bits.
      fraction: the number of fraction bits.
      value: float32, the shape of `exact`: the same values, computed in floats.

    Returns:
      float32: `exact` * 2**-fraction, with the gradient of `value`, 0 where `value` is outside the
      range of the integers.

    Example:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from tosajax.hifi import training
      >>> def rounded(x):
      ...     exact = jnp.round(x * 8).astype(jnp.int8)
      ...     return training.with_gradient_of(exact, 3, x)
      >>> [float(y) for y in jax.value_and_grad(rounded)(jnp.float32(0.3))]
      [0.25, 1.0]
    """
    exact, value = (_array("with_gradient_of", *at) for at in (("exact", exact), ("value", value)))
    unit = 2.0 ** -integer("with_gradient_of", "fraction", fraction)
    low, high = _range_of(exact.dtype)
    passed = clipped_ste(value, low * unit, high * unit)
    return follow(exact.astype(jnp.float32) * jnp.float32(unit), passed)


def quantize_weights(config: RecurrentConfig, weights: Weights) -> Weights:
    """Quantizes real weights: matrices to Q(coeff_Qformat), biases to Q15; saturated.

    Args:
      config: the layer's configuration.
      weights: GRUWeights or LSTMWeights of floats.

    Returns:
      GRUWeights or LSTMWeights of integers, for `gru_scan` or `lstm_scan`.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers, training
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> integers = training.quantize_weights(config, weights)
      >>> integers.w_z[0].tolist()
      [3277, 3277, 3277, 3277]
    """
    check_type("quantize_weights", "config", config, RecurrentConfig)
    if not isinstance(weights, GRUWeights | LSTMWeights):
        raise wrong_type("quantize_weights", "weights", weights, "GRUWeights or LSTMWeights")
    return _integers(_quantized(config, weights))


def gru_scan_trainable(
    config: GRUConfig,
    weights: GRUWeights,
    state: GRUState,
    xs: jax.Array,
    *,
    update: Update = "library",
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[GRUState, jax.Array]:
    """Computes `gru_scan` for real weights and inputs, which it quantizes.

    Args:
      config: the configuration; static.
      weights: floats.
      state: floats, integers, or the QTensors of a state that this function returned.
      xs: floats, [steps, in_feats].
      update: see `gru_step`.
      activation: see `gru_step`.

    Returns:
      The last state as QTensors, and the outputs as float32, [steps, out_feats].

    Raises:
      NNLibConfigError: the library rejects the configuration.
      NNLibParamError: an array has the wrong shape.
      TypeError: an argument has the wrong type.

    Gradients: the gradients of `gru_scan_float`.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers, training
      >>> config = layers.GRUConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 6 + [(4,)] * 3
      >>> weights = layers.GRUWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.gru_init(config)
      >>> xs = np.ones((3, 4), np.float32)
      >>> state, ys = training.gru_scan_trainable(config, weights, start, xs)
      >>> ys.dtype, ys.shape
      (dtype('float32'), (3, 4))
    """
    check_config("GRU", GRUConfig, config)
    check_type("gru_scan_trainable", "weights", weights, GRUWeights)
    check_type("gru_scan_trainable", "state", state, GRUState)
    fraction = config.io_Qformat
    quantized = _quantized(config, weights)
    x = quantize(_array("gru_scan_trainable", "xs", xs), fraction, np.int16)
    start = quantize(state.prev_h, fraction, np.int16)
    operands = _integers(quantized), GRUState(start.q), x.q
    exact, ys = gru_scan(config, *operands, update=update, activation=activation)
    gates = _float.gru_gates(_real_weights(config, quantized))

    def step(h: jax.Array, at: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = at
        return with_gradient_of(y, fraction, _float.gru_update(gates, update, h, x))

    h, outputs = _recurrent.scan_states(step, real(start, fraction), (real(x, fraction), ys))
    return GRUState(_qtensor(exact.prev_h, h, fraction)), outputs


def lstm_scan_trainable(
    config: LSTMConfig,
    weights: LSTMWeights,
    state: LSTMState,
    xs: jax.Array,
    *,
    activation: str | ActivationCoefficients = "fixed",
) -> tuple[LSTMState, jax.Array]:
    """Computes `lstm_scan` for real weights and inputs, which it quantizes.

    Args:
      config: the configuration; static. cell_Qformat must be 25: in other formats the derivative of
        tanh would be wrong.
      weights: floats.
      state: floats, integers, or the QTensors of a state that this function returned.
      xs: floats, [steps, in_feats].
      activation: see `lstm_step`.

    Returns:
      The last state as QTensors, and the outputs as float32, [steps, out_feats].

    Raises:
      NNLibConfigError: the library rejects the configuration.
      NNLibParamError: an array has the wrong shape.
      TypeError: an argument has the wrong type.
      ValueError: cell_Qformat is not 25.

    Gradients: the gradients of `lstm_scan_float`.

    Example:
      >>> import numpy as np
      >>> from tosajax.hifi import layers, training
      >>> config = layers.LSTMConfig(in_feats=4, out_feats=4)
      >>> sizes = [(4, 4)] * 8 + [(4,)] * 4
      >>> weights = layers.LSTMWeights(*(np.full(size, 0.1, np.float32) for size in sizes))
      >>> start = layers.lstm_init(config)
      >>> xs = np.ones((3, 4), np.float32)
      >>> state, ys = training.lstm_scan_trainable(config, weights, start, xs)
      >>> ys.dtype, ys.shape
      (dtype('float32'), (3, 4))
    """
    check_config("LSTM", LSTMConfig, config)
    check_type("lstm_scan_trainable", "weights", weights, LSTMWeights)
    check_type("lstm_scan_trainable", "state", state, LSTMState)
    if config.cell_Qformat != CELL_FRACTION:
        raise ValueError(f"cell_Qformat is {config.cell_Qformat}, expected {CELL_FRACTION}")
    fraction = config.io_Qformat
    quantized = _quantized(config, weights)
    x = quantize(_array("lstm_scan_trainable", "xs", xs), fraction, np.int16)
    h = quantize(state.prev_h, fraction, np.int16)
    c = quantize(state.prev_c, CELL_FRACTION, np.int32)
    operands = _integers(quantized), LSTMState(h.q, c.q), x.q
    last, states = lstm_states(config, *operands, activation=activation)
    gates = _float.lstm_gates(_real_weights(config, quantized))

    def step(state: tuple[jax.Array, jax.Array], at: tuple[jax.Array, LSTMState]):
        x, exact = at

        def cell(value: jax.Array) -> jax.Array:
            return with_gradient_of(exact.prev_c, CELL_FRACTION, value)

        h, c = _float.lstm_update(gates, state, x, cell=cell)
        return with_gradient_of(exact.prev_h, fraction, h), c

    start = real(h, fraction), real(c, CELL_FRACTION)
    (h, c), (outputs, _) = _recurrent.scan_states(step, start, (real(x, fraction), states))
    return LSTMState(
        _qtensor(last.prev_h, h, fraction), _qtensor(last.prev_c, c, CELL_FRACTION)
    ), outputs


def _quantized(config: RecurrentConfig, weights: Weights) -> Any:
    """Quantizes the weights to QTensors."""
    return _by_field(config, weights, quantize)


def _real_weights(config: RecurrentConfig, quantized: Any) -> Any:
    """Converts weights of QTensors to float32."""
    return _by_field(config, quantized, lambda t, fraction, _: real(t, fraction))


def _by_field(config: RecurrentConfig, weights: Any, function: Any) -> Any:
    """Calls `function(value, fraction, type)` for each matrix and bias."""
    matrix, bias = (config.coeff_Qformat, config.weight_type), (BIAS_FRACTION, np.int16)
    fields = weights._asdict().items()
    return type(weights)(
        *(function(value, *(bias if name.startswith("b_") else matrix)) for name, value in fields)
    )


def _qtensor(exact: Any, value: jax.Array, fraction: int) -> QTensor:
    """Makes a QTensor of integers with the gradient of their real numbers."""
    return QTensor(exact, value * jnp.float32(2.0**fraction))


def _integers(quantized: Any) -> Any:
    return type(quantized)(*(t.q for t in quantized))


def _array(function: str, argument: str, x: Any) -> Any:
    """Converts a number or nested lists to an array; arrays and QTensors are unchanged."""
    if isinstance(x, QTensor):
        return x
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError):
        raise wrong_type(function, argument, x, "an array of numbers") from None


def _range_of(dtype: np.dtype | type) -> tuple[float, float]:
    """The smallest and the largest integer of a type that float32 represents."""
    info = np.iinfo(dtype)
    return float(info.min), min(float(info.max), float(np.nextafter(np.float32(2.0**31), 0)))
