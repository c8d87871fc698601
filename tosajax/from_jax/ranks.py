"""Axes as one, where there are more than level 8K has."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from tosajax.spec import LEVELS

MAX_RANK = LEVELS["8K"].MAX_RANK


def neighbours(
    shapes: Sequence[Sequence[int]], apart: Container[int] = (), most: int = MAX_RANK
) -> list[list[int]]:
    """The axes of operands of equal rank, those together that can be one axis.

    Axes are one if each operand has all of them, or is 1 along all of them.

    Args:
      shapes: of the operands.
      apart: axes that stay alone.
      most: the rank up to which all axes stay alone.
    """
    rank = len(shapes[0])
    if rank <= most:
        return [[axis] for axis in range(rank)]
    groups: list[list[int]] = []
    kinds: list[tuple[bool, ...]] = []
    for axis in range(rank):
        kind = tuple(shape[axis] == 1 for shape in shapes)
        is_free = bool(groups) and axis not in apart and groups[-1][0] not in apart
        if is_free and (all(kind) or all(kinds[-1]) or kind == kinds[-1]):
            groups[-1].append(axis)
            kinds[-1] = kinds[-1] if all(kind) else kind
        else:
            groups.append([axis])
            kinds.append(kind)
    return groups


def merged(sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """A number for each group of axes: the product of its axes'."""
    return tuple(math.prod(sizes[axis] for axis in group) for group in groups)
