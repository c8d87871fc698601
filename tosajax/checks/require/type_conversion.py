"""Run-time rules of "Type Conversion" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.checks.require._common import (
    Flags,
    add_overflows,
    broken_by,
    flags,
    has_lost_bits,
    scale_estimate,
)
from tosajax.checks.type_conversion import cast_values, rescale_values
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64, apply_scale_16
from tosajax.spec import RoundingMode


def cast_require(input: jax.Array, *, out_type: DType) -> Flags:
    """r1, for casts from float to integer: no value is NaN."""
    return flags(**broken_by(cast_values(input.dtype, out_type), input=input))


def rescale_require(
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
) -> Flags:
    """The rules of scaling.

    r1: multipliers are not negative. r2: shifts are in [2, 62]. r3: with `scale32`, the value less
    its zero point is in [-2**(shift - 1), 2**(shift - 1)); without it, for int32 and int48, the
    scaled value fits int32. r4, without `scale32`: the scaled value plus `output_zp` fits int32.
    """
    broken = broken_by(rescale_values(), multiplier=multiplier, shift=shift)
    channels = (1,) * (input.ndim - 1) + (-1,) if per_channel else ()
    legal = ~(broken["r1"] | broken["r2"]).reshape(channels)
    multiplier, shift = multiplier.reshape(channels), shift.reshape(channels)
    if scale32:
        value = _extend(input, input_unsigned) - _extend(input_zp, input_unsigned).reshape(())
        # A right shift by 31 leaves only the sign: for shifts of 32 and more, every int32 is legal.
        rest = value >> (jnp.clip(shift, 2, 32).astype(jnp.int32) - 1)
        broken["r3"] = legal & (rest != 0) & (rest != -1)
    elif input.dtype.itemsize >= 4:
        # Narrower inputs cannot overflow: at most 17 bits less the zero point, 30 scaled.
        with _x64.scope():
            value = input - input_zp.reshape(())
        scaled = apply_scale_16(value, multiplier, shift)
        estimate = scale_estimate(value, multiplier, shift)
        broken["r3"] = legal & has_lost_bits(scaled, estimate)
        zero_out = _extend(output_zp, output_unsigned).reshape(())
        broken["r4"] = legal & add_overflows(scaled, zero_out)
    return flags(**broken)


def _extend(value: jax.Array, unsigned: bool) -> jax.Array:
    """Widens to int32, reading the bits as signed or unsigned."""
    if unsigned:
        value = lax.bitcast_convert_type(value, jnp.dtype(f"u{value.dtype}"))
    return value.astype(jnp.int32)
