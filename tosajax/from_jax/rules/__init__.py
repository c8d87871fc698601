"""The rules that write JAX's primitives as TOSA operators, by chapter.

A rule takes the Step and the operands, writes operators, and returns the results. JAX evaluates
equations on constants before rules see them, except for MOVES, whose rules keep broadcast constants
small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tosajax.from_jax.rules import (
    _hints,
    calls,
    comparison,
    control_flow,
    conv,
    cumulative,
    data_layout,
    elementwise_binary,
    elementwise_ternary,
    elementwise_unary,
    indices,
    operators,
    pool,
    products,
    reduction,
    sorting,
    type_conversion,
    updates,
)
from tosajax.from_jax.values import Value

Rule = Callable[..., Value | Sequence[Value]]

CHAPTERS = (
    calls,
    comparison,
    control_flow,
    conv,
    cumulative,
    data_layout,
    elementwise_binary,
    elementwise_ternary,
    elementwise_unary,
    indices,
    operators,
    pool,
    products,
    reduction,
    sorting,
    type_conversion,
    updates,
)

# Primitives that compute each element of the result from the operands' elements at the same index.
ELEMENTWISE = frozenset(
    name
    for chapter in (comparison, elementwise_binary, elementwise_ternary, elementwise_unary)
    for name in chapter.RULES
) | {"convert_element_type"}

# Primitives that only move elements; their rules handle constants as well.
MOVES = frozenset(data_layout.MOVES)

# Primitives that call functions; the equations inside have rules, or are on constants.
CALLS = frozenset(calls.RULES)

RULES: dict[str, Rule] = {
    name: rule for chapter in CHAPTERS for name, rule in chapter.RULES.items()
}

# Advice to users of primitives without a rule.
HINTS: dict[str, str] = dict(_hints.HINTS)
for _chapter in CHAPTERS:
    HINTS.update(getattr(_chapter, "HINTS", {}))
