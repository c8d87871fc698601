"""Windows of an array, which start at indices: what gathers, scatters and dynamic slices share.

The array becomes [N, K, C] for GATHER and SCATTER: N are axes in which each index counts anew, K
those that indices point into, and C are the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tosajax.from_jax.rules.data_layout import joined
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known

_FEW = 4096  # indices that may be repeated, where otherwise the array were transposed


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of an array.

    Args:
      shape: of the array.
      batch: axes that the first axes of the starts stand for.
      axes: along which windows start at indices.
      sizes: of a window along these axes.
      count: of windows, in each batch.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    count: int

    @property
    def leading(self) -> tuple[int, ...]:
        """Axes before those of the indices: the same windows in each of their elements."""
        first = min(self.axes)
        free = [a for a in range(first) if a not in self.batch]
        behind = [a for a in range(first, len(self.shape)) if a not in (*self.batch, *self.axes)]
        indices = self.size(self.batch) * self.size(free) * self.count * math.prod(self.sizes)
        return tuple(free) if self.size(behind) > 1 or indices <= _FEW else ()

    @property
    def rest(self) -> tuple[int, ...]:
        """Axes of which a window has all elements."""
        taken = (*self.batch, *self.leading, *self.axes)
        return tuple(axis for axis in range(len(self.shape)) if axis not in taken)

    @property
    def pointed(self) -> tuple[int, ...]:
        """The axes of the indices in the array's order."""
        return tuple(sorted(self.axes))

    @property
    def order(self) -> tuple[int, ...]:
        """The array's axes as N, K and C."""
        return (*self.batch, *self.leading, *self.pointed, *self.rest)

    @property
    def n(self) -> int:
        return self.size((*self.batch, *self.leading))

    @property
    def k(self) -> int:
        return self.size(self.axes)

    @property
    def c(self) -> int:
        return self.size(self.rest)

    def along(self, kept: Sequence[int]) -> Windows:
        """The windows along some of the axes, where they have all elements along the others."""
        axes, sizes = (tuple(part[i] for i in kept) for part in (self.axes, self.sizes))
        return dataclasses.replace(self, axes=axes, sizes=sizes)

    @property
    def bounds(self) -> np.ndarray:
        """The largest start along each of the axes."""
        return np.array([self.shape[a] - n for a, n in zip(self.axes, self.sizes, strict=True)])

    def size(self, axes: Sequence[int]) -> int:
        return math.prod(self.shape[axis] for axis in axes)

    def size_along(self, axis: int) -> int:
        """Of a window along one of the axes of the indices."""
        return self.sizes[self.axes.index(axis)]

    def steps(self) -> np.ndarray:
        """How far apart neighbours along each of the axes are within K."""
        inner = [self.shape[a] for a in self.pointed]
        steps = {a: math.prod(inner[i + 1 :]) for i, a in enumerate(self.pointed)}
        return np.array([steps[axis] for axis in self.axes], np.int32)

    def offsets(self) -> np.ndarray:
        """The elements of a window within K, from its start."""
        steps = dict(zip(self.axes, self.steps(), strict=True))
        grids = np.ix_(*(np.arange(self.size_along(a)) * steps[a] for a in self.pointed))
        return np.asarray(sum(grids), np.int32).reshape(-1)


def listed(step: Step, indices: Value, batch: Sequence[int]) -> tuple[Value, tuple[int, ...]]:
    """Starts as int32 (batch, count, number of axes), and the order of their axes in it.

    Args:
      step: of the primitive.
      indices: integers (..., number of axes).
      batch: axes that stand for the batch.
    """
    others = (axis for axis in range(indices.rank - 1) if axis not in batch)
    order = (*batch, *others)
    starts = step.transpose(_int32(step, indices), (*order, indices.rank - 1))
    n = math.prod(indices.shape[axis] for axis in batch)
    count = math.prod(indices.shape[:-1]) // n
    return step.reshape(starts, (n, count, indices.shape[-1])), order


def from_zero(step: Step, starts: Value, count: int) -> Value:
    """The starts with those along more axes, which are all 0."""
    if not count:
        return starts
    zeros = known(np.zeros((*starts.shape[:2], count), np.int32))
    return joined(step, [starts, zeros], 2)


def stacked(step: Step, starts: Sequence[Value]) -> Value:
    """Scalars as the starts of one window, int32 (1, 1, number of axes)."""
    return joined(step, [step.reshape(_int32(step, x), (1, 1, 1)) for x in starts], 2)


def constant_starts(starts: Sequence[Value], tops: Sequence[int]) -> list[int]:
    """Scalars that are constants, clipped to the largest of each; 0 for others."""
    return [
        min(max(int(start.scalar), 0), top) if start.is_known else 0
        for start, top in zip(starts, tops, strict=True)
    ]


def _int32(step: Step, x: Value) -> Value:
    if not x.is_known:
        return step.cast(x, np.int32)
    limits = np.iinfo(np.int32)
    numbers = np.clip(np.asarray(x.held).astype(np.int64), limits.min, limits.max)
    return dataclasses.replace(x, dtype=np.dtype(np.int32), held=numbers.astype(np.int32))


def columns(step: Step, starts: Value, kept: Sequence[int]) -> Value:
    """The starts along some of the axes."""
    if len(kept) == starts.shape[-1]:
        return starts
    size = (*starts.shape[:-1], 1)
    return joined(step, [step.slice(starts, (0, 0, i), size) for i in kept], 2)


def without_bool(step: Step, x: Value) -> tuple[Value, np.dtype]:
    """The array as GATHER and SCATTER can have it, and its type."""
    return (step.cast(x, np.int8) if x.dtype == np.bool_ else x), x.dtype


def clipped(step: Step, starts: Value, windows: Windows) -> Value:
    """Starts whose windows lie within the array, as near as they can be."""
    top = windows.bounds.astype(np.int32)
    if starts.is_known:
        return known(np.clip(starts.elements.astype(np.int64), 0, top).astype(np.int32))
    limit = known(
        top[0] if (top == top[0]).all() else top.reshape((1,) * (starts.rank - 1) + (-1,))
    )
    low = step.op("MAXIMUM", starts, step.like(0, starts))
    return step.op("MINIMUM", low, limit)


def are_inside(step: Step, starts: Value, windows: Windows) -> Value:
    """Whether windows lie within the array: bool, the starts' shape without the last axis."""
    top = windows.bounds
    if starts.is_known:
        numbers = starts.elements.astype(np.int64)
        return known(((numbers >= 0) & (numbers <= top)).all(-1))
    limit = known(top.astype(np.int32).reshape((1,) * (starts.rank - 1) + (-1,)))
    low = step.op("GREATER_EQUAL", starts, step.like(0, starts))
    both = step.op("LOGICAL_AND", low, step.op("GREATER_EQUAL", limit, starts))
    if starts.shape[-1] > 1:
        both = step.op("REDUCE_ALL", both, axis=starts.rank - 1)
    return step.reshape(both, starts.shape[:-1])


def linear(step: Step, starts: Value, windows: Windows) -> Value:
    """The elements of all windows within K.

    Args:
      step: of the primitive.
      starts: int32 (batch, count, number of axes).
      windows: that start there.

    Returns:
      int32 (batch, count * elements of a window).
    """
    batch, count, steps, offsets = (
        starts.shape[0],
        starts.shape[1],
        windows.steps(),
        windows.offsets(),
    )
    if starts.is_known:
        first = (starts.elements.astype(np.int64) * steps).sum(-1)
        return known((first[..., None] + offsets).astype(np.int32).reshape(batch, -1))
    if len(steps) > 1:
        by_axis = step.op("MUL", starts, known(steps.reshape(1, 1, -1)), step.constant([0], "int8"))
        starts = step.op("REDUCE_SUM", by_axis, axis=2)
    if len(offsets) > 1:
        starts = step.op("ADD", starts, known(offsets.reshape(1, 1, -1)))
    return step.reshape(starts, (batch, count * len(offsets)))


def for_each_leading(step: Step, indices: Value, windows: Windows) -> Value:
    """Indices (batch, W) as (N, W): the same along the leading axes."""
    batch, count = indices.shape
    if batch == 1:
        return step.whole(dataclasses.replace(indices, shape=(windows.n, count)))
    leading = windows.n // batch
    spread = step.broadcast(indices, (batch, leading, count), (0, 2))
    return step.reshape(spread, (windows.n, count))
