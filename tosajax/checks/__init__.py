"""The rules of each operator, by chapter.

A rule function is found by name; for CONV2D in chapter conv:

- `conv.conv2d_shape`: the output shapes;
- `conv.conv2d_errors`: ERROR_IF rules;
- `conv.conv2d_zero_points`: ERROR_IF rules on zero points, which may be known only at run time;
- `conv.conv2d_levels`: limits of the level;
- `conv.conv2d_undefined`: REQUIRE rules that can be checked before the graph runs;
- `require.conv.conv2d_require`: REQUIRE rules on values, as traced flags, one for each rule.

Checks common to all operators (argument counts, types, ranks, compile-time constants) come from
the table; `validate` makes them.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from tosajax import spec
from tosajax.checks.call import Call, Problem, Surroundings
from tosajax.checks.values import ValueRule
from tosajax.spec import Level, Operator

if TYPE_CHECKING:
    import jax


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rule functions of one operator; None for each kind of rule that it does not have."""

    operator: Operator
    shape: Callable[[Call], tuple[tuple[int, ...], ...]] | None
    errors: Callable[[Call], Iterator[Problem]] | None
    levels: Callable[[Call, Level], Iterator[Problem]] | None
    undefined: Callable[[Call], Iterator[Problem]] | None
    zero_points: Callable[[Call], Iterator[ValueRule]] | None

    @functools.cached_property
    def require(self) -> Callable[..., dict[str, jax.Array]] | None:
        """The rules on values; imported on first use, because only they need JAX."""
        chapter = _chapter(f"tosajax.checks.require.{self.operator.chapter}")
        return getattr(chapter, f"{self.operator.name.lower()}_require", None)


def _rules(operator: Operator) -> Rules:
    chapter = _chapter(f"tosajax.checks.{operator.chapter}")
    kinds = ("shape", "errors", "levels", "undefined", "zero_points")
    return Rules(
        operator, *(getattr(chapter, f"{operator.name.lower()}_{kind}", None) for kind in kinds)
    )


def _chapter(name: str) -> ModuleType | None:
    return None if importlib.util.find_spec(name) is None else importlib.import_module(name)


RULES = {operator.name: _rules(operator) for operator in spec.OPERATORS.values()}

__all__ = ["RULES", "Call", "Problem", "Rules", "Surroundings", "ValueRule"]
