"""Q-format arithmetic: shifts, rounding and saturation of fixed-point integers.

A Qm.n integer represents integer / 2**n. Changing n is a shift: a left shift saturates, a right
shift rounds, and each function's name states its rounding. Shifts count bits, are positive to the
left, and may be traced. Accumulators are int32 or int64; int64 arrays enter and leave as int64
whatever the user's `jax_enable_x64`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.fixedpoint.scale import apply_scale_32

# More bits than any value has: a larger shift gives the same result.
_FARTHEST = 65


def saturate_to(value: jax.Array, dtype: np.dtype | type) -> jax.Array:
    """Clips to the range of an integer type, then converts to that type.

    Args:
      value: int32 or int64, any shape.
      dtype: int8, uint8, int16, int32 or int64; not wider than `value`.

    Returns:
      `dtype`, the shape of `value`.
    """
    info = np.iinfo(dtype)
    with _x64.scope_of(value.dtype):
        if np.iinfo(value.dtype).max > info.max:
            value = lax.clamp(value.dtype.type(info.min), value, value.dtype.type(info.max))
        return lax.convert_element_type(value, dtype)


def saturating_shift(value: jax.Array, shift: jax.Array | np.ndarray | int) -> jax.Array:
    """Computes value * 2**shift; a left shift saturates, a right shift floors.

    Args:
      value: int32 or int64, any shape.
      shift: any integer, broadcastable; bits, positive to the left.

    Returns:
      The type of `value`, the broadcast shape.
    """
    left, right = _left_and_right(shift)
    shifted = _saturating_shift_left(value, left)
    with _x64.scope_of(value.dtype):
        return shifted >> _within(value, right)


def shift_right_half_up(value: jax.Array, amount: jax.Array | np.ndarray | int) -> jax.Array:
    """Computes value / 2**amount, rounded to nearest, ties towards plus infinity.

    Args:
      value: int32 or int64, any shape; no value overflows.
      amount: any integer, at least 0, broadcastable; bits.

    Returns:
      The type of `value`, the broadcast shape.
    """
    return _shift_right(value, amount, away_from_zero=False)


def shift_right_half_away(value: jax.Array, amount: jax.Array | np.ndarray | int) -> jax.Array:
    """Computes value / 2**amount, rounded to nearest, ties away from zero.

    TFLite calls this RoundingDivideByPOT; DSP manuals call it symmetric rounding.

    Args:
      value: int32 or int64, any shape; no value overflows.
      amount: any integer, at least 0, broadcastable; bits.

    Returns:
      The type of `value`, the broadcast shape.
    """
    return _shift_right(value, amount, away_from_zero=True)


def shift_and_round(
    acc: jax.Array, shift: jax.Array | np.ndarray | int, dtype: np.dtype | type
) -> jax.Array:
    """Computes acc * 2**shift, rounded half away from zero, then saturated to `dtype`.

    Args:
      acc: int32 or int64, any shape.
      shift: any integer, broadcastable; bits, positive to the left.
      dtype: int8, uint8, int16 or int32; not wider than `acc`.

    Returns:
      `dtype`, the broadcast shape.
    """
    left, right = _left_and_right(shift)
    return saturate_to(shift_right_half_away(_saturating_shift_left(acc, left), right), dtype)


def add_shifted(acc: jax.Array, bias: jax.Array, shift: jax.Array | np.ndarray | int) -> jax.Array:
    """Computes acc + bias * 2**shift in int64; a left shift saturates, a right shift floors.

    Args:
      acc: int32 or int64, any shape.
      bias: any integer type, broadcastable.
      shift: any integer, a scalar; bits, positive to the left.

    Returns:
      int64, the broadcast shape; wraps where the sum has more than 64 bits.
    """
    with _x64.scope():
        wide = _x64.widen(bias)
    shifted = saturating_shift(wide, shift)
    with _x64.scope():
        return _x64.widen(acc) + shifted


def requantize(
    value: jax.Array, multiplier: jax.Array | np.ndarray, shift: jax.Array | np.ndarray | int
) -> jax.Array:
    """Scales by multiplier / 2**31 * 2**shift with two roundings, as TFLite does.

    A left shift comes first, and saturates. The product with the multiplier is rounded half up, as
    by `multiply_q31_half_up`; a right shift then rounds half away from zero.

    Args:
      value: int32, any shape.
      multiplier: int32, broadcastable; Q31, not negative.
      shift: broadcastable; bits in [-31, 31], positive to the left. A constant shift, in a NumPy
        array, is faster.

    Returns:
      int32, the broadcast shape.
    """
    is_static = not isinstance(shift, jax.Array)
    amount = np.asarray(shift, np.int32) if is_static else shift.astype(jnp.int32)
    xp = np if is_static else jnp
    left, right = xp.maximum(amount, 0), xp.maximum(-amount, 0)
    if not is_static or np.any(left):
        value = _saturating_shift_left(value, jnp.asarray(left))
    # Does both roundings: the multiplier is not negative, so value and product have one sign.
    return apply_scale_32(
        value, jnp.asarray(multiplier), (right + 31).astype(np.int8), double_round=True
    )


def multiply_q31_half_up(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes a * b / 2**31, rounded half up and saturated: the product with a Q31 fraction.

    TFLite calls this SaturatingRoundingDoublingHighMul.

    Args:
      a: int32, any shape.
      b: int32, broadcastable.

    Returns:
      int32, the broadcast shape; 2**31 - 1 for the product of two minima.
    """
    return saturate_to(shift_right_half_up(_product(a, b), 31), np.int32)


def multiply_q31_half_away(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes a * b / 2**31, rounded half away from zero and saturated.

    Args:
      a: int32, any shape.
      b: int32, broadcastable.

    Returns:
      int32, the broadcast shape; 2**31 - 1 for the product of two minima.
    """
    return saturate_to(shift_right_half_away(_product(a, b), 31), np.int32)


def _left_and_right(shift: jax.Array | np.ndarray | int) -> tuple[jax.Array, jax.Array]:
    """Splits a signed shift into a left and a right shift, both >= 0; one of them is 0."""
    amount = lax.clamp(np.int32(-_FARTHEST), jnp.asarray(shift, jnp.int32), np.int32(_FARTHEST))
    zero = jnp.zeros_like(amount)
    return lax.max(amount, zero), lax.max(-amount, zero)


def _within(value: jax.Array, amount: jax.Array) -> jax.Array:
    """Converts a shift amount >= 0 to the type of `value`, clipped to its width less 1."""
    last = np.int32(np.iinfo(value.dtype).bits - 1)
    return lax.convert_element_type(lax.min(amount, jnp.full_like(amount, last)), value.dtype)


def _saturating_shift_left(value: jax.Array, amount: jax.Array) -> jax.Array:
    with _x64.scope_of(value.dtype):
        info, left = np.iinfo(value.dtype), _within(value, amount)
        shifted = value << left
        # The arithmetic shift gives all ones for negative values, so their limit is the minimum.
        limit = (value >> value.dtype.type(info.bits - 1)) ^ value.dtype.type(info.max)
        shifted, limit = jnp.broadcast_arrays(shifted, limit)
        return lax.select((shifted >> left) == value, shifted, limit)


def _shift_right(
    value: jax.Array, amount: jax.Array | np.ndarray | int, *, away_from_zero: bool
) -> jax.Array:
    amount = lax.min(jnp.asarray(amount, jnp.int32), np.int32(_FARTHEST))
    before = lax.max(amount - np.int32(1), jnp.zeros_like(amount))
    with _x64.scope_of(value.dtype):
        zero, one = value.dtype.type(0), value.dtype.type(1)
        last = _within(value, before)
        # The result with one more fraction bit, which is 1 where the remainder is at least a half.
        doubled = value >> last
        half = doubled & one
        if away_from_zero:
            negative_tie = (value < zero) & ((doubled << last) == value)
            half = half & ~lax.convert_element_type(negative_tie, value.dtype)
        rounded = (doubled >> one) + half
        # A shift by more than the width leaves less than half a unit.
        rounded = jnp.where(amount > np.int32(np.iinfo(value.dtype).bits), zero, rounded)
        return jnp.where(amount == np.int32(0), value, rounded)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    with _x64.scope():
        return _x64.widen(a) * _x64.widen(b)
