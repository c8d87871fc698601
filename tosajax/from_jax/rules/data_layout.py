"""Primitives that move elements ("Data Layout", TOSA 1.0.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence

import jax
import numpy as np

from tosajax.from_jax.ranks import MAX_RANK, merged, neighbours
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Reversed, Sliced, Value, known, of_tensor
from tosajax.spec import LEVELS

_MOST_OPERANDS = LEVELS["8K"].MAX_TENSOR_LIST_SIZE


def broadcast_in_dim(step: Step, x: Value, *_: Value) -> Value:
    """RESHAPE for new axes; TILE only for operators that do not broadcast."""
    return step.broadcast(x, step.params["shape"], step.params["broadcast_dimensions"])


def reshape(step: Step, x: Value, *_: Value) -> Value:
    """RESHAPE; after a TRANSPOSE if `dimensions` is given."""
    if step.params["dimensions"] is not None:
        x = step.transpose(x, step.params["dimensions"])
    return step.reshape(x, step.out.shape)


def squeeze(step: Step, x: Value) -> Value:
    """RESHAPE without axes of size 1."""
    return step.reshape(x, step.out.shape)


def transpose(step: Step, x: Value) -> Value:
    """TRANSPOSE; RESHAPE if only axes of size 1 move."""
    return step.transpose(x, step.params["permutation"])


def copy(step: Step, x: Value) -> Value:
    """The operand."""
    return x


def iota(step: Step) -> Value:
    """A constant of numbers along one axis."""
    axis, shape = step.params["dimension"], step.out.shape
    numbers = np.arange(shape[axis]).astype(step.out.dtype)
    return step.broadcast(known(numbers), shape, (axis,))


def rev(step: Step, x: Value) -> Value:
    """REVERSE along each axis."""
    return reverse(step, x, step.params["dimensions"])


def reverse(step: Step, x: Value, axes: Sequence[int]) -> Value:
    """Reverses an array along axes; broadcast axes need no node."""
    axes = [axis for axis in axes if x.held_shape[axis] != 1]
    if x.is_known:
        origin = x.origin and x.origin.moved(Reversed(tuple(axes)))
        return Value(x.shape, x.dtype, np.flip(np.asarray(x.held), axes), origin)
    held = of_tensor(step.held(x))
    groups = neighbours([held.shape], axes)
    small = step.reshape(held, merged(held.shape, groups))
    for axis in axes:
        small = step.op("REVERSE", small, axis=groups.index([axis]))
    return _broadcast_to(step.reshape(small, held.shape), x.shape)


def slice(step: Step, x: Value) -> Value:
    """SLICE; with a stride n, RESHAPE to rows of n elements and SLICE of one column."""
    start, counts = step.params["start_indices"], step.out.shape
    strides = step.params["strides"] or (1,) * x.rank
    strides = [s if n > 1 else 1 for s, n in zip(strides, counts, strict=True)]
    if max(strides, default=1) == 1:
        return step.slice(x, start, counts)
    if not x.is_known:
        return _strided_slice(step, x, start, strides)
    whole = step.slice(x, start, [(n - 1) * s + 1 for n, s in zip(counts, strides, strict=True)])
    held = np.asarray(whole.held)[tuple(np.s_[::s] for s in strides)]
    move = Sliced(whole.shape, (0,) * x.rank, whole.shape, tuple(strides))
    return Value(counts, x.dtype, held, whole.origin and whole.origin.moved(move))


def _strided_slice(step: Step, x: Value, start: Sequence[int], strides: Sequence[int]) -> Value:
    """The elements at start, start + stride and so on, as many as the result has.

    Each axis is reshaped to rows of as many elements as the stride, of which one column is sliced.
    """
    held, counts = of_tensor(step.held(x)), step.out.shape
    start = [0 if n == 1 else a for a, n in zip(start, held.shape, strict=True)]
    wanted = [1 if h == 1 else n for h, n in zip(held.shape, counts, strict=True)]
    held, start = _in_rows(step, held, start, wanted, strides)
    view, starts, sizes, cut = [], [], [], set()
    for a, s, n, size in zip(start, strides, wanted, held.shape, strict=True):
        if n * s != size:
            cut.add(len(view))
        view, starts, sizes = [*view, size // s], [*starts, a // s], [*sizes, n]
        if s > 1:
            cut.add(len(view))
            view, starts, sizes = [*view, s], [*starts, a % s], [*sizes, 1]
    groups = neighbours([view], cut, most=0)
    rows = step.reshape(held, merged(view, groups))
    rows = step.slice(rows, [starts[group[0]] for group in groups], merged(sizes, groups))
    return _broadcast_to(step.reshape(rows, wanted), counts)


def _in_rows(
    step: Step, x: Value, start: Sequence[int], counts: Sequence[int], strides: Sequence[int]
) -> tuple[Value, list[int]]:
    """The array cropped or padded to whole rows, and the new starts of the wanted elements."""
    lows, sizes, padding = [], [], []
    for a, n, s, size in zip(start, counts, strides, x.shape, strict=True):
        needed = n * s
        is_cut = size % s > 0 and needed <= size
        lows.append(min(a, size - needed) if is_cut else 0)
        sizes.append(needed if is_cut else size)
        padding.append((0, max(needed - size, 0) if size % s else 0))
    x = padded(step, step.slice(x, lows, sizes), padding, step.like(0, x))
    return x, [a - low for a, low in zip(start, lows, strict=True)]


def split(step: Step, x: Value) -> list[Value]:
    """A SLICE for each part."""
    axis, sizes = step.params["axis"], step.params["sizes"]
    parts, at = [], 0
    for n in sizes:
        start, size = [0] * x.rank, list(x.shape)
        start[axis], size[axis] = at, n
        parts.append(step.slice(x, start, size))
        at += n
    return parts


def tile(step: Step, x: Value) -> Value:
    """TILE; axes of size 1 are broadcast without a node."""
    reps, shape = step.params["reps"], step.out.shape
    wanted = [h if r == 1 else n for h, n, r in zip(x.held_shape, x.shape, reps, strict=True)]
    held = step.whole(dataclasses.replace(x, shape=tuple(wanted)))
    if held.size == 1 or all(n == 1 or r == 1 for n, r in zip(wanted, reps, strict=True)):
        return dataclasses.replace(held, shape=shape)
    repeats = [r if n > 1 else 1 for n, r in zip(wanted, reps, strict=True)]
    groups = neighbours([wanted, repeats])
    small = step.reshape(held, merged(wanted, groups))
    small = step.op("TILE", small, merged(repeats, groups))
    whole = [n * r for n, r in zip(wanted, repeats, strict=True)]
    return _broadcast_to(step.reshape(small, whole), shape)


def concatenate(step: Step, *parts: Value) -> Value:
    """CONCAT; PAD if all parts but one are the same constant number."""
    return joined(step, parts, step.params["dimension"])


def stack(step: Step, *parts: Value) -> Value:
    """CONCAT along a new axis."""
    axis = step.params["axis"]
    return joined(step, [_with_axis(step, x, axis) for x in parts], axis)


def _with_axis(step: Step, x: Value, axis: int) -> Value:
    axes = [a if a < axis else a + 1 for a in range(x.rank)]
    return step.broadcast(x, (*x.shape[:axis], 1, *x.shape[axis:]), axes)


def unstack(step: Step, x: Value) -> list[Value]:
    """SLICE and RESHAPE for each element along an axis."""
    axis, parts = step.params["axis"], []
    for number in range(x.shape[axis]):
        start = [number if a == axis else 0 for a in range(x.rank)]
        size = [1 if a == axis else n for a, n in enumerate(x.shape)]
        parts.append(step.reshape(step.slice(x, start, size), step.outs[number].shape))
    return parts


def joined(step: Step, parts: Sequence[Value], axis: int) -> Value:
    """Concatenates values along an axis."""
    parts = [x for x in parts if x.shape[axis]]
    parts = _constants_joined(parts, axis)
    if len(parts) == 1:
        return parts[0]
    total = sum(x.shape[axis] for x in parts)
    shape = (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :])
    around = _as_padding(parts, axis)
    if around is not None:
        x, padding, number = around
        return padded(step, x, padding, number)
    lazy = {a for a in range(len(shape)) if all(x.held_shape[a] == 1 for x in parts)} - {axis}
    parts = [_expanded_except(step, x, lazy) for x in parts]
    groups = neighbours([parts[0].shape], (axis,))
    small = [step.reshape(x, merged(x.shape, groups)) for x in parts]
    while len(small) > 1:
        chunks = [small[i : i + _MOST_OPERANDS] for i in range(0, len(small), _MOST_OPERANDS)]
        small = [_concat(step, chunk, groups.index([axis])) for chunk in chunks]
    held = tuple(1 if a in lazy else n for a, n in enumerate(shape))
    return _broadcast_to(step.reshape(small[0], held), shape)


def _concat(step: Step, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else step.op("CONCAT", *parts, axis=axis)


def _constants_joined(parts: Sequence[Value], axis: int) -> list[Value]:
    """The parts, with neighbouring constants concatenated."""
    joined: list[Value] = []
    for x in parts:
        if not (joined and joined[-1].is_known and x.is_known):
            joined.append(x)
            continue
        y = joined.pop()
        shape = (*x.shape[:axis], y.shape[axis] + x.shape[axis], *x.shape[axis + 1 :])
        if _same_number(x, y):
            joined.append(dataclasses.replace(y, shape=shape, origin=None))
        else:
            joined.append(known(np.concatenate([y.elements, x.elements], axis)))
    return joined


def _same_number(x: Value, y: Value) -> bool:
    if x.scalar is None or y.scalar is None:
        return False
    return np.asarray(x.scalar).tobytes() == np.asarray(y.scalar).tobytes()


def _as_padding(
    parts: Sequence[Value], axis: int
) -> tuple[Value, list[tuple[int, int]], Value] | None:
    """The array, padding and number, if parts are one array and the same constant number."""
    inner = [x for x in parts if x.scalar is None]
    numbers = [x for x in parts if x.scalar is not None]
    if len(inner) != 1 or not numbers or not all(_same_number(x, numbers[0]) for x in numbers):
        return None
    at = next(i for i, x in enumerate(parts) if x is inner[0])
    padding = [(0, 0)] * inner[0].rank
    before, after = parts[:at], parts[at + 1 :]
    padding[axis] = sum(x.shape[axis] for x in before), sum(x.shape[axis] for x in after)
    return inner[0], padding, numbers[0]


def pad(step: Step, x: Value, number: Value) -> Value:
    """PAD; with RESHAPE for interior padding, and SLICE for negative padding."""
    config, shape = step.params["padding_config"], step.out.shape
    if x.size == 0:
        return step.broadcast(number, shape, ())
    if number.scalar is None:
        return _padded_with_traced(step, x, number)
    lazy = {a for a, c in enumerate(config) if x.held_shape[a] == 1 and c == (0, 0, 0)}
    x = _expanded_except(step, x, lazy)
    between = [i if n > 1 else 0 for (_, _, i), n in zip(config, x.shape, strict=True)]
    x = _interior_pad(step, x, between, number)
    edges = [(lo, hi - i) for (lo, hi, _), i in zip(config, between, strict=True)]
    return _broadcast_to(padded(step, x, edges, number), shape)


def _padded_with_traced(step: Step, x: Value, number: Value) -> Value:
    """SELECT of a number that is not constant, as PAD only takes a constant."""
    config = step.params["padding_config"]
    with jax.ensure_compile_time_eval():
        is_inside = jax.lax.pad(np.ones(x.shape, np.bool_), np.False_, config)
    inside = step.jax(lambda x: jax.lax.pad(x, np.zeros((), x.dtype), config), x)
    return step.op("SELECT", known(np.asarray(is_inside)), inside, number)


def _interior_pad(step: Step, x: Value, between: Sequence[int], number: Value) -> Value:
    """Pads after each element along each axis; axis by axis if the rank would be too high."""
    axes = [axis for axis, i in enumerate(between) if i]
    if x.rank + len(axes) > MAX_RANK and len(axes) > 1:
        for axis in axes:
            x = _interior_pad(
                step, x, [between[axis] if a == axis else 0 for a in range(x.rank)], number
            )
        return x
    view, padding = [], []
    for n, i in zip(x.shape, between, strict=True):
        view, padding = [*view, n], [*padding, (0, 0)]
        if i:
            view, padding = [*view, 1], [*padding, (0, i)]
    apart = {axis for axis, pair in enumerate(padding) if any(pair)}
    groups = neighbours([view], apart, most=0)
    rows = step.reshape(x, merged(view, groups))
    rows = padded(step, rows, [padding[group[0]] for group in groups], number)
    return step.reshape(rows, [n * (i + 1) for n, i in zip(x.shape, between, strict=True)])


def padded(step: Step, x: Value, edges: Sequence[tuple[int, int]], number: Value) -> Value:
    """PAD with a constant number, and SLICE for negative widths.

    Args:
      step: the primitive.
      x: the array.
      edges: the widths of padding before and after each axis.
      number: a constant of the array's dtype.
    """
    shape = [n + lo + hi for n, (lo, hi) in zip(x.shape, edges, strict=True)]
    cuts = [(max(-lo, 0), max(-hi, 0)) for lo, hi in edges]
    sizes = [n - lo - hi for n, (lo, hi) in zip(x.shape, cuts, strict=True)]
    if min(sizes, default=1) <= 0:
        return step.broadcast(step.like(number.scalar, x), shape, ())
    x = step.slice(x, [lo for lo, _ in cuts], sizes)
    edges = [(max(lo, 0), max(hi, 0)) for lo, hi in edges]
    apart = {axis for axis, pair in enumerate(edges) if any(pair)}
    if not apart:
        return x
    groups = neighbours([x.shape], apart)
    small = step.reshape(x, merged(x.shape, groups))
    padding = [n for group in groups for n in edges[group[0]]]
    small = step.op("PAD", small, padding, step.constant([number.scalar], x.dtype))
    return step.reshape(small, shape)


def _expanded_except(step: Step, x: Value, lazy: Container[int]) -> Value:
    """The array, expanded along all axes except the `lazy` ones, which become size 1."""
    shape = (1 if axis in lazy else n for axis, n in enumerate(x.shape))
    return step.whole(dataclasses.replace(x, shape=tuple(shape)))


def _broadcast_to(x: Value, shape: Sequence[int]) -> Value:
    """The array broadcast to a shape along axes of size 1."""
    return dataclasses.replace(x, shape=tuple(shape))


MOVES = {
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": reshape,
    "squeeze": squeeze,
    "transpose": transpose,
    "copy": copy,
    "iota": iota,
    "rev": rev,
    "slice": slice,
    "split": split,
    "unstack": unstack,
}
RULES = MOVES | {"concatenate": concatenate, "pad": pad, "stack": stack, "tile": tile}
