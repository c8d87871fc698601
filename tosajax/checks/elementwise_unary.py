"""Rules of "Elementwise Unary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosajax.checks._common import input1_shape
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import ValueRule, constant_problems, zero_point

abs_shape = bitwise_not_shape = ceil_shape = clz_shape = cos_shape = input1_shape
exp_shape = floor_shape = log_shape = logical_not_shape = negate_shape = input1_shape
reciprocal_shape = rsqrt_shape = sin_shape = input1_shape


def abs_values(dtype: np.dtype) -> list[ValueRule]:
    """Rules of ABS on `input1` of type `dtype`."""
    return _more_than_the_least("r1", dtype)


def _more_than_the_least(rule: str, dtype: np.dtype) -> list[ValueRule]:
    """The rule that an int32 is not the minimum, whose negative does not fit int32."""
    if dtype != np.int32:
        return []
    least = np.iinfo(np.int32).min
    return [ValueRule(rule, "input1", lambda x, xp: x == least, f"more than {least}")]


def abs_undefined(c: Call) -> Iterator[Problem]:
    return constant_problems(c, abs_values(c.input1.dtype.storage))


def negate_zero_points(c: Call) -> Iterator[ValueRule]:
    yield from zero_point(c, "e1", "input1_zp")
    yield from zero_point(c, "e2", "output_zp")


def negate_values(dtype: np.dtype) -> list[ValueRule]:
    """Rules of NEGATE on `input1 - input1_zp` of type `dtype`."""
    return _more_than_the_least("r2", dtype)


def negate_undefined(c: Call) -> Iterator[Problem]:
    return constant_problems(c, negate_values(c.input1.dtype.storage))


def negate_errors(c: Call) -> Iterator[Problem]:
    return constant_problems(c, negate_zero_points(c))
