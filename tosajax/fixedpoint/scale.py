"""Scaling by multiplier / 2**shift with exact integers ("Scaling Helpers", TOSA 1.0.1).

Products have up to 63 bits. They are shifted in int64; for a constant shift of at least 33, the
high 32 bits and a carry from the low 32 bits are enough.
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
      shift: int8, broadcastable; bits, in [2, 62]. A constant shift, in a NumPy array, is faster.
      double_round: rounds twice, as frameworks with two-stage rounding do.

    Returns:
      int32, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> from tosajax import fixedpoint
      >>> half = jnp.int32([1 << 30]), np.int8([31])
      >>> fixedpoint.apply_scale_32(jnp.int32([-3, 3, 4]), *half).tolist()
      [-1, 2, 2]
    """
    if not isinstance(shift, np.ndarray):
        return _scale_wide(value, multiplier, shift, double_round)
    # A scalar saves XLA the broadcast.
    amount = shift.flat[0] if np.all(shift == shift.flat[0]) else shift
    scale = _scale_wide if shift.min() <= 32 else _scale_high
    return scale(value, multiplier, amount, double_round)


def apply_scale_16(value: jax.Array, multiplier: jax.Array, shift: jax.Array) -> jax.Array:
    """Scales by a 16-bit multiplier / 2**shift, rounding half up (TOSA 1.0.1, "Scaling Helpers").

    Args:
      value: int32, or int48 stored in int64; any shape.
      multiplier: int16, broadcastable; Q1.14 in [0, 2**15).
      shift: int8, broadcastable; bits, in [2, 62].

    Returns:
      int32, the broadcast shape; unpredictable where the scaled value has more than 32 bits.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import fixedpoint
      >>> half = jnp.int16([1 << 14]), jnp.int8([15])
      >>> fixedpoint.apply_scale_16(jnp.int32([-3, 3, 4]), *half).tolist()
      [-1, 2, 2]
    """
    if value.dtype != np.int64:
        return apply_scale_32(value, multiplier.astype(jnp.int32), shift)
    with _x64.scope():
        return _shift(value * _x64.widen(multiplier), _x64.widen(shift))


def multiply_and_shift(value: jax.Array, other: jax.Array, shift: jax.Array) -> jax.Array:
    """Multiplies two int32 arrays and shifts right, rounding half up (TOSA 1.0.1, "MUL").

    Args:
      value: int32, any shape.
      other: int32, a shape that broadcasts with `value`.
      shift: int8, broadcastable; bits, in [0, 63].

    Returns:
      int32, the broadcast shape: the low 32 bits of the shifted product.
    """
    return _scale_wide(value, other, shift, double_round=False)


def reciprocal_scale(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The multiplier and shift that divide by `value` (TOSA 1.0.1, "Scaling Helpers").

    Args:
      value: positive integers up to 2**30, known at compile time; any shape.

    Returns:
      multiplier (int32, in [2**30, 2**31)) and shift (int8), of the same shape.

    Example:
      >>> import numpy as np
      >>> from tosajax import fixedpoint
      >>> multiplier, shift = fixedpoint.reciprocal_scale(np.array([4, 9]))
      >>> (multiplier / 2.0**shift).round(6).tolist()
      [0.25, 0.111111]
    """
    value = np.asarray(value, np.int64)
    bits = np.frexp(value - 1)[1].astype(np.int64)  # bit length, exact in float64
    multiplier = (((1 << 30) + 1) << bits) // value
    return multiplier.astype(np.int32), (30 + bits).astype(np.int8)


def _scale_high(
    value: jax.Array, multiplier: jax.Array, amount: np.ndarray | np.integer, double_round: bool
) -> jax.Array:
    """Rounds a product and shifts it right by a constant amount of at least 33.

    Half a unit of the result is then in the high word; the low word contributes only a carry.
    """
    total = _x64.multiply_high(value, multiplier)
    if double_round:
        # Adding 2**30 carries where the low word's top two bits are 11; subtracting it borrows
        # where they are 00.
        low = lax.bitcast_convert_type(value * multiplier, jnp.uint32)
        top = lax.bitcast_convert_type(low >> jnp.uint32(30), jnp.int32)
        away = (value >> jnp.int32(31)) | jnp.int32(1)
        total = total + ((top + away) >> jnp.int32(2))
    rest = amount.astype(np.int32) - np.int32(32)
    return (total + (np.int32(1) << (rest - np.int32(1)))) >> rest


def _scale_wide(
    value: jax.Array,
    multiplier: jax.Array,
    amount: jax.Array | np.ndarray | np.integer,
    double_round: bool,
) -> jax.Array:
    """Rounds a product and shifts it right, in int64."""
    with _x64.scope():
        amount = amount.astype(np.int64)
        total = _x64.widen(value) * _x64.widen(multiplier)
        if double_round:
            # 2**30 away from zero: the rounding at bit 31, before the one at `amount`.
            away = (amount > 31).astype(np.int64) << np.int64(30)
            total = total + jnp.where(value < 0, np.int64(0) - away, away)
        return _shift(total, amount)


def _shift(total: jax.Array, amount: jax.Array | np.ndarray | np.integer) -> jax.Array:
    """The low 32 bits of an int64 shifted right by `amount` in [0, 63], rounding half up."""
    # Half a unit; 0 for a shift by 0. NumPy computes it where the shift is constant.
    half = ((np.int64(1) << amount) >> np.int64(1)) & np.int64(2**63 - 1)
    return lax.convert_element_type((total + half) >> amount, np.int32)
