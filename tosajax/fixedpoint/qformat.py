"""Q-format arithmetic: shifts, rounding and saturation of integers that stand for fractions.

A Qm.n integer stands for integer / 2**n. Changing n is a shift: to the left it saturates, to the
right it rounds, and how it rounds is part of each function's name. Shifts count bits, positive ones
to the left, and may be traced. Accumulators are int32, or int64, which comes and goes as such
whatever the user's own setting.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.fixedpoint.scale import apply_scale_32

# More bits than any value here has: shifts beyond it do nothing else.
_FARTHEST = 65


def saturate_to(value: jax.Array, dtype: np.dtype | type) -> jax.Array:
    """Clips to the range of an integer type, then narrows to it.

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
    """value * 2**shift: saturates to the left, floors to the right.

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
    """value / 2**amount, rounded to nearest, ties towards plus infinity.

    Args:
      value: int32 or int64, any shape; no value overflows.
      amount: any integer, at least 0, broadcastable; bits.

    Returns:
      The type of `value`, the broadcast shape.
    """
    return _shift_right(value, amount, away_from_zero=False)


def shift_right_half_away(value: jax.Array, amount: jax.Array | np.ndarray | int) -> jax.Array:
    """value / 2**amount, rounded to nearest, ties away from zero.

    TFLite calls it RoundingDivideByPOT, DSPs symmetric rounding.

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
    """acc * 2**shift, rounded half away from zero, then saturated.

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
    """acc + bias * 2**shift in int64; the bias saturates to the left and floors to the right.

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
    """Scales by multiplier / 2**31 * 2**shift in two roundings, as TFLite does.

    The product with the multiplier is rounded half up, as by `multiply_q31_half_up`; a shift to
    the right then rounds half away from zero. A shift to the left comes first, and saturates.

    Args:
      value: int32, any shape.
      multiplier: int32, broadcastable; Q31, not negative.
      shift: broadcastable; bits in [-31, 31], positive to the left. A constant one, in a NumPy
        array, is faster.

    Returns:
      int32, the broadcast shape.
    """
    known = not isinstance(shift, jax.Array)
    amount = np.asarray(shift, np.int32) if known else shift.astype(jnp.int32)
    xp = np if known else jnp
    left, right = xp.maximum(amount, 0), xp.maximum(-amount, 0)
    if not known or np.any(left):
        value = _saturating_shift_left(value, jnp.asarray(left))
    # Both roundings at once: the sign of the value is that of the product.
    return apply_scale_32(
        value, jnp.asarray(multiplier), (right + 31).astype(np.int8), double_round=True
    )


def multiply_q31_half_up(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b / 2**31, rounded half up and saturated: a product with a Q31 fraction.

    TFLite calls it SaturatingRoundingDoublingHighMul.

    Args:
      a: int32, any shape.
      b: int32, broadcastable.

    Returns:
      int32, the broadcast shape; 2**31 - 1 for the product of two minima.
    """
    return saturate_to(shift_right_half_up(_product(a, b), 31), np.int32)


def multiply_q31_half_away(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b / 2**31, rounded half away from zero and saturated.

    Args:
      a: int32, any shape.
      b: int32, broadcastable.

    Returns:
      int32, the broadcast shape; 2**31 - 1 for the product of two minima.
    """
    return saturate_to(shift_right_half_away(_product(a, b), 31), np.int32)


def _left_and_right(shift: jax.Array | np.ndarray | int) -> tuple[jax.Array, jax.Array]:
    """A shift as two of which one is 0, both at least 0."""
    amount = lax.clamp(np.int32(-_FARTHEST), jnp.asarray(shift, jnp.int32), np.int32(_FARTHEST))
    zero = jnp.zeros_like(amount)
    return lax.max(amount, zero), lax.max(-amount, zero)


def _within(value: jax.Array, amount: jax.Array) -> jax.Array:
    """An amount of at least 0 in the type of `value`, at most its width less 1."""
    last = np.int32(np.iinfo(value.dtype).bits - 1)
    return lax.convert_element_type(lax.min(amount, jnp.full_like(amount, last)), value.dtype)


def _saturating_shift_left(value: jax.Array, amount: jax.Array) -> jax.Array:
    with _x64.scope_of(value.dtype):
        info, left = np.iinfo(value.dtype), _within(value, amount)
        shifted = value << left
        # All ones for negative values, so that the limit is the minimum.
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
        # One bit more than the result: 1 where at least half a unit is left over.
        doubled = value >> last
        half = doubled & one
        if away_from_zero:
            negative_tie = (value < zero) & ((doubled << last) == value)
            half = half & ~lax.convert_element_type(negative_tie, value.dtype)
        rounded = (doubled >> one) + half
        # Beyond the width of a value, all of it is less than half a unit.
        rounded = jnp.where(amount > np.int32(np.iinfo(value.dtype).bits), zero, rounded)
        return jnp.where(amount == np.int32(0), value, rounded)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    with _x64.scope():
        return _x64.widen(a) * _x64.widen(b)
