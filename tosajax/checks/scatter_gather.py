"""Rules of "Scatter/Gather Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tosajax.checks._common import Shapes
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import ValueRule, constant_problems, in_range


def gather_shape(c: Call) -> Shapes:
    n, count = c.indices.shape
    return ((n, count, c.values.shape[-1]),)


def scatter_shape(c: Call) -> Shapes:
    return (c.values_in.shape,)


def gather_values(count: int) -> list[ValueRule]:
    """Rules of GATHER's indices into `count` elements."""
    return [in_range("r1", "indices", 0, count - 1)]


def gather_undefined(c: Call) -> Iterator[Problem]:
    return constant_problems(c, gather_values(c.values.shape[1]))


def scatter_values(count: int) -> list[ValueRule]:
    """Rules of SCATTER's indices into `count` elements; no index may occur twice in a batch."""

    def is_repeated(indices: Any, xp: Any) -> Any:
        order = xp.argsort(indices, axis=1, stable=True)
        ordered = xp.take_along_axis(indices, order, axis=1)
        again = xp.pad(ordered[:, 1:] == ordered[:, :-1], ((0, 0), (1, 0)))
        places = xp.argsort(order, axis=1)
        return xp.take_along_axis(again, places, axis=1) & (indices >= 0) & (indices < count)

    wanted = "each index once in a batch"
    return [
        in_range("r1", "indices", 0, count - 1),
        ValueRule("r2", "indices", is_repeated, wanted),
    ]


def scatter_undefined(c: Call) -> Iterator[Problem]:
    _, count, _ = c.values_in.shape
    _, width = c.indices.shape
    if width > count:
        message = f"indices has W {width}, expected at most {count}, K of values_in"
        yield c.problem("r2", f"{message}: each index occurs once")
    yield from constant_problems(c, scatter_values(count)[: 1 if width > count else 2])
