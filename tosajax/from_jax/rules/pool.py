"""Reductions in windows ("Tensor Operators", MAX_POOL2D and AVG_POOL2D, TOSA 1.0.1)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.from_jax.rules._monoids import (
    ADD,
    AND,
    MAX,
    MIN,
    OR,
    Monoid,
    closed,
    combine_of,
    monoid_of,
    slid,
    widely,
)
from tosajax.from_jax.rules._multiply import row_of
from tosajax.from_jax.rules._sliding import Window, pad
from tosajax.from_jax.rules._wide import has_type
from tosajax.from_jax.rules.conv import Convolution
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known
from tosajax.spec import NanMode

# Writes an operator on images [N, rows, columns, C], with windows along rows and columns.
Write = Callable[[Value, Window, Window], Value]


def reduce_window_max(step: Step, x: Value) -> Value:
    """MAX_POOL2D; MAXIMUM of shifted arrays if windows are dilated or MAX_POOL2D lacks the type."""
    if x.dtype == np.bool_:
        return _by_shifted_arrays(step, x, OR)
    if not _is_pooled(step, "MAX_POOL2D", x):
        return _by_shifted_arrays(step, x, MAX)

    def write(images: Value, *windows: Window) -> Value:
        return step.op(
            "MAX_POOL2D", images, **_pool_attributes(windows), nan_mode=NanMode.PROPAGATE
        )

    return _pooled(step, *_padded(step, x, MAX), write)


def reduce_window_min(step: Step, x: Value) -> Value:
    """MAX_POOL2D of the negative for floats, of the complement for integers (-128 has no negative).

    MINIMUM of shifted arrays if windows are dilated or MAX_POOL2D lacks the type.
    """
    if x.dtype == np.bool_:
        return _by_shifted_arrays(step, x, AND)
    if not (_is_pooled(step, "MAX_POOL2D", x) and has_type(step, "NEGATE", x)):
        return _by_shifted_arrays(step, x, MIN)
    turned = lax.neg if jnp.issubdtype(x.dtype, np.floating) else lax.bitwise_not
    highest = MAX.neutral(x.dtype)
    return step.jax(
        lambda v: turned(lax.reduce_window(turned(v), highest, lax.max, **_arguments(step))), x
    )


def reduce_window_sum(step: Step, x: Value) -> Value:
    """AVG_POOL2D times the number of elements, or DEPTHWISE_CONV2D with ones, which is exact.

    ADD of shifted arrays for int16 and int32.
    """
    is_float = jnp.issubdtype(x.dtype, np.floating)
    if x.dtype.itemsize > 1 and not is_float:
        return _by_shifted_arrays(step, x, ADD)
    x, windows = _padded(step, x, ADD)
    if x.dtype.itemsize == 1 or not _is_pooled(step, "AVG_POOL2D", x):
        return _pooled(step, x, windows, lambda *args: _with_ones(step, *args))
    row = row_of("AVG_POOL2D", x.dtype)
    assert row is not None

    def write(images: Value, *around: Window) -> Value:
        zero, options = step.constant([0], x.dtype), _pool_attributes(around)
        return step.op("AVG_POOL2D", images, zero, zero, **options, acc_type=row["acc_t"])

    return step.jax(lax.mul, _pooled(step, x, windows, write), _counts(x, windows))


def reduce_window(step: Step, *operands: Value) -> list[Value]:
    """The function on shifted arrays, for any associative function of one or more arrays."""
    count = len(operands) // 2
    jaxpr = closed(step.params["jaxpr"], step.params["consts"])
    monoid = monoid_of(jaxpr)
    if monoid is not None and count == 1:
        return [_with_initial_value(step, monoid, *operands)]
    windows, combine = _windows(step, operands[0]), combine_of(jaxpr)
    config = [(w.before, w.after, w.spread - 1) for w in windows]
    if any(map(any, config)):
        step.note("pads with the initial values", "JAX on CPU leaves padding out")

    def reduced(*operands: jax.Array) -> list[jax.Array]:
        arrays, starts = operands[:count], operands[count:]
        padded = [lax.pad(x, s, config) for x, s in zip(arrays, starts, strict=True)]
        results = slid(combine, padded, [w.padded for w in windows])
        return combine(
            [jnp.full(y.shape, s) for s, y in zip(starts, results, strict=True)], results
        )

    return step.jaxs(reduced, *operands)


def _with_initial_value(step: Step, monoid: Monoid, x: Value, start: Value) -> Value:
    """reduce_window by a monoid; JAX combines the initial value with each window, not padding."""
    rules = {ADD: reduce_window_sum, MAX: reduce_window_max, MIN: reduce_window_min}
    reduced = rules[monoid](step, x) if monoid in rules else _by_shifted_arrays(step, x, monoid)
    if start.scalar is not None and start.scalar == monoid.neutral(x.dtype):
        return reduced
    return step.jax(lambda s, y: monoid.function(jnp.full(y.shape, s), y), start, reduced)


# Derivatives of reduce_window_max and reduce_window_min.


def select_and_scatter_add(step: Step, source: Value, x: Value) -> Value:
    """SELECTs and ADDs: adds each number at the first greatest (least) element of its window."""
    return step.jax(functools.partial(_scatter_to_best, _Search.of(step, x)), source, x)


def select_and_gather_add(step: Step, values: Value, x: Value) -> Value:
    """SELECTs of the values at the first greatest (least) element of each window."""
    return step.jax(functools.partial(_gather_from_best, _Search.of(step, x)), values, x)


class _Search(NamedTuple):
    """A search for the greatest or least element of each window.

    Args:
      keeps: returns whether the best element so far stays, given a later element.
      worst: the number that loses against all others, to pad the array with.
      padding: the widths before and after each axis.
      sizes: the sizes of the windows.
      strides: the distances between windows.
      shape: the shape of the array.
    """

    keeps: Callable[[jax.Array, jax.Array], jax.Array]
    worst: Any
    padding: Sequence[tuple[int, int]]
    sizes: Sequence[int]
    strides: Sequence[int]
    shape: Sequence[int]

    @classmethod
    def of(cls, step: Step, x: Value) -> _Search:
        keeps = step.params["select_prim"]
        worst = (MAX if keeps is lax.ge_p else MIN).neutral(x.dtype)
        sizes, strides = step.params["window_dimensions"], step.params["window_strides"]
        return cls(keeps.bind, worst, step.params["padding"], sizes, strides, x.shape)

    @property
    def offsets(self) -> list[tuple[int, ...]]:
        """The offsets of the elements of a window, in row-major order."""
        return [*np.ndindex(*self.sizes)]

    @property
    def padded_shape(self) -> list[int]:
        return [n + sum(pads) for n, pads in zip(self.shape, self.padding, strict=True)]

    @property
    def counts(self) -> list[int]:
        """The number of windows along each axis."""
        ends = zip(self.padded_shape, self.sizes, self.strides, strict=True)
        return [(n - size) // stride + 1 for n, size, stride in ends]

    def padded(self, x: jax.Array, number: Any) -> jax.Array:
        return lax.pad(x, np.asarray(number, x.dtype), [(*pads, 0) for pads in self.padding])

    def at(self, padded: jax.Array, offset: Sequence[int]) -> jax.Array:
        """The element at an offset in each window."""
        ends = zip(offset, self.counts, self.strides, strict=True)
        limits = [start + (n - 1) * stride + 1 for start, n, stride in ends]
        return lax.slice(padded, offset, limits, self.strides)

    def spread(self, y: jax.Array, offset: Sequence[int]) -> jax.Array:
        """An array of zeros with each window's number at an offset in the window."""
        ends = zip(offset, self.padded_shape, self.counts, self.strides, strict=True)
        config = [(at, n - at - (c - 1) * s - 1, s - 1) for at, n, c, s in ends]
        return lax.pad(y, np.asarray(0, y.dtype), config)


def _scatter_to_best(search: _Search, source: jax.Array, x: jax.Array) -> jax.Array:
    padded = search.padded(x, search.worst)
    first, *others = search.offsets
    best, place = search.at(padded, first), jnp.zeros(source.shape, jnp.int32)
    for number, offset in enumerate(others, 1):
        candidate = search.at(padded, offset)
        stays = search.keeps(best, candidate)
        best = lax.select(stays, best, candidate)
        place = lax.select(stays, place, jnp.full_like(place, number))
    total = jnp.zeros(padded.shape, source.dtype)
    # Adds in the order of windows, as JAX does.
    for number, offset in reversed([*enumerate(search.offsets)]):
        chosen = lax.select(place == np.int32(number), source, jnp.zeros_like(source))
        total = total + search.spread(chosen, offset)
    return lax.pad(total, np.asarray(0, total.dtype), [(-a, -b, 0) for a, b in search.padding])


def _gather_from_best(search: _Search, values: jax.Array, x: jax.Array) -> jax.Array:
    padded, padded_values = search.padded(x, search.worst), search.padded(values, 0)
    best = jnp.full(search.counts, search.worst, x.dtype)
    fetched = jnp.zeros(search.counts, values.dtype)
    for offset in search.offsets:
        candidate = search.at(padded, offset)
        stays = search.keeps(best, candidate)
        best = lax.select(stays, best, candidate)
        fetched = lax.select(stays, fetched, search.at(padded_values, offset))
    return fetched


def _windows(step: Step, x: Value) -> list[Window]:
    """The windows along all axes."""
    params = step.params
    per_axis = zip(
        x.shape,
        params["window_dimensions"],
        params["window_strides"],
        (before for before, _ in params["padding"]),
        (after for _, after in params["padding"]),
        params["window_dilation"],
        params["base_dilation"],
        strict=True,
    )
    return [Window(*each).fitted for each in per_axis]


def _arguments(step: Step) -> dict[str, Any]:
    """The arguments of `lax.reduce_window`."""
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return {name: step.params[name] for name in names}


def _is_pooled(step: Step, op: str, x: Value) -> bool:
    """Whether an operator supports the dtype and the windows, which must not be dilated."""
    return has_type(step, op, x) and set(step.params["window_dilation"]) <= {1}


def _padded(step: Step, x: Value, monoid: Monoid) -> tuple[Value, list[Window]]:
    """The array and its windows, padded by nodes along axes that the operators cannot pad."""
    windows = _windows(step, x)
    return pad(step, x, windows, [_is_padded(w) for w in windows], monoid.neutral(x.dtype))


def _is_padded(window: Window) -> bool:
    """Whether operators cannot pad like this: they pad by less than the window's length."""
    least, most = sorted((window.before, window.after))
    return window.spread > 1 or least < 0 or most >= window.length


def _by_shifted_arrays(step: Step, x: Value, monoid: Monoid) -> Value:
    """Reduces windows by combining shifted arrays."""
    windows = _windows(step, x)
    x, windows = pad(step, x, windows, [True] * x.rank, monoid.neutral(x.dtype))
    return widely(step, monoid, lambda v: slid(monoid.combine, [v], windows)[0], x)


def _pooled(step: Step, x: Value, windows: Sequence[Window], write: Write) -> Value:
    """Writes an operator for each axis with windows, or for two neighbouring axes at once."""
    axes = [axis for axis, each in enumerate(windows) if each != Window(each.size)]
    while axes:
        count = 2 if axes[1:2] == [axes[0] + 1] else 1
        x = _along(step, x, axes[:count], windows, write)
        axes = axes[count:]
    return x


def _along(
    step: Step, x: Value, axes: Sequence[int], windows: Sequence[Window], write: Write
) -> Value:
    """Writes an operator for one axis, or for two neighbouring axes.

    The axes after them are the channels. If there are none, the axis before them is the channel
    axis, so that TRANSPOSEs between convolutions and pools cancel.
    """
    first, last = axes[0], axes[-1]
    order, channels = [*range(x.rank)], math.prod(x.shape[last + 1 :])
    if channels == 1 and first > 0 and x.rank > 2:
        order, channels = [*order[: first - 1], *order[first:], first - 1], x.shape[first - 1]
    rows, columns = (Window(1), windows[first]) if first == last else (windows[i] for i in axes)
    count = x.size // (rows.size * columns.size * channels)
    images = step.reshape(step.transpose(x, order), (count, rows.size, columns.size, channels))
    sizes = [windows[i].positions if i in axes else n for i, n in enumerate(x.shape)]
    y = step.reshape(write(images, rows, columns), [sizes[axis] for axis in order])
    return step.transpose(y, np.argsort(order).tolist())


def _pool_attributes(windows: Sequence[Window]) -> dict[str, Any]:
    """The attributes of a pooling operator."""
    return {
        "kernel": tuple(each.length for each in windows),
        "stride": tuple(each.stride for each in windows),
        "pad": tuple(n for each in windows for n in (each.before, each.after)),
    }


def _with_ones(step: Step, images: Value, *windows: Window) -> Value:
    """DEPTHWISE_CONV2D with ones: its accumulator is wider than the dtype, and wraps at the end."""
    options = _pool_attributes(windows)
    kernel, channels = options.pop("kernel"), images.shape[-1]
    options["dilation"] = tuple(each.dilation for each in windows)
    ones = known(np.ones((*kernel, channels, 1), images.dtype))
    return Convolution("DEPTHWISE_CONV2D", 1, options).of(step, images, ones)


def _counts(x: Value, windows: Sequence[Window]) -> Value:
    """The number of elements in each window, without padding."""
    held = np.ones((1,) * len(windows))
    for axis, each in enumerate(windows):
        starts = np.arange(each.positions) * each.stride - each.before
        counts = np.minimum(starts + each.length, each.size) - np.maximum(starts, 0)
        counts = counts[:1] if np.ptp(counts) == 0 else counts
        held = held * np.expand_dims(counts, [i for i in range(len(windows)) if i != axis])
    return Value(tuple(each.positions for each in windows), x.dtype, held.astype(x.dtype))


RULES = {
    "reduce_window_max": reduce_window_max,
    "reduce_window_min": reduce_window_min,
    "reduce_window_sum": reduce_window_sum,
    "reduce_window": reduce_window,
    "select_and_gather_add": select_and_gather_add,
    "select_and_scatter_add": select_and_scatter_add,
}
