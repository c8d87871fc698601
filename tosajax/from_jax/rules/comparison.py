"""Comparisons ("Comparison Operators", TOSA 1.0.1).

As in JAX, a comparison with NaN is false, except that `ne` is true, and 0.0 equals -0.0.
"""

from __future__ import annotations

import numpy as np

from tosajax.from_jax.rules._wide import widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


def gt(step: Step, x: Value, y: Value) -> Value:
    """GREATER; x and not y for bool."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_AND", x, _inverted(step, y))
    return step.op("GREATER", *widened(step, "GREATER", x, y))


def ge(step: Step, x: Value, y: Value) -> Value:
    """GREATER_EQUAL; x or not y for bool."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_OR", x, _inverted(step, y))
    return step.op("GREATER_EQUAL", *widened(step, "GREATER_EQUAL", x, y))


def lt(step: Step, x: Value, y: Value) -> Value:
    """GREATER with operands swapped."""
    return gt(step, y, x)


def le(step: Step, x: Value, y: Value) -> Value:
    """GREATER_EQUAL with operands swapped."""
    return ge(step, y, x)


def eq(step: Step, x: Value, y: Value) -> Value:
    """EQUAL; LOGICAL_NOT of LOGICAL_XOR for bool."""
    if x.dtype == np.bool_:
        return _inverted(step, step.op("LOGICAL_XOR", x, y))
    return step.op("EQUAL", *widened(step, "EQUAL", x, y))


def ne(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_NOT of EQUAL; LOGICAL_XOR for bool."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_XOR", x, y)
    return _inverted(step, eq(step, x, y))


def _inverted(step: Step, x: Value) -> Value:
    """LOGICAL_NOT of a value; constants are inverted at once."""
    if x.is_known:
        return Value(x.shape, x.dtype, ~np.asarray(x.held))
    return step.op("LOGICAL_NOT", x)


# Advice on primitives without a rule: TOSA cannot observe the sign of NaN.
HINTS = dict.fromkeys(("eq_to", "le_to", "lt_to"), "compare with ==, <= or <")

RULES = {"gt": gt, "ge": ge, "lt": lt, "le": le, "eq": eq, "ne": ne}
