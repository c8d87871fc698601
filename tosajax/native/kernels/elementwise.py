"""Kernel of elementwise operators and reductions of rows: one pass over memory for many nodes.

A row is the last dimension. Values are elements (one for each element of a row), or one for each
row, which a reduction computes. A row is read as many times as reductions follow one another; in
between, elements that are needed again stay in scratch memory.

Without values of rows or of channels, rows have no meaning: elements are cut into equal rows, the
last of which ends with the elements, and may compute some of another row again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native.codegen import abi, floats
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.builder import (
    IRBuilder,
    Module,
    Value,
    power_of_two_runs,
    vector,
)
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.steps import (
    BOOLEAN,
    CHANNEL,
    FLOAT,
    GATE,
    IMAGES,
    RESIZE,
    RESIZED,
    ROW,
    SCALAR,
    Step,
    combined,
    computed,
    first_or,
    identity,
    of_words,
    to_words,
)

BLOCK = 16  # the most lanes that a set has
ENTRIES: Mapping[str, int] = {"i8": 256, "i16": 513}  # of a table, by the type that it looks up


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(abi.Fields):
    """The sizes of a plan."""

    rows: int  # of a work item
    all_rows: int
    length: int  # elements of a row
    elements: int  # of all rows
    blocks: int  # whole blocks of a row
    pitch: int  # elements from a row of channels to the next, and of scratch memory
    image_rows: int  # rows of an image
    width: int  # rows of a row of pixels
    plane: int  # elements of an image that RESIZE reads


class Operand(NamedTuple):
    """An operand of the steps.

    Args:
      kind: see `codegen.steps`.
      element: the IR type of its elements; "i1" for booleans, "float" for float32.
      looked_up: of a table, the type that it looks up.
    """

    kind: str
    element: str
    looked_up: str = ""


class KernelKey(NamedTuple):
    """The specialization: all that its machine code depends on.

    Args:
      isa: the instruction set.
      operands: what the steps read.
      steps: in order; the result of the last is stored.
      last: elements of the last block of a row, if it is not whole; else 0.
    """

    isa: InstructionSet
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    last: int = 0

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        digest = hashlib.sha256(repr((self.operands, self.steps)).encode()).hexdigest()
        return f"tosajax_elementwise_{self.isa.label}_{digest[:32]}_{self.last}"

    @property
    def block(self) -> int:
        """Elements that are computed in turn: as many on each set, so that sums have one order."""
        return max(BLOCK, self.isa.lanes)

    @property
    def has_rows(self) -> bool:
        """Whether rows are those of the tensors."""
        kinds = {operand.kind for operand in self.operands}
        fixed = {ROW, CHANNEL, GATE, RESIZED}
        return bool(kinds & fixed) or any(step.is_reduction for step in self.steps)

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the output."""
        return dtype_of(self.steps[-1].element)

    @property
    def images(self) -> int:
        """The operands that are inputs of the kernel."""
        return sum(operand.kind in IMAGES for operand in self.operands)

    @property
    def stages(self) -> _Stages:
        return _stages_of(self)


def dtype_of(element: str) -> Any:
    """The NumPy dtype of an IR type of elements."""
    names = {BOOLEAN: "bool", FLOAT: "float32", "i8": "int8", "i16": "int16", "i32": "int32"}
    return np.dtype(names[element])


class _Stages(NamedTuple):
    """When values are computed: a row is read once in each stage.

    Args:
      of: the stage of each value, by number; row values are those of a stage's begin.
      passes: how many there are.
      kept: the numbers of elements that a later stage reads, in order.
    """

    of: tuple[int, ...]
    passes: int
    kept: tuple[int, ...]


@functools.cache
def _stages_of(key: KernelKey) -> _Stages:
    first = len(key.operands)
    of = [0] * first
    for step in key.steps:
        of.append(max(of[number] for number in step.read) + step.is_reduction)
    kept = {
        number
        for step, stage in zip(key.steps, of[first:], strict=True)
        for number in step.read
        if number >= first
        and not key.steps[number - first].is_row
        and of[number] < stage - step.is_reduction
    }
    # A reduction at the end needs no further pass over the row.
    last_pass = max(
        (stage - step.is_reduction)
        for step, stage in zip(key.steps, of[first:], strict=True)
        if step.is_reduction or not step.is_row
    )
    return _Stages(tuple(of), last_pass + 1, tuple(sorted(kept)))


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    module = Module()

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers).write(index)

    names = [*(f"x{number}" for number in range(key.images)), "channels", "numbers", "tables"]
    abi.write(module, key.name, [*names, "plan"], item)
    return module


class _Item:
    """Writes the code of a work item: some rows."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers) -> None:
        self.code, self.key, self.stages = code, key, key.stages
        *images, channels, numbers, tables, _ = buffers.operands
        self.out, self.scratch = buffers.out, buffers.scratch
        self.plan = Fields.load(code, buffers.plan)
        self.lanes = key.isa.lanes
        self.result = len(key.operands) + len(key.steps) - 1  # the number of what is stored
        self.addresses: dict[int, Value] = {}
        self.fixed: dict[int, Value] = {}  # scalars, and addresses of tables
        at_channel = at_number = at_entry = 0
        for number, operand in enumerate(key.operands):
            if operand.kind in IMAGES:
                self.addresses[number] = images.pop(0)
            elif operand.kind == CHANNEL:
                self.addresses[number] = code.gep(channels, self.plan["pitch"] * (4 * at_channel))
                at_channel += 1
            elif operand.kind == SCALAR:
                word = code.load("i32", numbers, 4 * at_number).splat(self.lanes)
                self.fixed[number] = of_words(word, operand.element)
                at_number += 1
            else:
                self.fixed[number] = code.gep(tables, 4 * at_entry)
                at_entry += ENTRIES[operand.looked_up]
        self.grid = code.gep(tables, 4 * at_entry)

    def write(self, index: Value) -> None:
        """Writes the code of work item `index`."""
        code, plan = self.code, self.plan
        # The last item ends with the rows, and may compute some of another item again.
        first = (index * plan["rows"]).smin(plan["all_rows"] - plan["rows"])
        with code.loop(plan["rows"]) as offset:
            row = first + offset
            begin = (row * plan["length"]).smin(plan["elements"] - plan["length"])
            _Row(self, row, begin).write()

    def step(self, number: int) -> Step:
        """The step that computes a value."""
        return self.key.steps[number - len(self.key.operands)]

    def loaded(self, number: int, place: Value, count: int) -> Value:
        """Elements of an operand from one of its elements on; the lanes beyond them are 0."""
        element = self.key.operands[number].element
        memory = {BOOLEAN: "i8", FLOAT: "i32"}.get(element, element)
        address = self.code.gep(self.addresses[number], place * (int(memory[1:]) // 8))
        values = self.code.load_first(count, vector(memory, self.lanes), address)
        return of_words(values.to_elements("i32"), element)

    def channels(self, number: int, place: Value) -> Value:
        """Values of channels, from one of them on."""
        address = self.code.gep(self.addresses[number], place * 4)
        words = self.code.load(vector("i32", self.lanes), address)
        return of_words(words, self.key.operands[number].element)


class _Row:
    """Writes the code of a row.

    Args:
      item: the work item.
      row: index of the row, i64.
      begin: index of its first element, i64.
    """

    def __init__(self, item: _Item, row: Value, begin: Value) -> None:
        self.item, self.code, self.key, self.row, self.begin = item, item.code, item.key, row, begin
        self.known = dict(item.fixed)  # the values that are the same for all elements of the row
        self.begins: dict[int, Value] = {}  # of an operand, the index of the row's first element
        self.sample: _Sample | None = None
        for number, operand in enumerate(item.key.operands):
            self._prepare(number, operand.kind)

    def _prepare(self, number: int, kind: str) -> None:
        """Computes what all elements of the row need of an operand."""
        if kind == ROW:
            first = self.item.loaded(number, self.row, 1)
            self.known[number] = first.shuffle(first, [0] * self.item.lanes)
        elif kind == GATE:
            plan = self.item.plan
            self.begins[number] = self.row // plan["image_rows"] * plan["length"]
        elif kind == RESIZED:
            self.sample = _Sample(self.item, self.row)
        else:
            self.begins[number] = self.begin

    def write(self) -> None:
        code, item, block = self.code, self.item, self.key.block
        blocks = item.plan["blocks"]
        self._compute_rows(0, {})
        for stage in range(item.stages.passes):
            totals = self._totals(stage)
            with code.loop(blocks) as number:
                self._compute_block(stage, number * block, block, totals)
            self._compute_block(stage, blocks * block, self.key.last, totals)
            self._compute_rows(stage + 1, totals)
        if self.key.steps[-1].is_row:
            self._store(self.known[item.result], self.row, 1)

    def _numbered(self, stage: int) -> list[tuple[int, Step]]:
        """The steps of a stage, with the numbers of their results."""
        of = self.item.stages.of
        steps = enumerate(self.key.steps, len(self.key.operands))
        return [(number, step) for number, step in steps if of[number] == stage]

    def _totals(self, stage: int) -> dict[int, list[Value]]:
        """The accumulators of the reductions of a stage: addresses of vectors, by number."""
        slots: dict[int, list[Value]] = {}
        for number, step in self._numbered(stage + 1):
            if step.is_reduction:
                ir_type = vector("i32", self.item.lanes)
                vectors = range(self.key.block // self.item.lanes)
                slots[number] = [self.code.alloca(ir_type) for _ in vectors]
                for slot in slots[number]:
                    self.code.store(self.code.value(identity(step), ir_type), slot)
        return slots

    def _compute_block(
        self, stage: int, place: Value, count: int, totals: Mapping[int, Sequence[Value]]
    ) -> None:
        """Computes a block of elements in a stage; see `_compute`."""
        lanes = self.item.lanes
        for vector_number, begin in enumerate(range(0, count, lanes)):
            slots = {number: slots[vector_number] for number, slots in totals.items()}
            self._compute(stage, place + begin, min(lanes, count - begin), slots)

    def _compute(self, stage: int, place: Value, count: int, totals: Mapping[int, Value]) -> None:
        """Computes a vector of elements in a stage.

        Args:
          stage: the stage.
          place: index of the first element in the row, i64.
          count: elements of the vector.
          totals: accumulators of reductions.
        """
        values, kept = _Elements(self, place, count), self.item.stages.kept
        for number, step in self._numbered(stage):
            if step.is_row:
                continue
            result = values.computed(step)
            values.known[number] = result
            if number in kept:
                self.code.store(to_words(result, step.element), self.kept(number, place))
            if number == self.item.result:
                self._store(result, self.begin + place, count)
        for number, slot in totals.items():
            step = self.item.step(number)
            words = to_words(values[step.read[0]], step.source)
            if count < self.item.lanes:
                words = first_or(words, count, identity(step))
            total = self.code.load(words.type, slot)
            self.code.store(combined(step, total, words), slot)

    def _compute_rows(self, stage: int, totals: Mapping[int, Sequence[Value]]) -> None:
        """Computes the values of the row that a stage begins with."""
        for number, step in self._numbered(stage):
            if number in totals:
                self.known[number] = of_words(self._reduced(step, totals[number]), step.element)
            elif step.is_row:
                self.known[number] = computed(step, [self.known[n] for n in step.read])

    def _reduced(self, step: Step, slots: Sequence[Value]) -> Value:
        """The total of all lanes of some vectors, in each lane; halves are combined in turn."""
        lanes = half = self.item.lanes
        parts = [self.code.load(vector("i32", lanes), slot) for slot in slots]
        while len(parts) > 1:
            middle = len(parts) // 2
            pairs = zip(parts[:middle], parts[middle:], strict=True)
            parts = [combined(step, *pair) for pair in pairs]
        (total,) = parts
        while half > 1:
            half //= 2
            total = combined(step, total, total.shuffle(total, [i ^ half for i in range(lanes)]))
        return total

    def kept(self, number: int, place: Value) -> Value:
        """The address of elements in scratch memory."""
        index = self.item.stages.kept.index(number)
        offset = (self.item.plan["pitch"] * index + place) * 4
        return self.code.gep(self.item.scratch, offset)

    def _store(self, values: Value, place: Value, count: int) -> None:
        """Stores the first `count` lanes of results from an element of the output on."""
        size = self.key.dtype.itemsize
        words = to_words(values, self.key.steps[-1].element).to_elements(f"i{8 * size}")
        address = self.code.gep(self.item.out, place * size)
        for begin, length in power_of_two_runs(count):
            self.code.store(words.extract(begin, length), address, begin * size)


class _Elements:
    """The elements of a vector of a row, each loaded or computed once.

    Args:
      row: the row.
      place: index of the first element in the row, i64.
      count: elements of the vector.
    """

    def __init__(self, row: _Row, place: Value, count: int) -> None:
        self.row, self.place, self.count = row, place, count
        self.known: dict[int, Value] = {}

    def __getitem__(self, number: int) -> Value:
        """The value of a number; it was computed in this stage, or is loaded."""
        if number in self.row.known:
            return self.row.known[number]
        if number not in self.known:
            self.known[number] = self._loaded(number)
        return self.known[number]

    def _loaded(self, number: int) -> Value:
        item = self.row.item
        if number >= len(item.key.operands):
            address = self.row.kept(number, self.place)
            words = item.code.load(vector("i32", item.lanes), address)
            return of_words(words, item.step(number).element)
        if item.key.operands[number].kind == CHANNEL:
            return item.channels(number, self.place)
        return item.loaded(number, self.row.begins[number] + self.place, self.count)

    def computed(self, step: Step) -> Value:
        """The result of a step."""
        if step.op != RESIZE:
            return computed(step, [self[number] for number in step.read])
        assert self.row.sample is not None
        (number,) = step.read
        return self.row.sample.value(number, self.place, self.count, step)


class _Sample:
    """The place of a row's pixel in an image that RESIZE reads.

    The grid has four words for each row and then for each column of pixels: the elements from the
    begin of the image to the neighbour before and behind, and the weights of both.

    Args:
      item: the work item.
      row: index of the row, i64.
    """

    WORDS = 4

    def __init__(self, item: _Item, row: Value) -> None:
        self.item, code, plan = item, item.code, item.plan
        image, pixel = row // plan["image_rows"], row % plan["image_rows"]
        y, x = pixel // plan["width"], pixel % plan["width"]
        height = plan["image_rows"] // plan["width"]
        grid, size = item.grid, 4 * self.WORDS
        self.rows, self.columns = (
            [code.load("i32", grid, at * size, 4 * word) for word in range(self.WORDS)]
            for at in (y, height + x)
        )
        self.begin = image * plan["plane"]

    def value(self, number: int, place: Value, count: int, step: Step) -> Value:
        """Elements of the pixel, from one of its channels on."""

        def load(row: Value, column: Value) -> Value:
            index = self.begin + row.to("i64") + column.to("i64") + place
            return self.item.loaded(number, index, count)

        (top, bottom, *vertical), (left, right, *horizontal) = self.rows, self.columns
        if not any(step.mode):
            return load(top, left)
        above, below = (
            self._mixed(load(row, left), load(row, right), horizontal, step)
            for row in (top, bottom)
        )
        return self._mixed(above, below, vertical, step)

    def _mixed(self, before: Value, after: Value, weights: Sequence[Value], step: Step) -> Value:
        """The weighted sum of two vectors."""
        words = (weight.splat(self.item.lanes) for weight in weights)
        rest, weight = (of_words(w, FLOAT if step.source == FLOAT else "i32") for w in words)
        if step.source == FLOAT:
            return floats.multiply_add(after, weight, floats.multiply(before, rest))
        return before * rest + after * weight
