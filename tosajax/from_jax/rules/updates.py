"""Primitives that write elements at indices: SCATTER ("Scatter/Gather Operators", TOSA 1.0.1).

SCATTER does not allow repeated indices. If indices may repeat, each element is compared with all
indices to find its last update, or all its updates. Constant indices are written as blocks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.lax import GatherScatterMode

from tosajax.from_jax.rules._wide import has_type
from tosajax.from_jax.rules._windows import (
    Windows,
    are_inside,
    clipped,
    columns,
    constant_starts,
    for_each_leading,
    from_zero,
    linear,
    listed,
    stacked,
    without_bool,
)
from tosajax.from_jax.rules.data_layout import joined, padded
from tosajax.from_jax.rules.indices import arranged
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known

_FEW_RUNS = 5  # the most blocks of a CONCAT to write instead of a CONCAT and a GATHER
_MOST_ROUNDS = 16  # the most updates at one constant index to write one by one
_MOST_ELEMENTS = 2**24  # the most elements in a comparison of all indices with all places


class Combine(NamedTuple):
    """The combination of an element with its updates.

    Args:
      function: combines an element and an update.
      reduce: reduces many updates to one update for `function`.
      neutral: returns the update that changes nothing, given a dtype.
    """

    function: Callable[..., jax.Array]
    reduce: Callable[..., jax.Array]
    neutral: Callable[[Any], Any]


def _lowest(dtype: Any) -> Any:
    return -np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return np.inf if jnp.issubdtype(dtype, np.floating) else jnp.iinfo(dtype).max


def _negative_zero(dtype: Any) -> Any:
    """The identity of addition: -0.0 for floats, which keeps -0.0."""
    return -0.0 if jnp.issubdtype(dtype, np.floating) else 0


_ADD = Combine(lax.add, jnp.sum, _negative_zero)
_SUB = Combine(lax.sub, jnp.sum, lambda dtype: 0)
_MUL = Combine(lax.mul, jnp.prod, lambda dtype: 1)
_MIN = Combine(lax.min, jnp.min, _highest)
_MAX = Combine(lax.max, jnp.max, _lowest)


class _Updates(NamedTuple):
    """Updates of an array.

    Args:
      x: the array.
      windows: the windows to update.
      starts: the starts of the windows, int32 (batch, count, axes).
      inside: whether each window is updated, bool (batch, count); None if all are.
      rows: the updates, (N, count * elements of a window, C).
      block: the updates in the array's rank, if there is one window in each batch, else None.
      is_told: whether `starts` still shows which windows are out of bounds, as no indexed axis was
        dropped from it.
    """

    x: Value
    windows: Windows
    starts: Value
    inside: Value | None
    rows: Value
    block: Value | None
    is_told: bool = True

    @property
    def values(self) -> tuple[int, int, int]:
        """The shape of the array for SCATTER."""
        return self.windows.n, self.windows.k, self.windows.c


def scatter(
    step: Step, x: Value, indices: Value, updates: Value, combine: Combine | None = None
) -> Value:
    """SCATTER at unique indices; else each place is compared with all indices, for its updates."""
    if updates.size == 0:
        return x
    if combine is not None and x.dtype == np.bool_:
        wide = (step.cast(value, np.int32) for value in (x, updates))
        x, updates = wide
        result = _scattered(step, _updates(step, x, indices, updates), combine)
        return step.cast(result, np.bool_)
    return _scattered(step, _updates(step, x, indices, updates), combine)


def _updates(step: Step, x: Value, indices: Value, updates: Value) -> _Updates:
    """The updates of a scatter."""
    numbers = step.params["dimension_numbers"]
    batch, axes = numbers.operand_batching_dims, list(numbers.scatter_dims_to_operand_dims)
    sizes = _window_sizes(numbers, x, updates)
    starts, index_axes = listed(step, indices, numbers.scatter_indices_batching_dims)
    free = [a for a in sizes if a not in (*axes, *batch)]
    short = [a for a in free if sizes[a] < x.shape[a]] if axes else free
    indexed = range(len(axes))
    starts, axes = from_zero(step, starts, len(short)), [*axes, *short]
    windows = Windows(x.shape, batch, tuple(axes), tuple(sizes[a] for a in axes), starts.shape[1])
    starts, inside = _in_bounds(step, starts, windows)
    places = [i for i, a in enumerate(axes) if sizes[a] < x.shape[a]] or [0]
    starts, windows = columns(step, starts, places), windows.along(places)
    rows, block = _arranged_updates(step, numbers, updates, windows, index_axes)
    return _Updates(x, windows, starts, inside, rows, block, is_told={*indexed} <= {*places})


def _window_sizes(numbers: lax.ScatterDimensionNumbers, x: Value, updates: Value) -> dict[int, int]:
    """The size of a window along each axis of the array."""
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    axes = [axis for axis in range(x.rank) if axis not in gone]
    sizes = dict.fromkeys(range(x.rank), 1)
    for axis, at in zip(axes, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[at]
    return sizes


def _arranged_updates(
    step: Step,
    numbers: lax.ScatterDimensionNumbers,
    updates: Value,
    windows: Windows,
    index_axes: Sequence[int],
) -> tuple[Value, Value | None]:
    """The updates as rows, and as a block if there is one window in each batch."""
    batch, rank = windows.batch, len(windows.shape)
    gone = (*numbers.inserted_window_dims, *batch)
    of_operand = iter(("operand", axis) for axis in range(rank) if axis not in gone)
    of_indices = iter(("index", axis) for axis in range(len(index_axes)))
    labels = [
        next(of_operand) if at in numbers.update_window_dims else next(of_indices)
        for at in range(updates.rank)
    ]
    sizes: dict[Hashable, int] = dict(zip(labels, updates.shape, strict=True))

    def ordered(axes: Sequence[Hashable]) -> Value:
        return arranged(step, updates, labels, {a: sizes[a] for a in axes if a in sizes})

    in_batch, others = index_axes[: len(batch)], index_axes[len(batch) :]
    leading, inner = windows.leading, (*windows.pointed, *windows.rest)
    rows = ordered(
        [
            *(("index", axis) for axis in in_batch),
            *(("operand", axis) for axis in leading),
            *(("index", axis) for axis in others),
            *(("operand", axis) for axis in inner),
        ]
    )
    rows = step.reshape(rows, (windows.n, rows.size // (windows.n * windows.c), windows.c))
    if windows.count > 1:
        return rows, None
    as_index = dict(zip(batch, in_batch, strict=True))
    axes = [("index", as_index[a]) if a in batch else ("operand", a) for a in range(rank)]
    return rows, step.reshape(ordered(axes), [sizes.get(axis, 1) for axis in axes])


def _in_bounds(step: Step, starts: Value, windows: Windows) -> tuple[Value, Value | None]:
    """The starts, and whether each window is updated; None if all are."""
    if step.params["mode"] == GatherScatterMode.CLIP:
        return clipped(step, starts, windows), None
    if not starts.is_known and step.params["mode"] == GatherScatterMode.PROMISE_IN_BOUNDS:
        step.note("SCATTER", "indices out of bounds are unpredictable, where JAX drops updates")
        return starts, None
    inside = are_inside(step, starts, windows)
    return starts, None if inside.is_known and inside.elements.all() else inside


def _scattered(step: Step, to: _Updates, combine: Combine | None) -> Value:
    if to.starts.is_known:
        return _at_constants(step, to, combine)
    if to.block is not None and max(to.windows.sizes) == 1 and has_type(step, "SELECT", to.x):
        is_complete = to.inside is None or (to.is_told and len(to.windows.axes) == 1)
        masks = [] if is_complete or to.inside is None else [_along_batch(step, to.inside, to)]
        return _select_at(step, to, to.block, masks, combine)
    if to.windows.count == 1 or step.params["unique_indices"]:
        return _at_unique(step, to, combine)
    return _at_any(step, to, combine)


# One place: each element is compared with the index.


def _select_at(
    step: Step, to: _Updates, block: Value, masks: Sequence[Value], combine: Combine | None
) -> Value:
    """SELECT of the update for the elements at its index; none if the index is out of bounds.

    Args:
      step: the primitive.
      to: the updates.
      block: the update, of size 1 along the indexed axes.
      masks: further conditions that an element to update has to meet.
      combine: the combination with the old element; None to replace it.
    """
    x = to.x
    for i, axis in enumerate(to.windows.axes):
        at = _along_batch(step, columns(step, to.starts, [i]), to)
        places = known(np.arange(x.shape[axis], dtype=np.int32))
        masks = [*masks, step.op("EQUAL", step.broadcast(places, x.shape, (axis,)), at)]
    mask = functools.reduce(lambda a, b: step.op("LOGICAL_AND", a, b), masks)
    new = step.broadcast(block, x.shape, range(x.rank))
    if combine is not None:
        new = step.jax(combine.function, x, new)
    return step.op("SELECT", mask, new, x)


def _along_batch(step: Step, value: Value, to: _Updates) -> Value:
    """Reshapes one number for each batch to the array's rank."""
    batch = to.windows.batch
    return step.reshape(value, [n if a in batch else 1 for a, n in enumerate(to.x.shape)])


# Unique indices: SCATTER.


def _at_unique(step: Step, to: _Updates, combine: Combine | None) -> Value:
    """SCATTER; dropped updates are written to extra rows after the array's, and sliced off."""
    n, k, c = to.values
    x, back = without_bool(step, to.x)
    rows, _ = without_bool(step, to.rows)
    values = step.reshape(step.transpose(x, to.windows.order), (n, k, c))
    count = rows.shape[1]
    indices = linear(step, to.starts, to.windows)
    if to.inside is not None:
        behind = known(np.arange(k, k + count, dtype=np.int32).reshape(1, -1))
        indices = step.op("SELECT", _for_elements(step, to), indices, behind)
        values = padded(step, values, ((0, 0), (0, count), (0, 0)), step.like(0, values))
    indices = for_each_leading(step, indices, to.windows)
    if combine is not None:
        rows = step.jax(combine.function, step.op("GATHER", values, indices), rows)
    scattered = step.op("SCATTER", values, indices, rows)
    return step.cast(_in_place(step, step.slice(scattered, (0, 0, 0), (n, k, c)), to), back)


def _for_elements(step: Step, to: _Updates) -> Value:
    """Whether each element of the windows is updated, bool (batch, W)."""
    assert to.inside is not None
    batch, count = to.inside.shape
    size = to.rows.shape[1] // count
    spread = step.broadcast(to.inside, (batch, count, size), (0, 1))
    return step.reshape(spread, (batch, count * size))


def _in_place(step: Step, values: Value, to: _Updates) -> Value:
    """Reshapes and transposes (N, K, C) back to the array."""
    order = to.windows.order
    spread = step.reshape(values, [to.x.shape[axis] for axis in order])
    return step.transpose(spread, [order.index(axis) for axis in range(len(order))])


# Indices that may repeat: each place is compared with all indices.


def _at_any(step: Step, to: _Updates, combine: Combine | None) -> Value:
    n, k, c = to.values
    batch, count = to.starts.shape[0], to.rows.shape[1]
    indices = linear(step, to.starts, to.windows)
    is_plain = to.is_told and len(to.windows.axes) == 1 and count == to.windows.count
    if to.inside is not None and not is_plain:
        indices = step.op("SELECT", _for_elements(step, to), indices, step.like(-1, indices))
    places = known(np.arange(k, dtype=np.int32).reshape(1, k, 1))
    hits = step.op("EQUAL", step.reshape(indices, (batch, 1, count)), places)
    x, back = without_bool(step, to.x)
    rows, _ = without_bool(step, to.rows)
    values = step.reshape(step.transpose(x, to.windows.order), (n, k, c))
    if combine is None:
        results = _last_updates(step, to, hits, values, rows)
    else:
        results = _reduced_updates(step, hits, values, rows, combine)
    return step.cast(_in_place(step, results, to), back)


def _last_updates(step: Step, to: _Updates, hits: Value, values: Value, rows: Value) -> Value:
    """Each element's last update, or its old value: a GATHER from values and updates together."""
    _, k, count = hits.shape
    _check_size(step, hits.size, count, k)
    old, new = np.arange(k, dtype=np.int32), np.arange(k, k + count, dtype=np.int32)
    which = step.op("SELECT", hits, known(new.reshape(1, 1, -1)), known(old.reshape(1, -1, 1)))
    last = step.op("REDUCE_MAX", which, axis=2)
    last = for_each_leading(step, step.reshape(last, last.shape[:2]), to.windows)
    return step.op("GATHER", joined(step, [values, rows], 1), last)


def _reduced_updates(
    step: Step, hits: Value, values: Value, rows: Value, combine: Combine
) -> Value:
    """Combines each element with the reduction of all its updates."""
    (batch, k, count), (n, _, c) = hits.shape, rows.shape
    _check_size(step, n * k * count * c, count, k)
    hits = step.reshape(hits, (batch, 1, k, count, 1))
    rows = step.reshape(rows, (batch, n // batch, 1, count, c))
    neutral = step.like(combine.neutral(rows.dtype), rows)
    chosen = step.op("SELECT", hits, rows, neutral)
    if combine.reduce in (jnp.sum, jnp.prod):
        if jnp.issubdtype(rows.dtype, np.floating):
            step.note("sums of all updates of an element", "floats are added in another order")
        total = step.jax(lambda a: combine.reduce(a, axis=3, dtype=a.dtype), chosen)
    else:
        total = step.jax(lambda a: combine.reduce(a, axis=3), chosen)
    return step.jax(combine.function, values, step.reshape(total, values.shape))


def _check_size(step: Step, size: int, count: int, places: int) -> None:
    if size > _MOST_ELEMENTS:
        raise step.unsupported(
            f"{count} updates of {places} places at indices that may repeat",
            "fewer, as each update is compared with each place",
            "pass unique_indices=True if they do not repeat",
        )


# Constant indices: blocks.


def _at_constants(step: Step, to: _Updates, combine: Combine | None) -> Value:
    indices = linear(step, to.starts, to.windows).elements
    if to.inside is not None:
        indices = np.where(_for_elements(step, to).elements, indices, -1)
    if (indices < 0).all():
        return to.x
    if to.block is not None and not to.windows.batch:
        start = [0] * to.x.rank
        for i, axis in enumerate(to.windows.axes):
            start[axis] = int(to.starts.elements[0, 0, i])
        return _block_at(step, to.x, to.block, start, combine)
    x, back = without_bool(step, to.x)
    rows, _ = without_bool(step, to.rows)
    values = step.reshape(step.transpose(x, to.windows.order), to.values)
    if combine is None:
        sources = np.tile(np.arange(to.windows.k), (len(indices), 1))
        for at, source in zip(sources, indices, strict=True):
            for update, place in enumerate(source):
                if place >= 0:  # The last update wins.
                    at[place] = to.windows.k + update
        results = _rows_at(step, (values, rows), sources, to.windows)
    else:
        results = _combined(step, to, values, rows, indices, combine)
    return step.cast(_in_place(step, results, to), back)


def _combined(
    step: Step, to: _Updates, values: Value, rows: Value, indices: np.ndarray, combine: Combine
) -> Value:
    """Applies the first update of every element in one operator, then the second, and so on."""
    n, count, c = rows.shape
    neutral = step.broadcast(step.like(combine.neutral(rows.dtype), rows), (n, 1, c), ())
    rounds: list[np.ndarray] = []
    for example, source in enumerate(indices):
        counts = np.zeros(to.windows.k, int)
        for update, place in enumerate(source):
            if place < 0:
                continue
            if counts[place] == len(rounds):
                rounds.append(np.full((len(indices), to.windows.k), count))
            rounds[counts[place]][example, place] = update
            counts[place] += 1
    if len(rounds) > _MOST_ROUNDS:
        hits = known(indices[:, None, :] == np.arange(to.windows.k)[:, None])
        return _reduced_updates(step, hits, values, rows, combine)
    for sources in rounds:
        update = _rows_at(step, (rows, neutral), sources, to.windows)
        values = step.jax(combine.function, values, update)
    return values


def _rows_at(
    step: Step, parts: tuple[Value, Value], sources: np.ndarray, windows: Windows
) -> Value:
    """Rows of two concatenated arrays, at constant indices (batch, K)."""
    first, second = parts
    if len(sources) == 1:
        is_new = np.diff(sources[0]) != 1
        is_new |= sources[0][1:] == first.shape[1]  # A run ends where the first array does.
        runs = np.split(sources[0], np.flatnonzero(is_new) + 1)
        if len(runs) <= _FEW_RUNS:
            return joined(step, [_slice_of_run(step, first, second, run) for run in runs], 1)
    both = joined(step, [first, second], 1)
    indices = known(sources.astype(np.int32))
    return step.op("GATHER", both, for_each_leading(step, indices, windows))


def _slice_of_run(step: Step, first: Value, second: Value, run: np.ndarray) -> Value:
    start = int(run[0])
    of, at = (first, start) if start < first.shape[1] else (second, start - first.shape[1])
    return step.slice(of, (0, at, 0), (of.shape[0], len(run), of.shape[2]))


def _block_at(
    step: Step, x: Value, block: Value, start: Sequence[int], combine: Combine | None
) -> Value:
    """Updates a block of an array at a constant place."""
    if combine is None:
        return placed(step, x, block, start)
    edges = [(a, n - a - size) for a, n, size in zip(start, x.shape, block.shape, strict=True)]
    update = padded(step, block, edges, step.like(combine.neutral(x.dtype), x))
    return step.jax(combine.function, x, update)


def placed(step: Step, x: Value, block: Value, start: Sequence[int]) -> Value:
    """Replaces a block of an array at a constant place."""
    short = [axis for axis, n in enumerate(x.shape) if block.shape[axis] < n]
    if not short:
        return block
    if len(short) > 1 and has_type(step, "SELECT", x):
        mask, new = _inside_block(step, x, block, start, short)
        return step.op("SELECT", mask, new, x)
    axis, first = short[0], start[short[0]]
    last = first + block.shape[axis]

    def part(at: int, size: int) -> Value:
        starts, sizes = [0] * x.rank, list(x.shape)
        starts[axis], sizes[axis] = at, size
        return step.slice(x, starts, sizes)

    inner = block
    if len(short) > 1:
        inner = placed(
            step, part(first, last - first), block, [*start[:axis], 0, *start[axis + 1 :]]
        )
    before = [part(0, first)] if first else []
    after = [part(last, x.shape[axis] - last)] if last < x.shape[axis] else []
    return joined(step, [*before, inner, *after], axis)


def _inside_block(
    step: Step, x: Value, block: Value, start: Sequence[int], axes: Sequence[int]
) -> tuple[Value, Value]:
    """A mask of a block's place along axes, and the block padded to the array's size there."""
    mask = np.zeros([x.shape[axis] for axis in axes], np.bool_)
    mask[tuple(np.s_[start[a] : start[a] + block.shape[a]] for a in axes)] = True
    edges = [(0, 0)] * x.rank
    for axis in axes:
        edges[axis] = start[axis], x.shape[axis] - start[axis] - block.shape[axis]
    new = padded(step, block, edges, step.like(0, block))
    return step.broadcast(known(mask), x.shape, axes), new


def dynamic_update_slice(step: Step, x: Value, block: Value, *starts: Value) -> Value:
    """SLICE and CONCAT, SELECT, or SCATTER of a block; its start is clipped as in JAX."""
    if block.size == 0:
        return x
    tops = [n - size for n, size in zip(x.shape, block.shape, strict=True)]
    axes = tuple(a for a, start in enumerate(starts) if tops[a] and not start.is_known)
    first = constant_starts(starts, tops)
    if not axes:
        return placed(step, x, block, first)
    short = [axis for axis, top in enumerate(tops) if top and axis not in axes]
    windows = Windows(x.shape, (), axes, tuple(block.shape[axis] for axis in axes), 1)
    at = clipped(step, stacked(step, [starts[axis] for axis in axes]), windows)
    if max(windows.sizes) == 1 and has_type(step, "SELECT", x):
        masks = []
        if short:
            mask, block = _inside_block(step, x, block, first, short)
            masks = [mask]
        return _select_at(step, _Updates(x, windows, at, None, block, block), block, masks, None)
    part = step.slice(x, first, [n if a in axes else block.shape[a] for a, n in enumerate(x.shape)])
    windows = dataclasses.replace(windows, shape=part.shape)
    rows = step.transpose(block, windows.order)
    rows = step.reshape(rows, (windows.n, block.size // (windows.n * windows.c), windows.c))
    block = _at_unique(step, _Updates(part, windows, at, None, rows, block), None)
    return placed(step, x, block, first)


RULES = {
    "scatter": scatter,
    "scatter-add": functools.partial(scatter, combine=_ADD),
    "scatter-sub": functools.partial(scatter, combine=_SUB),
    "scatter-mul": functools.partial(scatter, combine=_MUL),
    "scatter-min": functools.partial(scatter, combine=_MIN),
    "scatter-max": functools.partial(scatter, combine=_MAX),
    "dynamic_update_slice": dynamic_update_slice,
}
