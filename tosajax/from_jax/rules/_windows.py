"""Windows of an array that start at indices, for gathers, scatters and dynamic slices.

GATHER and SCATTER take the array as [N, K, C]: N merges batch axes, each with its own indices, K
merges the indexed axes, and C merges the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tosajax.from_jax.rules.data_layout import joined
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known

_FEW = 4096  # the most indices to repeat along leading axes, which avoids a TRANSPOSE of the array


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of an array.

    Args:
      shape: the shape of the array.
      batch: the batch axes of the array, which correspond to the first axes of the starts.
      axes: the indexed axes, along which windows start at indices.
      sizes: the sizes of a window along the indexed axes.
      count: the number of windows in each batch.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    count: int

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes before the indexed ones that are merged into N, with repeated indices.

        () if merging them into C, after a TRANSPOSE, is better.
        """
        first = min(self.axes)
        free = [a for a in range(first) if a not in self.batch]
        behind = [a for a in range(first, len(self.shape)) if a not in (*self.batch, *self.axes)]
        indices = self.size(self.batch) * self.size(free) * self.count * math.prod(self.sizes)
        return tuple(free) if self.size(behind) > 1 or indices <= _FEW else ()

    @property
    def rest(self) -> tuple[int, ...]:
        """The axes that are merged into C; windows cover them completely."""
        taken = (*self.batch, *self.leading, *self.axes)
        return tuple(axis for axis in range(len(self.shape)) if axis not in taken)

    @property
    def pointed(self) -> tuple[int, ...]:
        """The indexed axes in the array's order."""
        return tuple(sorted(self.axes))

    @property
    def order(self) -> tuple[int, ...]:
        """The array's axes in the order of N, K and C."""
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

    def along(self, places: Sequence[int]) -> Windows:
        """The windows with only some of the indexed axes; they cover the dropped axes completely.

        Args:
          places: positions in `axes`.
        """
        axes, sizes = (tuple(part[i] for i in places) for part in (self.axes, self.sizes))
        return dataclasses.replace(self, axes=axes, sizes=sizes)

    @property
    def bounds(self) -> np.ndarray:
        """The largest start along each of the indexed axes."""
        return np.array([self.shape[a] - n for a, n in zip(self.axes, self.sizes, strict=True)])

    def size(self, axes: Sequence[int]) -> int:
        return math.prod(self.shape[axis] for axis in axes)

    def size_along(self, axis: int) -> int:
        """The size of a window along one of the indexed axes."""
        return self.sizes[self.axes.index(axis)]

    def steps(self) -> np.ndarray:
        """The stride within K of each of the indexed axes."""
        inner = [self.shape[a] for a in self.pointed]
        steps = {a: math.prod(inner[i + 1 :]) for i, a in enumerate(self.pointed)}
        return np.array([steps[axis] for axis in self.axes], np.int32)

    def offsets(self) -> np.ndarray:
        """The offsets within K of a window's elements from its start."""
        steps = dict(zip(self.axes, self.steps(), strict=True))
        grids = np.ix_(*(np.arange(self.size_along(a)) * steps[a] for a in self.pointed))
        return np.asarray(sum(grids), np.int32).reshape(-1)


def listed(step: Step, indices: Value, batch: Sequence[int]) -> tuple[Value, tuple[int, ...]]:
    """The starts as int32 (batch, count, number of axes), and the order of axes in them.

    Args:
      step: the primitive.
      indices: integers (..., number of axes).
      batch: the batch axes of the indices.

    Returns:
      The starts, and the axes of `indices` that were merged into batch and count, in order.
    """
    others = (axis for axis in range(indices.rank - 1) if axis not in batch)
    order = (*batch, *others)
    starts = step.transpose(_int32(step, indices), (*order, indices.rank - 1))
    n = math.prod(indices.shape[axis] for axis in batch)
    count = math.prod(indices.shape[:-1]) // n
    return step.reshape(starts, (n, count, indices.shape[-1])), order


def from_zero(step: Step, starts: Value, count: int) -> Value:
    """The starts extended by a number of axes along which all windows start at 0."""
    if not count:
        return starts
    zeros = known(np.zeros((*starts.shape[:2], count), np.int32))
    return joined(step, [starts, zeros], 2)


def stacked(step: Step, starts: Sequence[Value]) -> Value:
    """Stacks scalars to the starts of one window, int32 (1, 1, number of axes)."""
    return joined(step, [step.reshape(_int32(step, x), (1, 1, 1)) for x in starts], 2)


def constant_starts(starts: Sequence[Value], tops: Sequence[int]) -> list[int]:
    """Starts that are constant, clipped to [0, top]; 0 for all others."""
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


def columns(step: Step, starts: Value, places: Sequence[int]) -> Value:
    """The starts along some of the indexed axes."""
    if len(places) == starts.shape[-1]:
        return starts
    size = (*starts.shape[:-1], 1)
    return joined(step, [step.slice(starts, (0, 0, i), size) for i in places], 2)


def without_bool(step: Step, x: Value) -> tuple[Value, np.dtype]:
    """The array for GATHER and SCATTER, which do not take bool, and its old dtype."""
    return (step.cast(x, np.int8) if x.dtype == np.bool_ else x), x.dtype


def clipped(step: Step, starts: Value, windows: Windows) -> Value:
    """The starts clipped so that all windows are within the array."""
    top = windows.bounds.astype(np.int32)
    if starts.is_known:
        return known(np.clip(starts.elements.astype(np.int64), 0, top).astype(np.int32))
    limit = known(
        top[0] if (top == top[0]).all() else top.reshape((1,) * (starts.rank - 1) + (-1,))
    )
    low = step.op("MAXIMUM", starts, step.like(0, starts))
    return step.op("MINIMUM", low, limit)


def are_inside(step: Step, starts: Value, windows: Windows) -> Value:
    """Whether windows are within the array: bool, the shape of the starts without the last axis."""
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
    """The indices within K of all elements of the windows.

    Args:
      step: the primitive.
      starts: int32 (batch, count, number of axes).
      windows: the windows that start there.

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
    """Expands indices (batch, W) to (N, W): repeats them along the leading axes."""
    batch, count = indices.shape
    if batch == 1:
        return step.whole(dataclasses.replace(indices, shape=(windows.n, count)))
    leading = windows.n // batch
    spread = step.broadcast(indices, (batch, leading, count), (0, 2))
    return step.reshape(spread, (windows.n, count))
