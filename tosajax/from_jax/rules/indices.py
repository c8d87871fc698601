"""Primitives that read elements at indices: GATHER ("Scatter/Gather Operators", TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import jax
import numpy as np
from jax.lax import GatherScatterMode

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
from tosajax.from_jax.rules.data_layout import joined, reverse
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value

_FEW_RUNS = 2  # the most SLICEs to write instead of RESHAPE, GATHER and RESHAPE


def gather(step: Step, x: Value, indices: Value) -> Value:
    """GATHER at linear indices; SLICE for constant indices of neighbours."""
    numbers, sizes = step.params["dimension_numbers"], step.params["slice_sizes"]
    axes, batch = numbers.start_index_map, numbers.operand_batching_dims
    if not axes:
        axes = tuple(axis for axis in range(x.rank) if axis not in batch)
    whole = [n if a in (*axes, *batch) else sizes[a] for a, n in enumerate(x.shape)]
    x = step.slice(x, [0] * x.rank, whole)
    starts, index_axes = listed(step, indices, numbers.start_indices_batching_dims)
    starts = from_zero(step, starts, len(axes) - starts.shape[2])
    windows = Windows(x.shape, batch, axes, tuple(sizes[a] for a in axes), starts.shape[1])
    starts, mask = _in_bounds(step, starts, windows)
    short = [i for i, axis in enumerate(axes) if sizes[axis] < x.shape[axis]] or [0]
    windows = windows.along(short)
    y = taken(step, x, columns(step, starts, short), windows)

    # Each axis of the result comes from the indices or from the operand.
    count = len(batch)
    labels = [("index", axis) for axis in index_axes]
    labels[count:count] = [("operand", axis) for axis in windows.leading]
    labels += [("operand", axis) for axis in (*windows.pointed, *windows.rest)]
    wanted = _result_axes(numbers, x.rank, step.out.shape)
    y = arranged(step, y, labels, dict(zip(wanted, step.out.shape, strict=True)))
    if mask is None:
        return y
    mask = step.reshape(mask, [indices.shape[axis] for axis in index_axes])
    mask = step.transpose(mask, [index_axes.index(axis) for axis in range(len(index_axes))])
    at = [i for i, (kind, _) in enumerate(wanted) if kind == "index"]
    fill = step.like(_fill_value(step), y)
    return step.op("SELECT", step.broadcast(mask, y.shape, at), y, fill)


def _result_axes(numbers: jax.lax.GatherDimensionNumbers, rank: int, shape: Sequence[int]) -> list:
    """The source of each axis of a gather's result: ("operand", axis) or ("index", axis)."""
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    of_operand = iter(axis for axis in range(rank) if axis not in gone)
    of_indices = iter(range(len(shape)))
    return [
        ("operand", next(of_operand)) if at in numbers.offset_dims else ("index", next(of_indices))
        for at in range(len(shape))
    ]


def _in_bounds(step: Step, starts: Value, windows: Windows) -> tuple[Value, Value | None]:
    """The starts to read at, and a mask of the windows not to fill; None if none is filled."""
    fills = step.params["mode"] == GatherScatterMode.FILL_OR_DROP
    if step.params["mode"] == GatherScatterMode.CLIP:
        return clipped(step, starts, windows), None
    if starts.is_known or (fills and not _is_marker(step)):
        mask = are_inside(step, starts, windows)
        is_all = mask.is_known and mask.elements.all()
        return clipped(step, starts, windows), mask if fills and not is_all else None
    differs = f"reads {_fill_value(step)}" if fills else "clips them"
    step.note("GATHER", f"indices out of bounds are unpredictable, where JAX {differs}")
    return starts, None


def _fill_value(step: Step) -> object:
    """The value that reads out of bounds return."""
    fill, dtype = step.params["fill_value"], step.out.dtype
    if fill is not None:
        return fill
    if jax.numpy.issubdtype(dtype, np.inexact):
        return np.nan
    return True if dtype == np.bool_ else jax.numpy.iinfo(dtype).min


def _is_marker(step: Step) -> bool:
    """Whether the fill value equals JAX's default for the dtype: NaN or the smallest integer.

    The default marks an error, and no network computes with it.
    """
    value, dtype = _fill_value(step), step.out.dtype
    if jax.numpy.issubdtype(dtype, np.inexact):
        return bool(np.isnan(value))  # type: ignore[call-overload]
    return dtype != np.bool_ and value == jax.numpy.iinfo(dtype).min


def dynamic_slice(step: Step, x: Value, *starts: Value) -> Value:
    """SLICE along axes of constant starts, GATHER along the rest; starts are clipped as in JAX."""
    sizes = step.params["slice_sizes"]
    tops = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    axes = [a for a, start in enumerate(starts) if tops[a] and not start.is_known]
    first = constant_starts(starts, tops)
    x = step.slice(x, first, [x.shape[a] if a in axes else n for a, n in enumerate(sizes)])
    if not axes:
        return x
    windows = Windows(x.shape, (), tuple(axes), tuple(sizes[a] for a in axes), 1)
    at = clipped(step, stacked(step, [starts[axis] for axis in axes]), windows)
    y = taken(step, x, at, windows)
    labels = [*windows.leading, None, *windows.pointed, *windows.rest]
    return arranged(step, y, labels, dict(enumerate(sizes)))


def taken(step: Step, x: Value, starts: Value, windows: Windows) -> Value:
    """The elements of windows.

    Args:
      step: the primitive.
      x: the array.
      starts: int32 (batch, count, number of axes), in bounds.
      windows: the windows that start there.

    Returns:
      (*batch, *leading, count, elements of a window, *rest); axes may be merged.
    """
    indices = linear(step, starts, windows)
    narrow, back = without_bool(step, x)
    values = step.transpose(narrow, windows.order)
    if indices.is_known and indices.shape[0] == 1:
        before = len(windows.batch) + len(windows.leading)
        one_axis = len(windows.axes) == 1
        rows = values if one_axis else step.reshape(values, (windows.n, windows.k, windows.c))
        pieces = _runs(step, rows, indices.elements[0], before if one_axis else 1)
        if pieces is not None:
            return step.cast(pieces, back)
    values = step.reshape(values, (windows.n, windows.k, windows.c))
    elements = step.op("GATHER", values, for_each_leading(step, indices, windows))
    return step.cast(elements, back)


def _runs(step: Step, x: Value, indices: np.ndarray, axis: int) -> Value | None:
    """The elements along an axis at constant indices, if they are a few blocks, else None."""
    if len(indices) > 1 and (np.diff(indices) == -1).all():
        backwards = _runs(step, x, indices[::-1], axis)
        return backwards and reverse(step, backwards, (axis,))
    runs = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    if len(runs) > _FEW_RUNS:
        return None
    blocks = []
    for run in runs:
        start, size = [0] * x.rank, list(x.shape)
        start[axis], size[axis] = int(run[0]), len(run)
        blocks.append(step.slice(x, start, size))
    return joined(step, blocks, axis)


def arranged(
    step: Step, x: Value, labels: Sequence[Hashable], wanted: dict[Hashable, int]
) -> Value:
    """Transposes an array to an order of labelled axes.

    Args:
      step: the primitive.
      x: the array; its axes may be merged.
      labels: the labels of its axes, in order; axes that are not in `wanted` have size 1.
      wanted: label -> size of an axis, in the wanted order.
    """
    axes = [axis for axis in labels if axis in wanted]
    x = step.reshape(x, [wanted[axis] for axis in axes])
    return step.transpose(x, [axes.index(axis) for axis in wanted])


RULES = {"gather": gather, "dynamic_slice": dynamic_slice}
