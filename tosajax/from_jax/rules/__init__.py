"""The rule of each primitive of JAX, by chapter.

A rule takes the Step and the operands, writes operators, and returns the results. Constants are
computed by JAX before rules see them, but for MOVES, which keep them small.
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

# Chapters whose primitives compute each element of the result from the elements at its place.
ELEMENTWISE = frozenset(
    name
    for chapter in (comparison, elementwise_binary, elementwise_ternary, elementwise_unary)
    for name in chapter.RULES
) | {"convert_element_type"}

# Primitives that only move elements: their rules move those of constants as well.
MOVES = frozenset(data_layout.MOVES)

# Primitives that call functions: equations inside of them have rules, or are of constants.
CALLS = frozenset(calls.RULES)

RULES: dict[str, Rule] = {
    name: rule for chapter in CHAPTERS for name, rule in chapter.RULES.items()
}

# What a user could do about primitives that have no rule.
HINTS: dict[str, str] = dict(_hints.HINTS)
for _chapter in CHAPTERS:
    HINTS.update(getattr(_chapter, "HINTS", {}))
