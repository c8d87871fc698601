"""Rows: the examples on the first axis of NumPy arrays, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

# Wraps the steps of a loop, given their number.
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def silent(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """The progress that nobody sees."""
    return steps


def in_parts(
    rows: Sequence[np.ndarray], size: int, progress: Progress = silent
) -> Iterator[list[np.ndarray]]:
    """Arrays in parts of at most `size` examples; one empty part where there are no arrays."""
    count = len(rows[0]) if rows else 1
    for start in progress(range(0, count, size), -(-count // size)):
        yield [x[start : start + size] for x in rows]


def filled(rows: np.ndarray, size: int) -> np.ndarray:
    """`size` examples: where there are fewer, the last one repeats."""
    missing = size - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing else rows
