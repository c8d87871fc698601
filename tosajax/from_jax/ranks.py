"""Merges axes of tensors whose rank exceeds MAX_RANK of level 8K."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from tosajax.spec import LEVELS

MAX_RANK = LEVELS["8K"].MAX_RANK


def neighbours(
    shapes: Sequence[Sequence[int]], apart: Container[int] = (), most: int = MAX_RANK
) -> list[list[int]]:
    """Groups neighbouring axes that can be merged into one.

    Axes can be merged if each operand has size 1 along all of them or along none. An axis along
    which all operands have size 1 can be merged with any.

    Args:
      shapes: the shapes of the operands, of equal rank.
      apart: axes that are not merged.
      most: the rank up to which no axes are merged.

    Returns:
      The axes of each group, in order.
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
    """The size of each group of axes: the product of its axes' sizes."""
    return tuple(math.prod(sizes[axis] for axis in group) for group in groups)
