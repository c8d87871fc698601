"""Activation functions (TOSA 1.0.1, "Activation Functions")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from tosajax.ops.elementwise_binary import maximum, minimum
from tosajax.ops.elementwise_unary import in_float32
from tosajax.ops.recording import recorded
from tosajax.spec.enums import NanMode


@recorded
def clamp(
    input: jax.Array,
    *,
    min_val: ArrayLike,
    max_val: ArrayLike,
    nan_mode: NanMode = NanMode.PROPAGATE,
) -> jax.Array:
    """Limits every value to [min_val, max_val] (TOSA 1.0.1, "CLAMP").

    Args:
      input: int8, int16, float32, float16 or bfloat16; any shape.
      min_val: one value in the range of `input`, not NaN; may be traced.
      max_val: one value in the range of `input`, not below `min_val`; may be traced.
      nan_mode: whether NaN gives NaN or `min_val`.

    Returns:
      The type and shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.clamp(jnp.int8([-100, 5, 100]), min_val=0, max_val=6).tolist()
      [0, 5, 6]
    """
    low, high = (
        jnp.broadcast_to(jnp.asarray(bound, input.dtype).reshape(()), input.shape)
        for bound in (min_val, max_val)
    )
    return minimum(maximum(input, low, nan_mode=nan_mode), high, nan_mode=nan_mode)


@recorded
def erf(input: jax.Array) -> jax.Array:
    """The error function (TOSA 1.0.1, "ERF").

    Args:
      input: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.erf(jnp.float32([-5, 0, 5])).tolist()
      [-1.0, 0.0, 1.0]
    """
    return in_float32(_erf, input)


@recorded
def sigmoid(input: jax.Array) -> jax.Array:
    """1 / (1 + exp(-x)) (TOSA 1.0.1, "SIGMOID").

    Args:
      input: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.sigmoid(jnp.float32([-200, 0, 200])).tolist()
      [0.0, 0.5, 1.0]
    """
    return in_float32(lax.logistic, input)


@recorded
def tanh(input: jax.Array) -> jax.Array:
    """The hyperbolic tangent (TOSA 1.0.1, "TANH").

    Args:
      input: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.tanh(jnp.float32([-200, 0, 200])).tolist()
      [-1.0, 0.0, 1.0]
    """
    return in_float32(lax.tanh, input)


def _erf(value: jax.Array) -> jax.Array:
    # XLA's own function is off by up to 6.6 units in the last place near 3.8, and exceeds 1 there.
    # Its tail is replaced by 1 - poly(t) * exp(-x**2) (Abramowitz and Stegun, 7.1.26), which
    # stays within 3; at 4 that is 1.
    size = jnp.minimum(lax.abs(value), jnp.float32(4))
    t = 1 / (1 + jnp.float32(0.3275911) * size)
    poly = jnp.float32(1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + jnp.float32(coefficient)
    tail = 1 - poly * t * lax.exp(-size * size)
    return jnp.where(size > 1.5, lax.sign(value) * tail, lax.erf(value))
