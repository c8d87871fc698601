"""Scaling by multiplier / 2**shift with exact integers ("Scaling Helpers", TOSA 1.0.1).

Products have up to 63 bits. By a shift that is traced they are scaled in two words of uint32, by a
constant one in int64 or, where the low word only carries, in the high word; int48 values use int64.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64


def apply_scale_32(
    value: jax.Array,
    multiplier: jax.Array,
    shift: jax.Array | np.ndarray,
    *,
    double_round: bool = False,
) -> jax.Array:
    """Scales by multiplier / 2**shift, rounding half up (TOSA 1.0.1, "Scaling Helpers").

    Args:
      value: int32, any shape; |value| < 2**(shift - 1), else the result is unpredictable.
      multiplier: int32, broadcastable; Q1.30 in [0, 2**31).
      shift: int8, broadcastable; bits, in [2, 62]. Constant ones, in a NumPy array, are faster.
      double_round: rounds twice, as frameworks with two-stage rounding do.

    Returns:
      int32, the broadcast shape.
    """
    if isinstance(shift, np.ndarray):
        # A scalar spares XLA the broadcast.
        amount = shift.flat[0] if np.all(shift == shift.flat[0]) else shift
        scale = _scale_wide if shift.min() <= 32 else _scale_high
        return scale(value, multiplier, amount.astype(np.int64), double_round)
    high, low = _multiply(value, multiplier)
    amount = jnp.asarray(shift).astype(jnp.uint32)
    high, low = _add(high, low, *_half(amount))
    if double_round:
        # 2**30 away from zero, where a second rounding at bit 31 takes place.
        away = jnp.where(value < 0, jnp.uint32(0xC0000000), jnp.uint32(0x40000000))
        sign = jnp.where(value < 0, jnp.uint32(0xFFFFFFFF), jnp.uint32(0))
        twice = amount > 31
        high, low = _add(
            high, low, jnp.where(twice, sign, jnp.uint32(0)), jnp.where(twice, away, jnp.uint32(0))
        )
    return _shift_right(high, low, amount)


def apply_scale_16(value: jax.Array, multiplier: jax.Array, shift: jax.Array) -> jax.Array:
    """Scales by a 16-bit multiplier / 2**shift, rounding half up (TOSA 1.0.1, "Scaling Helpers").

    Args:
      value: int32, or int48 held in int64; any shape.
      multiplier: int16, broadcastable; Q1.14 in [0, 2**15).
      shift: int8, broadcastable; bits, in [2, 62].

    Returns:
      int32, the broadcast shape; unpredictable where the scaled value has more than 32 bits.
    """
    if value.dtype != np.int64:
        return apply_scale_32(value, multiplier.astype(jnp.int32), shift)
    with _x64.scope():
        amount = _x64.widen(shift)
        half = lax.shift_left(np.int64(1), amount - np.int64(1))
        scaled = lax.shift_right_arithmetic(value * _x64.widen(multiplier) + half, amount)
        return lax.convert_element_type(scaled, np.int32)


def multiply_and_shift(value: jax.Array, other: jax.Array, shift: jax.Array) -> jax.Array:
    """Multiplies two int32 and shifts right, rounding half up (TOSA 1.0.1, "MUL").

    Args:
      value: int32, any shape.
      other: int32, a shape that broadcasts with `value`.
      shift: int8, broadcastable; bits, in [0, 63].

    Returns:
      int32, the broadcast shape: the low 32 bits of the shifted product.
    """
    amount = shift.astype(jnp.uint32)
    high, low = _multiply(value, other)
    high, low = _add(high, low, *_half(amount))
    return _shift_right(high, low, amount)


def reciprocal_scale(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiplier and shift that divide by `value` (TOSA 1.0.1, "Scaling Helpers").

    Args:
      value: positive integers up to 2**30, known at compile time; any shape.

    Returns:
      multiplier (int32, in [2**30, 2**31)) and shift (int8), of the same shape.
    """
    value = np.asarray(value, np.int64)
    bits = np.frexp(value - 1)[1].astype(np.int64)  # bit length, exact in float64
    multiplier = (((1 << 30) + 1) << bits) // value
    return multiplier.astype(np.int32), (30 + bits).astype(np.int8)


def _multiply(value: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The 64-bit product of two int32, as two uint32 words."""
    high, low = _x64.multiply_high(value, other), value * other
    return lax.bitcast_convert_type(high, jnp.uint32), lax.bitcast_convert_type(low, jnp.uint32)


def _scale_high(
    value: jax.Array, multiplier: jax.Array, amount: np.ndarray | np.integer, double_round: bool
) -> jax.Array:
    """Rounds a product and shifts it right by a constant amount of at least 33.

    Half a unit lies in the high word then, and the low word matters by its carry only.
    """
    total = _x64.multiply_high(value, multiplier)
    if double_round:
        # 2**30 away from zero carries where the low word's top bits are 11, borrows where 00.
        low = lax.bitcast_convert_type(value * multiplier, jnp.uint32)
        top = lax.bitcast_convert_type(low >> jnp.uint32(30), jnp.int32)
        away = (value >> jnp.int32(31)) | jnp.int32(1)
        total = total + ((top + away) >> jnp.int32(2))
    rest = (amount - 32).astype(np.int32)
    return (total + (np.int32(1) << (rest - np.int32(1)))) >> rest


def _scale_wide(
    value: jax.Array, multiplier: jax.Array, amount: np.ndarray | np.integer, double_round: bool
) -> jax.Array:
    """Rounds a product and shifts it right by a constant amount, in int64."""
    with _x64.scope():
        half = np.int64(1) << (amount - 1)
        total = _x64.widen(value) * _x64.widen(multiplier) + half
        if double_round:
            # 2**30 away from zero, where a second rounding at bit 31 takes place.
            away = np.where(amount > 31, np.int64(1 << 30), np.int64(0))
            total = total + jnp.where(value < 0, -away, away)
        return lax.convert_element_type(total >> amount, np.int32)


def _half(amount: jax.Array) -> tuple[jax.Array, jax.Array]:
    """2**(amount - 1) as two uint32 words; 0 where `amount` is 0."""
    one, zero = jnp.uint32(1), jnp.uint32(0)
    in_low = amount <= 32
    low = jnp.where(in_low & (amount > 0), one << ((amount - one) & jnp.uint32(31)), zero)
    high = jnp.where(in_low, zero, one << ((amount - jnp.uint32(33)) & jnp.uint32(31)))
    return high, low


def _add(high: jax.Array, low: jax.Array, more_high: jax.Array, more_low: jax.Array):
    total = low + more_low
    carry = (total < low).astype(jnp.uint32)
    return high + more_high + carry, total


def _shift_right(high: jax.Array, low: jax.Array, amount: jax.Array) -> jax.Array:
    """The low 32 bits of a signed 64-bit value shifted right by `amount` in [0, 63]."""
    within = amount & jnp.uint32(31)
    # Two shifts, because a shift by 32 (within == 0) is not a shift.
    from_high = (high << jnp.uint32(1)) << (jnp.uint32(31) - within)
    narrow = lax.bitcast_convert_type(from_high | (low >> within), jnp.int32)
    wide = lax.bitcast_convert_type(high, jnp.int32) >> within.astype(jnp.int32)
    return jnp.where(amount < 32, narrow, wide)
