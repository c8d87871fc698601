"""Iterates over the examples on the first axis of values in NumPy arrays, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

# Wraps the iterable of a loop, given its length.
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def silent(steps: Iterable[Any], total: int) -> Iterable[Any]:
    """A progress that shows nothing."""
    return steps


def in_parts(rows: Sequence[Any], size: int, progress: Progress = silent) -> Iterator[list[Any]]:
    """Yields values in parts of at most `size` examples; one empty part if there are no values."""
    count = rows[0].shape[0] if rows else 1
    for start in progress(range(0, count, size), -(-count // size)):
        yield [examples(x, start, start + size) for x in rows]


def examples(rows: Any, start: int, end: int | None = None) -> Any:
    """Some of the examples of a value."""
    return jax.tree.map(lambda x: x[start:end], rows)


def filled(rows: Any, size: int) -> Any:
    """Fills a value up to `size` examples by repeating the last one."""
    missing = size - rows.shape[0]
    if not missing:
        return rows
    return jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]), rows)
