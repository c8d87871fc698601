"""Elementwise primitives of three operands ("Elementwise Ternary Operators", TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosajax.from_jax.rules._wide import has_type, in_wide_type, widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.spec import NanMode


def select_n(step: Step, which: Value, *cases: Value) -> Value:
    """SELECT; a chain of SELECTs if `which` is an integer, which is clamped to the cases."""
    number = _number(which)
    if number is not None:
        return cases[min(max(number, 0), len(cases) - 1)]
    if which.dtype == np.bool_:
        return _select(step, which, cases[-1], cases[0])
    return _chain(step, which, cases)


def _number(which: Value) -> int | None:
    """The integer that all elements of a constant are; None if there is none."""
    if not which.is_known or not which.size:
        return None
    numbers = np.asarray(which.held)
    first = int(numbers.flat[0])
    return first if (numbers == first).all() else None


def _chain(step: Step, which: Value, cases: Sequence[Value]) -> Value:
    """Case 0 if `which` is below 1, else case 1 if it is below 2, and so on."""
    result = cases[-1]
    for number in range(len(cases) - 1, 0, -1):
        is_below = step.op("GREATER", step.like(number, which), which)
        result = _select(step, is_below, cases[number - 1], result)
    return result


def _select(step: Step, which: Value, if_true: Value, if_false: Value) -> Value:
    if_true, if_false = widened(step, "SELECT", if_true, if_false)
    return step.cast(step.op("SELECT", which, if_true, if_false), step.out.dtype)


def clamp(step: Step, low: Value, x: Value, high: Value) -> Value:
    """CLAMP for constant bounds, if it has the type; else MAXIMUM and MINIMUM.

    As in JAX, the upper bound wins if it is below the lower one. NaN propagates, from bounds also.
    """
    ends = low.scalar, high.scalar
    if has_type(step, "CLAMP", x) and None not in ends and low.scalar <= high.scalar:
        return step.op("CLAMP", x, min_val=ends[0], max_val=ends[1], nan_mode=NanMode.PROPAGATE)
    lower = in_wide_type(step, "MAXIMUM", x, low, nan_mode=NanMode.PROPAGATE)
    return in_wide_type(step, "MINIMUM", lower, high, nan_mode=NanMode.PROPAGATE)


RULES = {"select_n": select_n, "clamp": clamp}
