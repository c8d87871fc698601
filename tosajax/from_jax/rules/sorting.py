"""Sorting, for which TOSA does not have an operator.

Short rows are sorted by the rank of each element (a comparison of all pairs) and SCATTER, long rows
by a bitonic network. A few greatest elements of many are found by ARGMAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.from_jax.rules._windows import without_bool
from tosajax.from_jax.rules.data_layout import joined, padded, reverse
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known
from tosajax.spec import NanMode

_MOST_RANKED = 1024  # the most elements in a row to sort by ranks
_MOST_COMPARED = 2**24  # the most pairs of elements to compare, over all rows
_MOST_SORTED = 2**16  # the most elements in a row
_FEW = 8  # the most ARGMAXs that are not more nodes than ranks
_MOST_ARGMAX = 64  # the most ARGMAXs to write instead of a network


class _Keys(NamedTuple):
    """Sort keys, each of shape (N, n).

    Args:
      numbers: int32 or floats without NaN, the most significant key first.
      tie: int32, the last key, always ascending; different in each column: the column's number, or
        n more to put numbers and NaN in order.
      is_descending: whether large numbers come first.
    """

    numbers: list[Value]
    tie: Value
    is_descending: bool


def sort(step: Step, *operands: Value) -> list[Value]:
    """SCATTER by ranks, or a bitonic network; a stable sort by the first `num_keys` operands."""
    axis, count = step.params["dimension"], step.params["num_keys"]
    operands = (*operands[:count], *map(_int32_indices, operands[count:]))
    if operands[0].shape[axis] <= 1:
        return list(operands)
    rows = [_rows(step, x, axis) for x in operands]
    if all(row.is_known for row in rows[:count]):
        in_order = [_gathered(step, row, _known_order(rows[:count])) for row in rows]
        return [_from_rows(step, y, x.shape, axis) for x, y in zip(operands, in_order, strict=True)]
    if len(rows) == 1 and np.dtype(rows[0].dtype).kind in "bi" and not _is_ranked(rows[0]):
        in_order = [_sorted_integers(step, rows[0])]
    else:
        in_order = _in_order(step, _keys(step, rows[:count]), rows)
    return [_from_rows(step, y, x.shape, axis) for x, y in zip(operands, in_order, strict=True)]


def _int32_indices(x: Value) -> Value:
    """Converts constant uint32 indices, as in the derivative of sort, to int32."""
    is_place = x.is_known and x.dtype == np.uint32 and x.elements.max(initial=0) < 2**31
    return known(x.elements.astype(np.int32)) if is_place else x


def top_k(step: Step, x: Value) -> list[Value]:
    """ARGMAX for each of a few elements, else as for sort, in descending order."""
    axis, k = step.params.get("axis", x.rank - 1) % x.rank, step.params["k"]
    rows = _rows(step, x, axis)
    n = rows.shape[1]
    has_argmax = x.dtype != np.int32 and k <= _MOST_ARGMAX
    if jnp.issubdtype(x.dtype, np.floating):
        differs = "-0.0 is as great as 0.0, and each NaN as inf or greater; XLA orders them by sign"
        step.note("comparisons", differs)
    if has_argmax and (k <= _FEW or not _is_ranked(rows)):
        indices = _by_argmax(step, rows, k)
        in_order = [_gathered(step, rows, indices), indices]
    else:
        places = step.broadcast(known(np.arange(n, dtype=np.int32)), rows.shape, (1,))
        keys = _keys(step, [rows], is_descending=True)
        in_order = _in_order(step, keys, [rows, places])
        in_order = [step.slice(y, (0, 0), (y.shape[0], k)) for y in in_order]
    shape = tuple(k if a == axis else size for a, size in enumerate(x.shape))
    return [_from_rows(step, y, shape, axis) for y in in_order]


def approx_top_k(step: Step, x: Value) -> list[Value]:
    """top_k, or top_k of the negative; exact, as JAX on CPU."""
    axis, k = step.params["reduction_dimension"] % x.rank, step.params["k"]
    if step.outs[0].shape[axis] != k:
        raise step.unsupported("aggregate_to_topk=False", "True")

    def greatest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        sign = 1 if step.params["is_max_k"] else -1
        values, indices = lax.top_k(jnp.moveaxis(x * sign, axis, -1), k)
        return jnp.moveaxis(values * sign, -1, axis), jnp.moveaxis(indices, -1, axis)

    return step.jaxs(greatest, x)


# Rows.


def _rows(step: Step, x: Value, axis: int) -> Value:
    """Reshapes an array to rows (N, n), where n is the size of an axis."""
    order = [*(a for a in range(x.rank) if a != axis), axis]
    return step.reshape(step.transpose(x, order), (x.size // x.shape[axis], x.shape[axis]))


def _from_rows(step: Step, rows: Value, shape: Sequence[int], axis: int) -> Value:
    """Reshapes rows (N, n) back to an array; the inverse of `_rows`."""
    order = [*(a for a in range(len(shape)) if a != axis), axis]
    spread = step.reshape(rows, [shape[a] for a in order])
    return step.transpose(spread, [order.index(a) for a in range(len(shape))])


def _gathered(step: Step, rows: Value, indices: Value) -> Value:
    """The elements of each row at indices, (N, k)."""
    if rows.is_known and indices.is_known:
        return known(np.take_along_axis(rows.elements, indices.elements, 1))
    narrow, back = without_bool(step, rows)
    elements = step.op("GATHER", step.reshape(narrow, (*rows.shape, 1)), indices)
    return step.cast(step.reshape(elements, indices.shape), back)


def _is_ranked(rows: Value) -> bool:
    """Whether rows are short enough to compare all pairs of elements."""
    n = rows.shape[1]
    return n <= _MOST_RANKED and rows.size * n <= _MOST_COMPARED


def _in_order(step: Step, keys: _Keys, operands: Sequence[Value]) -> list[Value]:
    """Sorts operands by keys."""
    if any(x.dtype == np.int64 for x in operands):  # indices, with jax_enable_x64
        raise step.unsupported_type(np.dtype(np.int64))
    if not _is_ranked(operands[0]):
        indices = _order_by_network(step, keys)
        return [_gathered(step, x, indices) for x in operands]
    ranks = _ranks(step, keys)
    in_order = []
    for x in operands:
        narrow, back = without_bool(step, x)
        column = step.reshape(narrow, (*x.shape, 1))
        # Every element is overwritten, as ranks are a permutation.
        placed = step.op("SCATTER", column, ranks, column)
        in_order.append(step.cast(step.reshape(placed, x.shape), back))
    return in_order


def _known_order(keys: Sequence[Value]) -> Value:
    """The indices that sort rows of constants, such as the keys of a random permutation."""
    with jax.ensure_compile_time_eval():
        places = lax.broadcasted_iota(np.int32, keys[0].shape, 1)
        *_, order = lax.sort(
            (*(jnp.asarray(key.elements) for key in keys), places), num_keys=len(keys)
        )
    return known(np.asarray(order))


# Keys.


def _keys(step: Step, rows: Sequence[Value], is_descending: bool = False) -> _Keys:
    """The sort keys of rows. NaN is the greatest number; -0.0 equals 0.0."""
    numbers: list[Value] = []
    n = rows[0].shape[1]
    columns = np.arange(n, dtype=np.int32).reshape(1, n)
    tie = step.broadcast(known(columns), rows[0].shape, (0, 1))
    for row in rows:
        if not jnp.issubdtype(row.dtype, np.floating):
            numbers.append(step.cast(row, np.int32))
            continue
        wide = step.cast(row, np.float32) if np.dtype(row.dtype).itemsize == 1 else row
        is_number = step.op("EQUAL", wide, wide)
        numbers.append(step.op("SELECT", is_number, wide, step.like(np.inf, wide)))
        first, last = (n, 0) if is_descending else (0, n)
        if row is rows[-1]:
            tie = step.op("SELECT", is_number, known(columns + first), known(columns + last))
        else:
            ranks = (known(np.full((1, 1), rank, np.int32)) for rank in (first, last))
            numbers.append(step.op("SELECT", is_number, *ranks))
    return _Keys(numbers, tie, is_descending)


def _are_after(
    step: Step, ours: Sequence[Value], theirs: Sequence[Value], is_descending: bool
) -> Value:
    """Whether elements come after other elements in the order.

    Args:
      step: the primitive.
      ours: the numbers and the tie of the elements.
      theirs: the numbers and the tie of the elements that they are compared with.
      is_descending: whether large numbers come first.
    """
    is_after = step.jax(lax.gt, ours[-1], theirs[-1])
    if is_descending:
        ours, theirs = theirs, ours
    for a, b in zip(reversed(ours[:-1]), reversed(theirs[:-1]), strict=True):
        is_after = step.op("SELECT", step.op("EQUAL", a, b), is_after, step.op("GREATER", a, b))
    return is_after


def _ranks(step: Step, keys: _Keys) -> Value:
    """The rank of each element in its row, int32 (N, n)."""
    rows, n = keys.tie.shape
    down, across = (
        [step.broadcast(x, (rows, n, n), (0, axis)) for x in (*keys.numbers, keys.tie)]
        for axis in (1, 2)
    )
    are_after = step.cast(_are_after(step, down, across, keys.is_descending), np.int32)
    return step.reshape(step.op("REDUCE_SUM", are_after, axis=2), (rows, n))


# A bitonic network. Both halves are sorted in the same order, and one is compared in reverse with
# the other.

_Arrays = list[Value]
_Exchange = Callable[[_Arrays, _Arrays], tuple[_Arrays, _Arrays]]


def _order_by_network(step: Step, keys: _Keys) -> Value:
    """The indices that sort rows, int32 (N, n), by a bitonic network."""
    rows, n = keys.tie.shape
    behind = known(np.arange(2 * n, n + _padded_length(step, n), dtype=np.int32).reshape(1, -1))
    behind = step.broadcast(behind, (rows, _padded_length(step, n) - n), (0, 1))
    numbers = [_lengthened(step, x, keys.is_descending) for x in keys.numbers]

    def exchange(low: _Arrays, high: _Arrays) -> tuple[_Arrays, _Arrays]:
        swap = _are_after(step, low, high, keys.is_descending)
        pairs = [*zip(low, high, strict=True)]
        lows = [step.op("SELECT", swap, b, a) for a, b in pairs]
        return lows, [step.op("SELECT", swap, a, b) for a, b in pairs]

    *_, tie = _network(step, [*numbers, joined(step, [keys.tie, behind], 1)], exchange)
    tie = step.slice(tie, (0, 0), (rows, n))
    if keys.tie.is_known:
        return tie
    is_index = step.op("GREATER", step.constant(n, "int32"), tie)
    return step.op("SELECT", is_index, tie, step.op("SUB", tie, step.constant(n, "int32")))


def _sorted_integers(step: Step, row: Value) -> Value:
    """Sorts rows of integers by MINIMUM and MAXIMUM; equal integers need no stable order."""
    mode = NanMode.PROPAGATE

    def exchange(low: _Arrays, high: _Arrays) -> tuple[_Arrays, _Arrays]:
        least = step.op("MINIMUM", low[0], high[0], nan_mode=mode)
        return [least], [step.op("MAXIMUM", low[0], high[0], nan_mode=mode)]

    wide = _lengthened(step, step.cast(row, np.int32), is_descending=False)
    (in_order,) = _network(step, [wide], exchange)
    return step.cast(step.slice(in_order, (0, 0), row.shape), row.dtype)


def _padded_length(step: Step, n: int) -> int:
    """The length of the network for n elements, a power of two."""
    if n > _MOST_SORTED:
        instead = "lax.top_k finds a few of them, and REDUCE_MAX or ARGMAX one"
        raise step.unsupported(f"{n} elements to sort", f"at most {_MOST_SORTED}", instead)
    return 1 << (n - 1).bit_length()


def _lengthened(step: Step, x: Value, is_descending: bool) -> Value:
    """The rows padded to a power of two with the value that sorts last."""
    if jnp.issubdtype(x.dtype, np.floating):
        last = -np.inf if is_descending else np.inf
    else:
        last = jnp.iinfo(x.dtype).min if is_descending else jnp.iinfo(x.dtype).max
    n = x.shape[1]
    return padded(step, x, ((0, 0), (0, _padded_length(step, n) - n)), step.like(last, x))


def _network(step: Step, arrays: _Arrays, exchange: _Exchange) -> _Arrays:
    """Sorts rows, (N, a power of two).

    Args:
      step: the primitive.
      arrays: the arrays to sort together.
      exchange: returns the pairs of elements (low, high) in sorted order.
    """
    shape = arrays[0].shape
    size = 2
    while size <= shape[1]:
        arrays = _stage(step, arrays, size, True, exchange)
        for part in (size >> i for i in range(1, size.bit_length() - 1)):
            arrays = _stage(step, arrays, part, False, exchange)
        size *= 2
    return [step.reshape(x, shape) for x in arrays]


def _stage(
    step: Step, arrays: _Arrays, size: int, is_backwards: bool, exchange: _Exchange
) -> _Arrays:
    """Compares the two halves of each part of a size, element by element, and swaps them."""
    count, half = arrays[0].size // size, size // 2
    parts = [step.reshape(x, (count, 2, half)) for x in arrays]
    low, high = ([step.slice(x, (0, i, 0), (count, 1, half)) for x in parts] for i in (0, 1))

    def turned(values: _Arrays) -> _Arrays:
        return [reverse(step, x, (2,)) for x in values] if is_backwards and half > 1 else values

    low, high = exchange(low, turned(high))
    pairs = zip(low, turned(high), strict=True)
    return [step.op("CONCAT", a, b, axis=1) for a, b in pairs]


# A few greatest elements.


def _by_argmax(step: Step, rows: Value, k: int) -> Value:
    """The indices of the k greatest elements, int32 (N, k); found elements are set to NaN."""
    count, n = rows.shape
    if jnp.issubdtype(rows.dtype, np.floating):
        is_number = step.op("EQUAL", rows, rows)
        remaining = step.op("SELECT", is_number, rows, step.like(np.inf, rows))
    else:
        remaining = step.jax(lambda x: x.astype(jnp.float32), rows)
    columns = step.broadcast(known(np.arange(n, dtype=np.int32)), rows.shape, (1,))
    indices: list[Value] = []
    while True:
        index = step.op("ARGMAX", remaining, axis=1, nan_mode=NanMode.IGNORE)
        indices.append(step.reshape(index, (count, 1)))
        if len(indices) == k:
            return joined(step, indices, 1)
        is_found = step.op("EQUAL", columns, indices[-1])
        remaining = step.op("SELECT", is_found, step.like(np.nan, remaining), remaining)


RULES = {"sort": sort, "top_k": top_k, "approx_top_k": approx_top_k}
