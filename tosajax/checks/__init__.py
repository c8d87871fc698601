"""The rules of each operator, by chapter.

A rule function is found by name; for CONV2D in chapter conv:

- `conv.conv2d_shape`: the output shapes;
- `conv.conv2d_errors`: ERROR_IF rules;
- `conv.conv2d_levels`: limits of the level;
- `conv.conv2d_undefined`: REQUIRE rules that can be judged before the graph runs;
- `conv.conv2d_require`: REQUIRE rules on values, as traced flags that say which are broken.

What holds for every operator (argument counts, types, ranks, compile-time constants) comes from
the table and is checked in `validate`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from tosajax import spec
from tosajax.checks.call import Call, Problem, Surroundings
from tosajax.spec import Level, Operator


class Rules(NamedTuple):
    """The rule functions of one operator; None where it has no rule of the kind."""

    shape: Callable[[Call], tuple[tuple[int, ...], ...]] | None
    errors: Callable[[Call], Iterator[Problem]] | None
    levels: Callable[[Call, Level], Iterator[Problem]] | None
    undefined: Callable[[Call], Iterator[Problem]] | None
    require: Callable[..., dict[str, jax.Array]] | None


def _rules(operator: Operator) -> Rules:
    module = f"tosajax.checks.{operator.chapter}"
    if importlib.util.find_spec(module) is None:
        return Rules(*(None for _ in Rules._fields))
    chapter = importlib.import_module(module)
    name = operator.name.lower()
    return Rules(*(getattr(chapter, f"{name}_{kind}", None) for kind in Rules._fields))


RULES = {operator.name: _rules(operator) for operator in spec.OPERATORS.values()}

__all__ = ["RULES", "Call", "Problem", "Rules", "Surroundings"]
