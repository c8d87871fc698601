"""Fixed-point exponential and logistic functions of quantized kernels, as gemmlowp defines them.

TFLite's quantized SOFTMAX and LOGISTIC use these functions. Products are rounded half up, right
shifts half away from zero.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tosajax.fixedpoint.qformat import saturating_shift, shift_right_half_away
from tosajax.hifi.kernels._q31 import multiply_half_up

_MAXIMUM = 2**31 - 1  # the nearest to 1 in Q31
_EIGHTH = 1 << 28


def logistic(x: jax.Array) -> jax.Array:
    """Computes 1 / (1 + e**-x).

    Args:
      x: int32 in Q4.27, any shape.

    Returns:
      int32 in Q31, the shape of `x`.
    """
    magnitude = jnp.where(x > 0, -x, x)
    upper = one_over_one_plus(exp_of_negative(magnitude, integer_bits=4))
    result = jnp.where(x > 0, upper, jnp.int32(_MAXIMUM) - upper)
    return jnp.where(x == 0, jnp.int32(1 << 30), result)


def exp_of_negative(x: jax.Array, *, integer_bits: int) -> jax.Array:
    """Computes e**x for x <= 0.

    Args:
      x: int32, not positive, with `integer_bits` bits before the point; any shape.
      integer_bits: the number of integer bits of `x`, at most 5.

    Returns:
      int32 in Q31, the shape of `x`; 2**31 - 1 for 0.
    """
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    # x = part - rest, with part in [-1/4, 0) and rest a multiple of 1/4; each bit of rest is a
    # factor of the result.
    part = (x & jnp.int32(quarter - 1)) - jnp.int32(quarter)
    result = _exp_within_quarter(part << jnp.int32(integer_bits))
    rest = part - x
    for exponent in range(-2, integer_bits):
        factor = jnp.int32(round(math.exp(-(2.0**exponent)) * 2**31))
        bit = rest & jnp.int32(1 << (fraction_bits + exponent))
        product = multiply_half_up(result, factor)
        result = jnp.where(bit != 0, product, result)
    return jnp.where(x == 0, jnp.int32(_MAXIMUM), result)


def one_over_one_plus(t: jax.Array) -> jax.Array:
    """Computes 1 / (1 + t) for t in [0, 1], with three steps of Newton's method.

    Args:
      t: int32 in Q31, not negative; any shape.

    Returns:
      int32 in Q31, the shape of `t`.
    """
    half = (t >> jnp.int32(1)) + jnp.int32(1 << 30)  # (1 + t) / 2
    # The initial estimate 48/17 - 32/17 * half, in Q2.29 as all later ones.
    result = multiply_half_up(half, jnp.int32(round(-32 / 17 * 2**29)))
    result = result + jnp.int32(round(48 / 17 * 2**29))
    for _ in range(3):
        error = jnp.int32(1 << 29) - multiply_half_up(half, result)
        result = result + saturating_shift(multiply_half_up(result, error), 2)
    return saturating_shift(result, 1)


def _exp_within_quarter(x: jax.Array) -> jax.Array:
    """Computes e**x in Q31 for x in [-1/4, 0), by the Taylor series at -1/8 up to x**4."""
    x = x + jnp.int32(_EIGHTH)
    square = multiply_half_up(x, x)
    cube = multiply_half_up(square, x)
    fourth = multiply_half_up(square, square)
    high = shift_right_half_away(fourth, 2) + cube
    high = multiply_half_up(high, jnp.int32(round(2**31 / 3)))
    high = shift_right_half_away(high + square, 1)
    at_eighth = jnp.int32(round(math.exp(-1 / 8) * 2**31))
    return at_eighth + multiply_half_up(at_eighth, x + high)
