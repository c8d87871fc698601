"""Elementwise operators and reductions of rows as one kernel: its operands and its plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.native.calls.schedule import KernelCall
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.steps import CHANNEL, FLOAT, IMAGES, SCALAR, TABLE, Step
from tosajax.native.kernels import elementwise
from tosajax.native.kernels.elementwise import Fields, KernelKey
from tosajax.native.operands import Array, array_module
from tosajax.native.sharing import threads_of
from tosajax.native.tiling import Plan

# Elements times steps of an item, which pay for claiming it; and of a thread, for waking it.
_ITEM, _THREAD = 2**18, 2**16


class Operand(NamedTuple):
    """An operand of steps.

    Args:
      kind: see `codegen.steps`.
      array: of an element or a row: of the results' shape, or with 1 for the last dimension. Of a
        channel: [C]. Of a scalar: one value. Of a table: [256] or [513].
      element: the IR type of the array's elements; "i1" for booleans.
      looked_up: of a table, the IR type that it looks up.
    """

    kind: str
    array: Any
    element: str
    looked_up: str = ""


def compute(isa: InstructionSet, operands: Sequence[Operand], steps: Sequence[Step]) -> KernelCall:
    """Computes steps of elements.

    Args:
      isa: an instruction set of this processor.
      operands: what the steps read; the first has the shape of elements, of rank 2 or more.
      steps: in order; see `codegen.steps`.

    Returns:
      A kernel whose result is the last step's: of the elements' shape, or 1 for each row.
    """
    isa = isa.vector_set
    kinds = tuple(elementwise.Operand(o.kind, o.element, o.looked_up) for o in operands)
    key = KernelKey(isa, kinds, tuple(steps))
    images = [o.array for o in operands if o.kind in IMAGES]
    length = images[0].shape[-1]
    pitch = -(-length // isa.lanes) * isa.lanes
    channels = [_words(o, pitch) for o in operands if o.kind == CHANNEL]
    numbers = [_words(o, 1) for o in operands if o.kind == SCALAR]
    tables = [_words(o, o.array.size) for o in operands if o.kind == TABLE]

    def plan(x: Sequence[int], workers: int) -> Plan:
        return _plan(key, x, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        return (*x[1:-1], 1) if steps[-1].is_row else tuple(x[1:])

    joined = [_joined(words) for words in (channels, numbers, tables)]
    return KernelCall(
        elementwise.module_of, plan, out, (*images, *joined), key.dtype, len(images)
    )


def _plan(key: KernelKey, x: Sequence[int], workers: int) -> Plan:
    """The plan for elements of a shape."""
    lanes, elements, work = key.isa.lanes, math.prod(x), len(key.steps)
    if key.has_rows:
        length = x[-1]
    else:
        most = -(-_ITEM // work // lanes) * lanes
        fair = -(-elements // (workers * lanes)) * lanes
        length = min(elements // lanes * lanes or elements, most, fair)
    key = key._replace(last=length % lanes)
    all_rows = -(-elements // length)
    rows = max(1, min(_ITEM // (length * work), -(-all_rows // workers)))
    vectors, last = divmod(length, lanes)
    pitch = (vectors + bool(last)) * lanes
    fields = Fields(
        rows=rows,
        all_rows=all_rows,
        length=length,
        elements=elements,
        vectors=vectors,
        pitch=pitch,
    )
    items = -(-all_rows // rows)
    used = threads_of(items, elements * work // _THREAD, workers)
    return Plan(key, fields.as_list(), items, used, 0, 4 * pitch * len(key.stages.kept))


def _words(operand: Operand, length: int) -> Array:
    """Values of an operand as i32, with zeros up to a length."""
    xp = array_module(operand.array)
    values = xp.asarray(operand.array).reshape(-1)
    if operand.element != FLOAT:
        values = values.astype(np.int32)
    elif xp is np:
        values = values.astype(np.float32).view(np.int32)
    else:
        values = lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)
    return xp.pad(values, (0, length - values.size))


def _joined(words: Sequence[Array]) -> Array:
    """All words; one if there are none."""
    parts = words or [np.zeros(1, np.int32)]
    return array_module(*parts).concatenate(parts)
