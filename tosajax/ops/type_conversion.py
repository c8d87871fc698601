"""Conversions between element types and integer scales (TOSA 1.0.1, "Type Conversion")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64, apply_scale_16, apply_scale_32, saturate
from tosajax.ops.recording import recorded
from tosajax.spec.enums import RoundingMode


@recorded
def cast(input: jax.Array, *, out_type: DType) -> jax.Array:
    """Converts every value to another type (TOSA 1.0.1, "CAST").

    Floats to integers round half to even and saturate; integers to narrower ones keep the low bits;
    to fp8, values beyond the range become NaN (e4m3) or infinity (e5m2).

    Args:
      input: any type but int48; any shape. NaN to an integer is unpredictable.
      out_type: static.

    Returns:
      `out_type`, the shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.float32([-1000, 0.5, 1.5])
      >>> tosajax.ops.cast(x, out_type=tosajax.DType.INT8).tolist()
      [-128, 0, 2]
    """
    target = out_type.storage
    if out_type is DType.BOOL:
        return input != jnp.asarray(0, input.dtype)
    if out_type.is_integer and jnp.issubdtype(input.dtype, jnp.floating):
        return _float_to_integer(input, target)
    if out_type is DType.BF16 and input.dtype == jnp.int32:
        input = _at_most_24_bits(input)
    return input.astype(target)


@recorded
def rescale(
    input: jax.Array,
    multiplier: jax.Array,
    shift: jax.Array,
    input_zp: jax.Array,
    output_zp: jax.Array,
    *,
    scale32: bool,
    rounding_mode: RoundingMode,
    per_channel: bool,
    input_unsigned: bool,
    output_unsigned: bool,
) -> jax.Array:
    """Multiplies by a scale, rounds and saturates (TOSA 1.0.1, "RESCALE").

    The result is (input - input_zp) * multiplier / 2**shift + output_zp.

    Args:
      input: int8, int16, int32, or int48 held in int64; any shape.
      multiplier: int32 (`scale32`) or int16, not negative; (NC,).
      shift: int8, (NC,), in [2, 62].
      input_zp: (1,), the type of `input`; any int8, 0 or 32768 for unsigned int16, else 0.
      output_zp: (1,), the type of the output; the same ranges.
      scale32: Q1.30 multipliers rather than Q1.14; not with int48.
      rounding_mode: DOUBLE_ROUND rounds twice; INEXACT_ROUND is computed as SINGLE_ROUND.
      per_channel: NC is the size of the last dimension, else 1.
      input_unsigned: reads `input` and `input_zp` as unsigned.
      output_unsigned: reads `output_zp` as unsigned, and saturates to the unsigned range.

    Returns:
      The type of `output_zp`, the shape of `input`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> from tosajax.spec import RoundingMode
      >>> x, multiplier, shift = jnp.int32([-1000, 10, 1000]), jnp.int32([2**30]), jnp.int8([32])
      >>> y = tosajax.ops.rescale(
      ...     x, multiplier, shift, jnp.int32([0]), jnp.int8([5]),
      ...     scale32=True, rounding_mode=RoundingMode.SINGLE_ROUND, per_channel=False,
      ...     input_unsigned=False, output_unsigned=False,
      ... )
      >>> y.tolist()
      [-128, 8, 127]
    """
    # Values per channel broadcast along the last dimension.
    channels = (1,) * (input.ndim - 1) + (-1,) if per_channel else ()
    multiplier, shift = multiplier.reshape(channels), shift.reshape(channels)
    if input.dtype == np.int64:
        with _x64.scope():
            value = input - input_zp.reshape(())
    else:
        value = _extend(input, input_unsigned) - _extend(input_zp, input_unsigned).reshape(())
    if scale32:
        double_round = rounding_mode == RoundingMode.DOUBLE_ROUND
        scaled = apply_scale_32(value, multiplier, shift, double_round=double_round)
    else:
        scaled = apply_scale_16(value, multiplier, shift)
    result = scaled + _extend(output_zp, output_unsigned).reshape(())
    return saturate(result, output_zp.dtype, unsigned=output_unsigned)


def _extend(value: jax.Array, unsigned: bool) -> jax.Array:
    """Widens to int32; reads the bits as signed or unsigned."""
    if unsigned:
        value = lax.bitcast_convert_type(value, jnp.dtype(f"u{value.dtype}"))
    return value.astype(jnp.int32)


def _float_to_integer(value: jax.Array, target: np.dtype) -> jax.Array:
    info = np.iinfo(target)
    rounded = lax.round(value.astype(jnp.float32), lax.RoundingMethod.TO_NEAREST_EVEN)
    # float32 cannot represent 2**31 - 1: values at or above 2**31 are replaced afterwards.
    over = np.float32(info.max + 1)
    inside = jnp.clip(rounded, np.float32(info.min), np.nextafter(over, np.float32(0)))
    return jnp.where(rounded >= over, target.type(info.max), inside.astype(target))


def _at_most_24_bits(value: jax.Array) -> jax.Array:
    """Rounds to odd where float32 is inexact, so that the next rounding is correct."""
    sticky = jnp.where(value & 0x7F != 0, jnp.int32(0x80), jnp.int32(0))
    inexact = (value >= 1 << 24) | (value <= -(1 << 24))
    return jnp.where(inexact, (value & ~0x7F) | sticky, value)
