"""Iterates over the examples on the first axis of NumPy arrays, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

# Wraps the iterable of a loop, given its length.
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def silent(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """A progress that shows nothing."""
    return steps


def in_parts(
    rows: Sequence[np.ndarray], size: int, progress: Progress = silent
) -> Iterator[list[np.ndarray]]:
    """Yields arrays in parts of at most `size` examples; one empty part if there are no arrays."""
    count = len(rows[0]) if rows else 1
    for start in progress(range(0, count, size), -(-count // size)):
        yield [x[start : start + size] for x in rows]


def filled(rows: np.ndarray, size: int) -> np.ndarray:
    """Fills an array up to `size` examples by repeating the last one."""
    missing = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing else rows
