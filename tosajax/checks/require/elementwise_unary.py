"""Run-time rules of "Elementwise Unary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import numpy as np

from tosajax.checks.elementwise_unary import abs_values, negate_values
from tosajax.checks.require._common import Flags, add_overflows, broken_by, flags, sub_overflows


def abs_require(input1: jax.Array) -> Flags:
    """r1, for int32: the value is not the minimum, whose absolute value does not fit."""
    return flags(**broken_by(abs_values(input1.dtype), input1=input1))


def negate_require(input1: jax.Array, input1_zp: jax.Array, output_zp: jax.Array) -> Flags:
    """The rules for int32: each intermediate result fits int32.

    r1: `input1 - input1_zp`. r2: its negative. r3: the negative plus `output_zp`. Only r2 can be
    broken if the zero points are 0, the only legal value for int32.
    """
    if input1.dtype != np.int32:
        return {}
    zero_in, zero_out = input1_zp.reshape(()), output_zp.reshape(())
    value = input1 - zero_in
    return flags(
        r1=sub_overflows(input1, zero_in),
        **broken_by(negate_values(value.dtype), input1=value),
        r3=add_overflows(-value, zero_out),
    )
