"""Rules of "Type Conversion" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.checks._common import input_shape, zero_point_errors
from tosajax.checks._require import Flags, add_overflows, flags, has_lost_bits, scale_estimate
from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64, apply_scale_16
from tosajax.spec import RoundingMode

cast_shape = rescale_shape = input_shape

_UINT16_ZERO_POINTS = (0, 1 << 15)


def rescale_errors(c: Call) -> Iterator[Problem]:
    yield from _zero_point_errors(c, "e1", "e3", "input_zp", c.input_unsigned)
    yield from _zero_point_errors(c, "e2", "e4", "output_zp", c.output_unsigned)
    in_type, out_type = c.input.dtype, c.output.dtype
    if c.scale32 and in_type is DType.INT48:
        yield c.problem("e5", "scale32 is true, expected false for INT48 input")
    if not c.scale32 and c.rounding_mode is RoundingMode.DOUBLE_ROUND:
        yield c.problem("e6", "rounding_mode is DOUBLE_ROUND, expected another without scale32")
    if c.input_unsigned and c.output_unsigned:
        yield c.problem("e7", "input_unsigned and output_unsigned are true, expected one at most")
    for rule, name, tensor, illegal in (
        ("e8", "input_unsigned", "output", out_type is DType.INT32),
        ("e9", "output_unsigned", "input", in_type is DType.INT32),
        ("e10", "output_unsigned", "input", in_type is DType.INT48),
        ("e11", "input_unsigned", "input", in_type is DType.INT48),
        ("e12", "input_unsigned", "input", in_type is DType.INT32),
        ("e13", "output_unsigned", "output", out_type is DType.INT32),
    ):
        if illegal and getattr(c, name):
            found = getattr(c, tensor).dtype.name
            yield c.problem(rule, f"{name} is true, expected false for {found} {tensor}")
    if c.per_channel and not c.input.shape:
        yield c.problem("e14", "per_channel is true for input of rank 0, expected rank 1 or more")
    else:
        yield from _scaling_errors(c)


def _zero_point_errors(
    c: Call, rule: str, rule_uint16: str, name: str, unsigned: bool
) -> Iterator[Problem]:
    tensor = getattr(c, name)
    if not (unsigned and tensor.dtype is DType.INT16):
        yield from zero_point_errors(c, rule, name)
    elif c.known(name):
        found = int(tensor.values.flat[0]) & 0xFFFF
        if found not in _UINT16_ZERO_POINTS:
            yield c.problem(rule_uint16, f"{name} is {found}, expected 0 or 32768 for uint16")


def _scaling_errors(c: Call) -> Iterator[Problem]:
    """One multiplier and one shift, or one for each channel, of the type that scale32 asks for."""
    dtype = DType.INT32 if c.scale32 else DType.INT16
    if c.multiplier.dtype is not dtype:
        found, scale32 = c.multiplier.dtype.name, str(c.scale32).lower()
        wanted = f"expected {dtype.name} as scale32 is {scale32}"
        yield c.problem("arguments", f"multiplier is {found}, {wanted}")
    wanted = c.input.shape[-1] if c.per_channel else 1
    for name in ("multiplier", "shift"):
        (found,) = getattr(c, name).shape
        if found != wanted:
            yield c.problem("arguments", f"{name} has {found} elements, expected {wanted}")


def cast_require(input: jax.Array, *, out_type: DType) -> Flags:
    """r1, from a float to an integer: no value is NaN."""
    if out_type.is_integer and jnp.issubdtype(input.dtype, jnp.floating):
        return flags(r1=jnp.isnan(input))
    return {}


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
    its zero point is in [-2**(shift - 1), 2**(shift - 1)); else, for int32 and int48, the scaled
    value fits int32. r4, as the second r3: that plus `output_zp` fits int32.
    """
    broken = {"r1": multiplier < 0, "r2": (shift < 2) | (shift > 62)}
    channels = (1,) * (input.ndim - 1) + (-1,) if per_channel else ()
    legal = ~(broken["r1"] | broken["r2"]).reshape(channels)
    multiplier, shift = multiplier.reshape(channels), shift.reshape(channels)
    if scale32:
        value = _extend(input, input_unsigned) - _extend(input_zp, input_unsigned).reshape(())
        # A shift by 31 leaves the sign alone, and every int32 is in range from there on.
        rest = value >> (jnp.clip(shift, 2, 32).astype(jnp.int32) - 1)
        broken["r3"] = legal & (rest != 0) & (rest != -1)
    elif input.dtype.itemsize >= 4:
        # Narrower values have at most 17 bits, and 30 once they are scaled.
        with _x64.scope():
            value = input - input_zp.reshape(())
        scaled = apply_scale_16(value, multiplier, shift)
        estimate = scale_estimate(value, multiplier, shift)
        broken["r3"] = legal & has_lost_bits(scaled, estimate)
        zero_out = _extend(output_zp, output_unsigned).reshape(())
        broken["r4"] = legal & add_overflows(scaled, zero_out)
    return flags(**broken)


def _extend(value: jax.Array, unsigned: bool) -> jax.Array:
    """Widens to int32, the bits read as signed or unsigned."""
    if unsigned:
        value = lax.bitcast_convert_type(value, jnp.dtype(f"u{value.dtype}"))
    return value.astype(jnp.int32)
