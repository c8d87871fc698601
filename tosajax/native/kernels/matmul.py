"""Kernel of MATMUL: int8 or int16, neither matrix constant, with an exact RESCALE as epilogue.

A work item is some rows of one product by some blocks of its columns. The thread copies the rows
unless they can be read in place. Then, block by block, it packs the columns into a panel, in the
order in which `gemm_tile` reads weights, and multiplies all its rows by the panel.

Sets that multiply 8 bits keep zero points in both matrices, and correct the sums:

  sum (a - a_zp) * (b - b_zp) = sum a * b - a_zp * sum b - b_zp * (sum a - C * a_zp)

The second term is the bias of a column, the third the correction of a row. int16, which has no zero
points, is multiplied by sets that multiply 16 bits: all of a by the upper bytes of b, and by the
lower bytes of b.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from tosajax.native.codegen import abi
from tosajax.native.codegen.abi import Buffers
from tosajax.native.codegen.accumulators import Tile
from tosajax.native.codegen.builder import IRBuilder, Module, Value, element_type, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import EvenOdd
from tosajax.native.kernels.epilogue import (
    FILL,
    LARGEST,
    EpilogueKey,
    EpilogueOperands,
    EpilogueWriter,
    write_scale_tables,
)
from tosajax.native.kernels.gemm_tile import (
    Int16Split,
    ReductionLayout,
    StagingConversion,
    accumulate,
    accumulate_int16,
    join_bytes,
    pack_words,
)


class KernelKey(NamedTuple):
    """The specialization of a product: all that its machine code depends on.

    Args:
      isa: the instruction set.
      rows: rows of a tile.
      vectors: vectors of columns in a block.
      rest: vectors in the last block; 0 if that has `vectors` as well.
      tail: reduction elements behind the last whole word of `isa.inner`; 0 if there are none.
      in_place: whether the rows of a are read without a copy.
      epilogue: how accumulators become results.
    """

    isa: InstructionSet
    rows: int
    vectors: int
    rest: int
    tail: int
    in_place: bool
    epilogue: EpilogueKey

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        sizes = self.rows, self.vectors, self.rest, self.tail, int(self.in_place)
        numbers = "_".join(map(str, sizes))
        return f"tosajax_matmul_{self.isa.label}_{numbers}_{self.epilogue.name}"


OPERANDS = ("a", "b", "channels", "limits", "plan")
# Index in the operand "limits", behind those of `epilogue`; at `FILL` it has the zero point of a.
B_ZP = LARGEST + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(abi.Fields):
    """The sizes of a plan; the offsets of segments follow, in bytes."""

    blocks: int  # of columns, the last one included
    group: int  # blocks of a work item
    groups: int  # of blocks
    parts: int  # of rows
    rows: int  # of a part
    height: int
    depth: int
    width: int
    words: int  # whole words of `isa.inner` reduction elements
    segments: int  # whose sums int32 holds
    steps: int  # of a segment
    row_pitch: int  # bytes from a row to the next, as steps read them
    panel: int  # bytes of packed columns
    plane: int  # bytes of packed upper bytes; for int16
    bias: int  # bytes of the columns' bias
    corrections: int  # bytes of the rows' corrections
    padded_width: int


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        plan = _plan(code, buffers)
        write_scale_tables(code, key.epilogue, _addresses(buffers), plan["padded_width"])

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers, index).write()

    abi.write(module, key.name, OPERANDS, item, prologue)
    return module


def _plan(code: IRBuilder, buffers: Buffers) -> dict[str, Value]:
    return Fields.load(code, buffers.plan)


def _addresses(buffers: Buffers) -> EpilogueOperands:
    _, _, channels, limits, _ = buffers.operands
    return EpilogueOperands(buffers.out, buffers.table, channels, limits)


class _Item:
    """Writes the code of a work item."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers, index: Value) -> None:
        self.code, self.key, self.isa = code, key, key.isa
        plan = self.plan = _plan(code, buffers)
        a, b, _, limits, self.fields = buffers.operands
        per_product = plan["groups"] * plan["parts"]
        product, within = index // per_product, index % per_product
        self.group, part = within // plan["parts"], within % plan["parts"]
        # The last part ends with the rows, and may compute rows of another part again.
        first = (part * plan["rows"]).smin(plan["height"] - plan["rows"])
        self.row = product * plan["height"] + first
        self.element, self.size = ("i16", 2) if key.epilogue.is_int16 else ("i8", 1)
        self.a = code.gep(a, self.row * plan["depth"] * self.size)
        self.b = code.gep(b, product * plan["depth"] * plan["width"] * self.size)
        self.panel = buffers.scratch
        self.bias = code.gep(self.panel, plan["panel"])
        self.corrections = code.gep(self.bias, plan["bias"])
        self.copy = code.gep(self.corrections, plan["corrections"])
        self.a_zp, self.b_zp = (code.load("i32", limits, 4 * i) for i in (FILL, B_ZP))
        self.writer = EpilogueWriter(
            code, key.epilogue, _addresses(buffers), plan["width"], plan["padded_width"]
        )
        self.vector_type = vector("i32", self.isa.lanes)
        self.ones = code.value(0x01010101, self.vector_type)
        self.xor_mask = None
        if self.isa.input_offset:
            self.xor_mask = code.opaque(self.isa.input_offset * 0x01010101, self.vector_type)

    def write(self) -> None:
        key, code = self.key, self.code
        if not key.in_place:
            self._copy_rows()
        if self.isa.element_bytes == 1:
            self._correct_rows()
        plan = self.plan
        self.isa.accumulators.enter(code, key.rows)
        begin = self.group * plan["group"]
        end = (begin + plan["group"]).smin(plan["blocks"])
        # The last block is written apart if it has fewer vectors, or fewer columns in the last.
        is_apart = key.rest > 0 or key.epilogue.last_channels < self.isa.lanes
        whole = end.smin(plan["blocks"] - int(is_apart))
        with code.loop(whole - begin) as i:
            self._write_block(begin + i, key.vectors, is_last=False)
        if is_apart:
            with code.if_then(whole < end):
                self._write_block(whole, key.rest or key.vectors, is_last=True)
        self.isa.accumulators.leave(code)

    # Rows of a.

    def _copy_rows(self) -> None:
        """Copies rows as steps read them.

        Memory behind a row need not be cleared: steps multiply it by the panel's zeros.
        """
        code, plan, depth = self.code, self.plan, self.plan["depth"]
        widens = self.size < self.isa.element_bytes
        with code.loop(plan["rows"]) as row:
            source = code.gep(self.a, row * depth * self.size)
            to = code.gep(self.copy, row * plan["row_pitch"])
            with code.loop(depth) as i:
                x = code.load(self.element, source, i * self.size)
                if widens:
                    x = x.to("i16") - self.a_zp.to("i16")
                code.store(x, to, i * self.isa.element_bytes)

    def _correct_rows(self) -> None:
        """Stores -b_zp * (sum a - C * a_zp) of each row."""
        code, plan = self.code, self.plan
        with code.loop(plan["rows"]) as row:
            code.store(code.value(0, "i32"), self.corrections, row * 4)
        with code.if_then(self.b_zp.not_equals(0)), code.loop(plan["rows"]) as row:
            total = self._row_sum(code.gep(self.a, row * plan["depth"]))
            zero_points = plan["depth"].to("i32") * self.a_zp
            correction = (zero_points - code.load("i32", total)) * self.b_zp
            code.store(correction, self.corrections, row * 4)

    def _row_sum(self, source: Value) -> Value:
        """The stack slot of the sum of a row of int8, i32: whole vectors, then single bytes."""
        code, plan, lanes = self.code, self.plan, self.isa.lanes
        size = 4 * lanes
        whole = plan["depth"] // size
        sums, total = code.alloca(self.vector_type), code.alloca("i32")
        code.store(code.value(0, self.vector_type), sums)
        with code.loop(whole) as i:
            self._add_bytes(sums, code.load(self.vector_type, source, i * size))
        reduced = code.load(self.vector_type, sums)
        name = f"llvm.vector.reduce.add.v{lanes}i32"
        code.store(code.call("i32", name, reduced), total)
        with code.loop(plan["depth"] - whole * size) as i:
            x = code.load("i8", source, whole * size, i).to("i32")
            code.store(code.load("i32", total) + x, total)
        return total

    def _add_bytes(self, slot: Value, values: Value) -> None:
        """Adds the 4 int8 of each lane to a stack slot, a vector of i32: a product with ones."""
        sums = self.code.load(self.vector_type, slot)
        total = self.isa.step(self.code, sums, self.ones, values.bitcast(self.vector_type))
        self.code.store(total, slot)

    # Columns of b.

    def _write_block(self, block: Value, vectors: int, *, is_last: bool) -> None:
        """Packs a block of columns, and multiplies all rows by it.

        Args:
          block: index of the block, i64.
          vectors: vectors of the block.
          is_last: whether its last vector is the last of all columns.
        """
        code, plan, key = self.code, self.plan, self.key
        first_vector = block * key.vectors
        columns = code.gep(self.b, first_vector * (self.isa.lanes * self.size))
        self._pack(columns, vectors, key.epilogue.last_channels if is_last else self.isa.lanes)
        source = self.a if key.in_place else self.copy
        offsets = code.gep(self.fields, Fields.nbytes())
        with code.loop(plan["rows"], key.rows) as begin:
            # The last tile ends with the rows, and may compute rows again.
            row = begin.smin(plan["rows"] - key.rows)
            segments = plan["segments"], offsets, plan["steps"]
            first = code.gep(source, row * plan["row_pitch"])
            reduction = ReductionLayout(first, plan["row_pitch"], *segments, self.xor_mask)
            sums = self._accumulate(Tile(key.rows, vectors), reduction, row)
            self.writer.store(sums, self.row + row, first_vector, is_last=is_last)

    def _accumulate(
        self, tile: Tile, reduction: ReductionLayout, row: Value
    ) -> Sequence[Sequence[Value | EvenOdd]]:
        """Computes the accumulators of a tile, whose first row is `row` of the work item."""
        code, isa = self.code, self.isa
        if not self.key.epilogue.is_int16:
            is_corrected = isa.element_bytes == 1
            corrections = code.gep(self.corrections, row * 4) if is_corrected else None
            return accumulate(code, isa, tile, reduction, self.panel, self.bias, corrections)
        zero = code.value(0, vector("i64", isa.lanes // 2))
        bias = [EvenOdd(zero, zero)] * tile.vectors
        split = Int16Split(code.value(1), code.value(0))
        upper, lower = (
            accumulate_int16(code, isa, tile, reduction, panel, bias, split)
            for panel in (self.panel, code.gep(self.panel, self.plan["plane"]))
        )
        rows = zip(upper, lower, strict=True)
        return [[join_bytes(parts) for parts in zip(*both, strict=True)] for both in rows]

    def _conversions(self) -> list[StagingConversion]:
        """The conversions of an element, one for each plane of a panel.

        The planes of int16 are its upper bytes, signed, and its lower bytes, unsigned.
        """
        is_int16 = self.key.epilogue.is_int16
        return [lambda x: x >> 8, lambda x: x & 255] if is_int16 else [lambda x: x]

    def _pack(self, columns: Value, vectors: int, last_columns: int) -> None:
        """Packs a block of columns into the panel, and computes the columns' bias.

        Args:
          columns: address of the block's first column.
          vectors: vectors of the block.
          last_columns: columns of the last vector.
        """
        code, plan, isa = self.code, self.plan, self.isa
        counts = [isa.lanes] * (vectors - 1) + [last_columns]
        sums = [code.alloca(self.vector_type) for _ in counts]
        for slot in sums:
            code.store(code.value(0, self.vector_type), slot)
        with code.loop(plan["words"]) as word:
            self._pack_word(columns, counts, sums, word, isa.inner)
        if self.key.tail:
            self._pack_word(columns, counts, sums, plan["words"], self.key.tail)
        self._clear_rest(vectors)
        self._store_bias(sums)

    def _pack_word(
        self, columns: Value, counts: Sequence[int], sums: Sequence[Value], word: Value, length: int
    ) -> None:
        """Packs one word of each column, and adds it to the columns' sums.

        Args:
          columns: address of the block's first column.
          counts: columns of each vector of the block.
          sums: stack slots of the sums of columns, by vector.
          word: index of the word, i64.
          length: reduction elements of the word, at most `isa.inner`.
        """
        code, plan, isa = self.code, self.plan, self.isa
        first, pitch = word * isa.inner, plan["width"] * self.size
        rows = [code.gep(columns, (first + i) * pitch) for i in range(length)]
        ir_type = vector(self.element, isa.lanes)
        for v, (count, slot) in enumerate(zip(counts, sums, strict=True)):
            offset = v * isa.lanes * self.size
            parts = [code.load_first(count, ir_type, code.gep(row, offset)) for row in rows]
            for plane, convert in enumerate(self._conversions()):
                packed = pack_words(code, isa, list(map(convert, parts)), self.b_zp)
                self._store_word(packed, word, len(counts), plane, v)
                if isa.element_bytes == 1:
                    for part in _split_words(packed):
                        self._add_bytes(slot, part)

    def _store_word(self, packed: Value, word: Value, vectors: int, plane: int, v: int) -> None:
        """Stores the words of vector `v`; the vectors of a step lie side by side in the panel."""
        per_step = self.isa.depth // self.isa.inner
        step_bytes, word_bytes = self.isa.weight_bytes, self.isa.weight_bytes // per_step
        step = self.code.gep(self.panel, word // per_step * (vectors * step_bytes))
        address = self.code.gep(step, word % per_step * word_bytes)
        self.code.store(packed, address, self.plan["plane"] * plane, v * step_bytes)

    def _clear_rest(self, vectors: int) -> None:
        """Clears the words between the last reduction element and the end of the last segment."""
        code, plan, isa = self.code, self.plan, self.isa
        done = plan["words"] + int(self.key.tail > 0)
        per_step = isa.depth // isa.inner
        zeros = code.value(0, vector("i8", isa.weight_bytes // per_step))
        words = plan["segments"] * plan["steps"] * per_step
        with code.loop(words - done) as more:
            for v, plane in itertools.product(range(vectors), range(len(self._conversions()))):
                self._store_word(zeros, done + more, vectors, plane, v)

    def _store_bias(self, sums: Sequence[Value]) -> None:
        """Stores -(a_zp + input_offset) * sum b of each column, by the slots of its sums."""
        code, lanes = self.code, self.isa.lanes
        zero_point = (self.a_zp + self.isa.input_offset).splat(lanes)
        for v, slot in enumerate(sums):
            bias = code.value(0, self.vector_type) - zero_point * code.load(self.vector_type, slot)
            code.store(bias, self.bias, v * (4 * lanes))


def _split_words(word: Value) -> Sequence[Value]:
    """Vectors of words of 4 bytes, from one whose words have 4 or 8 bytes."""
    if element_type(word.type) == "i32":
        return [word]
    return [part.to_elements("i32") for part in (word, word >> 32)]
