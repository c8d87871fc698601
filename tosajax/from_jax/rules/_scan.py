"""Writes scan, unrolled or as a loop that reads and writes rows by a counter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.extend import core

from tosajax.dtypes import DType
from tosajax.from_jax.callees import closed
from tosajax.from_jax.rules._loops import while_loop
from tosajax.from_jax.step import Aval, Step
from tosajax.from_jax.values import Value, known
from tosajax.spec.scatter_gather import GATHER


class Scan(NamedTuple):
    """The operands of a scan.

    Args:
      body: the body; its operands are the constants, the carry, and a row of each of the arrays;
        its results are the next carry, and a row of each stacked result.
      constants: the loop-invariant operands.
      carry: the carry before the first iteration.
      arrays: the scanned arrays; each iteration reads one row of each.
      rows: the shapes and dtypes of the stacked results.
      order: the row numbers in the order of iterations.
    """

    body: core.ClosedJaxpr
    constants: Sequence[Value]
    carry: Sequence[Value]
    arrays: Sequence[Value]
    rows: Sequence[Aval]
    order: range


def scan(step: Step, *args: Value) -> list[Value]:
    """Unrolled if it is short enough, else WHILE_LOOP."""
    first, second = _lengths(step)
    length = step.params["length"]
    order = range(length)
    parts = Scan(
        closed(step.params["jaxpr"]),
        args[:first],
        args[first:second],
        args[second:],
        step.outs[second - first :],
        order[::-1] if step.params["reverse"] else order,
    )
    if length <= step.scope.options.max_unroll:
        return _unrolled(step, parts)
    return _looped(step, parts)


def _lengths(step: Step) -> tuple[int, int]:
    """The positions among the operands at which the carry and the arrays begin."""
    if "num_carry" in step.params:
        constants, carry = step.params["num_consts"], step.params["num_carry"]
    else:  # JAX 0.12
        constants, carry, _ = map(len, step.params["ft_in"].unpack())
    return constants, constants + carry


def _unrolled(step: Step, parts: Scan) -> list[Value]:
    carry, rows_by_turn = list(parts.carry), {}
    for turn in parts.order:
        rows = [_row(step, array, turn) for array in parts.arrays]
        results = step.jaxs(parts.body, *parts.constants, *carry, *rows)
        carry, rows_by_turn[turn] = results[: len(carry)], results[len(carry) :]
    columns = (
        [rows_by_turn[turn][i] for turn in sorted(rows_by_turn)] for i in range(len(parts.rows))
    )
    stacked = (_stacked(step, c, row) for c, row in zip(columns, parts.rows, strict=True))
    return [*carry, *stacked]


def _row(step: Step, array: Value, turn: int) -> Value:
    """One row of an array."""
    start = (turn, *(0 for _ in array.shape[1:]))
    row = step.slice(array, start, (1, *array.shape[1:]))
    return step.reshape(row, array.shape[1:])


def _stacked(step: Step, rows: Sequence[Value], aval: Aval) -> Value:
    """Stacks rows to one array."""
    if not rows:
        return known(np.zeros(aval.shape, aval.dtype))
    if all(row.is_known for row in rows):
        return known(np.stack([row.elements for row in rows]))
    most = step.scope.options.target.limits.MAX_TENSOR_LIST_SIZE
    parts = [step.reshape(row, (1, *row.shape)) for row in rows]
    while len(parts) > 1:
        groups = [parts[i : i + most] for i in range(0, len(parts), most)]
        parts = [step.op("CONCAT", *g, axis=0) if len(g) > 1 else g[0] for g in groups]
    return parts[0]


def _looped(step: Step, parts: Scan) -> list[Value]:
    """A loop with the row number, the carry, and the stacked results so far as its state."""
    constants, carry = len(parts.constants), len(parts.carry)
    fixed = [*parts.constants, *(_table(step, array) for array in parts.arrays)]
    start = step.constant([[parts.order.start]], np.int32)
    state = [start, *parts.carry, *(_empty(step, aval) for aval in parts.rows)]

    def condition(step: Step, fixed: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        last = step.constant([[parts.order.stop]], np.int32)
        return [
            step.op("GREATER", *((last, state[0]) if parts.order.step > 0 else (state[0], last)))
        ]

    def body(step: Step, fixed: Sequence[Value], state: Sequence[Value]) -> list[Value]:
        row, before, results = state[0], state[1 : 1 + carry], state[1 + carry :]
        arrays = zip(fixed[constants:], parts.arrays, strict=True)
        rows = [_read(step, table, row, array) for table, array in arrays]
        following_state = step.jaxs(parts.body, *fixed[:constants], *before, *rows)
        written = zip(results, following_state[carry:], strict=True)
        results = [_write(step, table, row, value) for table, value in written]
        following = step.op("ADD", row, step.constant([[parts.order.step]], np.int32))
        return [following, *following_state[:carry], *results]

    turns = f"{len(parts.order)} turns"
    final = while_loop(step, fixed, state, condition=condition, body=body, turns=turns)
    tables = zip(final[1 + carry :], parts.rows, strict=True)
    return [*final[1 : 1 + carry], *(_array(step, table, aval) for table, aval in tables)]


def _table(step: Step, array: Value) -> Value:
    """An array in the layout of GATHER; its row, if all rows are the same."""
    if array.held_shape[0] == 1:
        return _row(step, array, 0)
    table = step.reshape(array, (1, array.shape[0], math.prod(array.shape[1:])))
    return step.cast(table, _stored(step, array.dtype))


def _read(step: Step, table: Value, row: Value, array: Value) -> Value:
    """A row of a table."""
    if array.held_shape[0] == 1:
        return table
    element = step.reshape(step.op("GATHER", table, row), array.shape[1:])
    return step.cast(element, array.dtype)


def _empty(step: Step, aval: Aval) -> Value:
    """A table of zeros for stacked results."""
    zero = step.constant(np.zeros((1, 1, 1)), _stored(step, aval.dtype))
    return step.op("TILE", zero, (1, aval.shape[0], math.prod(aval.shape[1:])))


def _write(step: Step, table: Value, row: Value, value: Value) -> Value:
    """The table with one row replaced."""
    written = step.reshape(step.cast(value, table.dtype), (1, 1, value.size))
    return step.op("SCATTER", table, row, written)


def _stored(step: Step, dtype: np.dtype) -> np.dtype:
    """The dtype for a table that GATHER and SCATTER support; int8 for bool."""
    tosa_type = step.tosa_type(dtype)
    if tosa_type is DType.BOOL:
        return np.dtype(np.int8)
    types = {row.type_of(GATHER.inputs[0]) for row in GATHER.types}
    if tosa_type not in types:
        wanted = " or ".join(t.name for t in types if t is not None)
        raise step.unsupported(f"a loop over rows of {tosa_type.name}", wanted)
    return dtype


def _array(step: Step, table: Value, aval: Aval) -> Value:
    """The table in the shape and dtype of the stacked result."""
    return step.reshape(step.cast(table, aval.dtype), aval.shape)
