"""Exact sums on the device, in any order and over any number of devices.

A float32 is a 24-bit integer times a power of two. The integers of each power are summed
separately, in two halves of 12 bits, so no bit is lost: batches, devices and hosts may add their
parts in any order, and the total has the same bits.
"""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# The most 12-bit halves whose sum fits int32.
_MOST_TERMS = 2**19
_POWERS = 256
_NOT_FINITE = 255
_BITS = 16  # the width of the low word of a total


def nothing() -> jax.Array:
    """The total of zero terms: int32 [2 words, 2 halves, 256 powers]."""
    return jnp.zeros((2, 2, _POWERS), jnp.int32)


def add(total: jax.Array, values: jax.Array) -> jax.Array:
    """Adds terms to a total.

    Args:
      total: the total from `nothing` or `add`.
      values: float32, int32, uint32 or bool, of any shape. Integers of more than 24 bits are
        split, not rounded. A total has room for 2**35 of them.

    Returns:
      int32 [2, 2, 256]: the same array for the same terms, whatever their order.

    Raises:
      TypeError: the values are of another type.
    """
    for part in _as_float32(values):
        terms = part.reshape(-1)
        for start in range(0, terms.size, _MOST_TERMS):
            total = join(total, _words(_halves(terms[start : start + _MOST_TERMS])))
    return total


def join(total: jax.Array, more: jax.Array) -> jax.Array:
    """Adds two totals."""
    low = total[0] + more[0]
    return jnp.stack([low & (2**_BITS - 1), total[1] + more[1] + (low >> _BITS)])


def value(total: np.ndarray) -> Fraction | float:
    """The exact sum of a total; NaN if a term was not finite."""
    words = np.asarray(total).astype(object)
    halves = words[0] + (words[1] << _BITS)
    sums = halves[0] + (halves[1] << 12)
    if np.asarray(total)[..., _NOT_FINITE].any():
        return math.nan
    # Powers 0 and 1 have the same unit, 2**-149: that of subnormals.
    return Fraction(sum(int(s) << max(e - 1, 0) for e, s in enumerate(sums)), 1 << 149)


def _as_float32(values: jax.Array) -> list[jax.Array]:
    """Converts values to float32 terms with the same sum."""
    if values.dtype in (jnp.float32, jnp.bool_):
        return [values.astype(jnp.float32)]
    if values.dtype not in (jnp.int32, jnp.uint32):
        raise TypeError(f"terms of {values.dtype}, expected float32, int32, uint32 or bool")
    high = (values >> 16).astype(jnp.float32) * jnp.float32(2**16)
    return [high, (values & 0xFFFF).astype(jnp.float32)]


def _halves(terms: jax.Array) -> jax.Array:
    """Sums the low and the high halves of the integers of each power."""
    bits = lax.bitcast_convert_type(terms, jnp.int32)
    power = (bits >> 23) & 0xFF
    integer = (bits & 0x7FFFFF) | jnp.where(power > 0, 1 << 23, 0)
    sign = jnp.where(bits < 0, -1, 1)
    sums = [
        jnp.zeros(_POWERS, jnp.int32).at[power].add(sign * half)
        for half in (integer & 0xFFF, integer >> 12)
    ]
    # Counts terms that are not finite, as their sums might cancel.
    broken = jnp.sum(power == _NOT_FINITE, dtype=jnp.int32)
    return jnp.stack([sums[0].at[_NOT_FINITE].set(broken), sums[1]])


def _words(halves: jax.Array) -> jax.Array:
    return jnp.stack([halves & (2**_BITS - 1), halves >> _BITS])
