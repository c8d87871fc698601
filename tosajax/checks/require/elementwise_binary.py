"""Run-time rules of "Elementwise Binary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.checks.require._common import (
    Flags,
    add_overflows,
    flags,
    has_lost_bits,
    outside,
    scale_estimate,
    sub_overflows,
)
from tosajax.fixedpoint.scale import multiply_and_shift


def add_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """r1, for int32: the sum fits."""
    return flags(r1=add_overflows(input1, input2)) if input1.dtype == np.int32 else {}


def sub_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """r1, for int32: the difference fits."""
    return flags(r1=sub_overflows(input1, input2)) if input1.dtype == np.int32 else {}


def arithmetic_right_shift_require(input1: jax.Array, input2: jax.Array, *, round: bool) -> Flags:
    """r1: shifts are in [0, bits of the type)."""
    return _shift_require(input2)


def logical_left_shift_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """r1: shifts are in [0, bits of the type)."""
    return _shift_require(input2)


logical_right_shift_require = logical_left_shift_require


def intdiv_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """r1: no division by 0; r2: the quotient fits, which that of -2**31 and -1 does not."""
    minimum = np.iinfo(np.int32).min
    return flags(r1=input2 == 0, r2=(input1 == minimum) & (input2 == -1))


def mul_require(input1: jax.Array, input2: jax.Array, shift: jax.Array) -> Flags:
    """The rules of the shift and of the product.

    r1: the shift is in [0, 63]. r2, but for int32: it is 0. r3, for int32 and other shifts: the
    shifted product fits.
    """
    shift = shift.reshape(())
    illegal = (shift < 0) | (shift > 63)
    if input1.dtype != np.int32:
        return flags(r1=illegal, r2=shift != 0)
    estimate = scale_estimate(input1, input2, shift)
    lost = has_lost_bits(multiply_and_shift(input1, input2, shift), estimate)
    return flags(r1=illegal, r3=~illegal & (shift != 0) & lost)


def pow_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """The domain of powers.

    r1: `input1` is not negative. r2: it or `input2` is positive. r3: neither is NaN. r4: both are
    finite.
    """
    positive1, positive2 = _is_positive(input1), _is_positive(input2)
    return flags(
        r1=_is_positive(-input1) | jnp.isnan(input1),
        r2=~(positive1 | positive2),
        r3=jnp.isnan(input1) | jnp.isnan(input2),
        r4=~(jnp.isfinite(input1) & jnp.isfinite(input2)),
    )


def table_require(input1: jax.Array, table: jax.Array) -> Flags:
    """r1, for int16: the two entries that a value lies between are less than 2**15 apart."""
    if input1.dtype != np.int16:
        return {}
    slope = jnp.diff(table.astype(jnp.int32))
    index = (input1.astype(jnp.int32) + 32768) >> 7
    return flags(r1=outside(slope, 16).at[index].get(mode="promise_in_bounds"))


def _shift_require(amount: jax.Array) -> Flags:
    return flags(r1=(amount < 0) | (amount >= amount.dtype.itemsize * 8))


def _is_positive(value: jax.Array) -> jax.Array:
    # By its bits: XLA may take a subnormal for 0 where it compares floats.
    bits = lax.bitcast_convert_type(value, np.dtype(f"int{value.dtype.itemsize * 8}"))
    return (bits > 0) & ~jnp.isnan(value)
