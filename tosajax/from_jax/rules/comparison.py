"""Comparisons ("Comparison Operators", TOSA 1.0.1).

As in JAX, a comparison with NaN is false, but `ne` is true, and the sign of zero does not count.
"""

from __future__ import annotations

import numpy as np

from tosajax.from_jax.rules._wide import widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


def gt(step: Step, x: Value, y: Value) -> Value:
    """GREATER; of bool, x and not y."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_AND", x, _inverted(step, y))
    return step.op("GREATER", *widened(step, "GREATER", x, y))


def ge(step: Step, x: Value, y: Value) -> Value:
    """GREATER_EQUAL; of bool, x or not y."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_OR", x, _inverted(step, y))
    return step.op("GREATER_EQUAL", *widened(step, "GREATER_EQUAL", x, y))


def lt(step: Step, x: Value, y: Value) -> Value:
    """GREATER the other way round."""
    return gt(step, y, x)


def le(step: Step, x: Value, y: Value) -> Value:
    """GREATER_EQUAL the other way round."""
    return ge(step, y, x)


def eq(step: Step, x: Value, y: Value) -> Value:
    """EQUAL; of bool, neither differs."""
    if x.dtype == np.bool_:
        return _inverted(step, step.op("LOGICAL_XOR", x, y))
    return step.op("EQUAL", *widened(step, "EQUAL", x, y))


def ne(step: Step, x: Value, y: Value) -> Value:
    """What EQUAL is not; LOGICAL_XOR of bool."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_XOR", x, y)
    return _inverted(step, eq(step, x, y))


def _inverted(step: Step, x: Value) -> Value:
    """LOGICAL_NOT, also of constants."""
    if x.is_known:
        return Value(x.shape, x.dtype, ~np.asarray(x.held))
    return step.op("LOGICAL_NOT", x)


# What to do about primitives that have no rule: TOSA does not show the sign of NaN.
HINTS = dict.fromkeys(("eq_to", "le_to", "lt_to"), "compare with ==, <= or <")

RULES = {"gt": gt, "ge": ge, "lt": lt, "le": le, "eq": eq, "ne": ne}
