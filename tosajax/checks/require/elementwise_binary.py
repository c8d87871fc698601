"""Run-time rules of "Elementwise Binary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.checks.elementwise_binary import (
    intdiv_values,
    is_positive,
    is_steep,
    mul_values,
    pow_values,
    shift_values,
    table_index,
)
from tosajax.checks.require._common import (
    Flags,
    add_overflows,
    broken_by,
    flags,
    has_lost_bits,
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
    """r1: no division by 0; r2: the quotient fits int32 (-2**31 / -1 does not)."""
    minimum = np.iinfo(np.int32).min
    broken = broken_by(intdiv_values(), input2=input2)
    return flags(**broken, r2=(input1 == minimum) & (input2 == -1))


def mul_require(input1: jax.Array, input2: jax.Array, shift: jax.Array) -> Flags:
    """The rules of the shift and the product.

    r1: the shift is in [0, 63]. r2, for types other than int32: the shift is 0. r3, for int32 and
    shifts other than 0: the shifted product fits int32.
    """
    shift = shift.reshape(())
    broken = broken_by(mul_values(input1.dtype), shift=shift)
    if input1.dtype != np.int32:
        return flags(**broken)
    estimate = scale_estimate(input1, input2, shift)
    lost = has_lost_bits(multiply_and_shift(input1, input2, shift), estimate)
    return flags(**broken, r3=~broken["r1"] & (shift != 0) & lost)


def pow_require(input1: jax.Array, input2: jax.Array) -> Flags:
    """The rules on the domain of POW.

    r1: `input1` is not negative. r2: `input1` or `input2` is positive. r3: neither is NaN. r4: both
    are finite.
    """
    broken = broken_by(pow_values(), input1=input1, input2=input2)
    return flags(**broken, r2=~(is_positive(input1, jnp) | is_positive(input2, jnp)))


def table_require(input1: jax.Array, table: jax.Array) -> Flags:
    """r1, for int16: the step between the two table entries around a value fits int16."""
    if input1.dtype != np.int16:
        return {}
    steep = is_steep(table, jnp).at[table_index(input1)].get(mode="promise_in_bounds")
    return flags(r1=steep)


def _shift_require(amount: jax.Array) -> Flags:
    return flags(**broken_by(shift_values(amount.dtype), input2=amount))
