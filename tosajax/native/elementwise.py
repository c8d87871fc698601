"""Elementwise operators and reductions of rows as one kernel: its operands and its plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native.calls.schedule import KernelCall
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.steps import CHANNEL, FLOAT, IMAGES, RESIZED, SCALAR, TABLE, Step
from tosajax.native.kernels import elementwise
from tosajax.native.kernels.elementwise import Fields, KernelKey
from tosajax.native.operands import Array, array_module, bits_of
from tosajax.native.sharing import threads_of
from tosajax.native.tiling import Plan
from tosajax.ops.image import Samples

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
      grid: of an image that RESIZE reads, where its pixels are, as `grid_of` returns it.
    """

    kind: str
    array: Any
    element: str
    looked_up: str = ""
    grid: np.ndarray | None = None


def compute(
    isa: InstructionSet, shape: Sequence[int], operands: Sequence[Operand], steps: Sequence[Step]
) -> KernelCall:
    """Computes steps of elements.

    Args:
      isa: an instruction set of this processor.
      shape: the shape of elements, of rank 2 or more.
      operands: what the steps read; at most one image for RESIZE.
      steps: in order; see `codegen.steps`.

    Returns:
      A kernel whose result is the last step's: of the elements' shape, or 1 for each row.
    """
    isa = isa.vector_set
    kinds = tuple(elementwise.Operand(o.kind, o.element, o.looked_up) for o in operands)
    key = KernelKey(isa, kinds, tuple(steps))
    images = [o.array for o in operands if o.kind in IMAGES]
    pitch = -(-shape[-1] // key.block) * key.block
    channels = [_words(o, pitch) for o in operands if o.kind == CHANNEL]
    numbers = [_words(o, 1) for o in operands if o.kind == SCALAR]
    tables = [_words(o, o.array.size) for o in operands if o.kind == TABLE]
    resized = [o for o in operands if o.kind == RESIZED]
    tables += [o.grid.reshape(-1) for o in resized if o.grid is not None]
    plane = math.prod(resized[0].array.shape[1:]) if resized else 0

    def plan(x: Sequence[int], workers: int) -> Plan:
        return _plan(key, (x[0], *shape[1:]), plane, workers)

    def out(x: Sequence[int]) -> tuple[int, ...]:
        del x
        return (*shape[1:-1], 1) if steps[-1].is_row else tuple(shape[1:])

    joined = [_joined(words) for words in (channels, numbers, tables)]
    return KernelCall(elementwise.module_of, plan, out, (*images, *joined), key.dtype, len(images))


def grid_of(
    rows: Samples, columns: Samples, shape: Sequence[int], *, is_bilinear: bool, element: str
) -> np.ndarray:
    """Where the pixels of RESIZE are in an image, and the weights of their neighbours.

    Args:
      rows: where rows are among those of the image.
      columns: where columns are.
      shape: of the image, [N, H, W, C].
      is_bilinear: whether it is bilinear, else it takes the nearest pixel.
      element: the IR type of elements.

    Returns:
      Four words for each row, then for each column, see `kernels.elementwise`; int32.
    """
    parts = []
    for samples, pitch in ((rows, shape[2] * shape[3]), (columns, shape[3])):
        before, after = samples.before, samples.after
        if not is_bilinear:
            before = after = samples.nearest
        weights = samples.unit - samples.part, samples.part
        if element == FLOAT:
            weight = (samples.part / samples.unit).astype(np.float32)
            weights = bits_of(np.float32(1) - weight), bits_of(weight)
        words = before * pitch, after * pitch, *weights
        parts.append(np.stack([word.astype(np.int32) for word in words], 1))
    return np.concatenate(parts)


def _plan(key: KernelKey, x: Sequence[int], plane: int, workers: int) -> Plan:
    """The plan for elements of a shape; `plane`: elements of an image that RESIZE reads."""
    block, elements, work = key.block, math.prod(x), len(key.steps)
    if key.has_rows:
        length = x[-1]
    else:
        most = -(-_ITEM // work // block) * block
        fair = -(-elements // (workers * block)) * block
        length = min(elements // block * block or elements, most, fair)
    key = key._replace(last=length % key.block)
    all_rows = -(-elements // length)
    rows = max(1, min(_ITEM // (length * work), -(-all_rows // workers)))
    pitch = -(-length // key.block) * key.block
    fields = Fields(
        rows=rows,
        all_rows=all_rows,
        length=length,
        elements=elements,
        blocks=length // key.block,
        pitch=pitch,
        image_rows=math.prod(x[1:-1]),
        width=x[-2] if len(x) > 2 else 1,
        plane=plane,
    )
    items = -(-all_rows // rows)
    used = threads_of(items, elements * work // _THREAD, workers)
    return Plan(key, fields.as_list(), items, used, 0, 4 * pitch * len(key.stages.kept))


def _words(operand: Operand, length: int) -> Array:
    """Values of an operand as i32, with zeros up to a length."""
    xp = array_module(operand.array)
    values = xp.asarray(operand.array).reshape(-1)
    values = bits_of(values) if operand.element == FLOAT else values.astype(np.int32)
    return xp.pad(values, (0, length - values.size))


def _joined(words: Sequence[Array]) -> Array:
    """All words; one if there are none."""
    parts = words or [np.zeros(1, np.int32)]
    return array_module(*parts).concatenate(parts)
