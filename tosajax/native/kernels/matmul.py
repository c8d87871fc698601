"""The kernel of MATMUL of int8 or int16, neither of which is known before, with an exact RESCALE.

An item is some or all rows of one product, and some blocks of its columns. Its thread copies the
rows if it must, packs a block of columns as the steps of `product` read them, and multiplies all
its rows by them. Sets that multiply bytes keep zero points, which sums over columns and rows take
away then:

  sum (a - a_zp) * (b - b_zp) = sum a * b - a_zp * sum b - b_zp * (sum a - C * a_zp)

Of int16, which has no zero points, sets that multiply 16 bits take all of a, and the upper and the
lower bytes of b, one after the other.
"""

from __future__ import annotations

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
    """What distinguishes the machine code of two products.

    Args:
      isa: of the processor.
      rows: of a tile.
      vectors: of columns in a tile.
      rest: vectors of columns in the last block, 0 if it is like the others.
      tail: terms of a lane that are left, 0 if it is like the others.
      in_place: whether rows are read where they are.
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
        """Of its function."""
        sizes = self.rows, self.vectors, self.rest, self.tail, int(self.in_place)
        numbers = "_".join(map(str, sizes))
        return f"tosajax_matmul_{self.isa.label}_{numbers}_{self.epilogue.name}"


OPERANDS = ("a", "b", "channels", "limits", "plan")
# Of limits, behind those of `results`, whose first is the zero point of a.
B_ZP = LARGEST + 1
# The plan, in order; where segments begin follows.
FIELDS = (
    "blocks",  # of columns, the last one included
    "group",  # blocks of an item
    "groups",
    "parts",  # of rows
    "rows",  # of a part
    "height",
    "depth",
    "width",
    "words",  # of a lane, whole ones
    "segments",  # whose sums int32 holds
    "steps",  # of a segment
    "row_pitch",  # bytes from what is read of a row to that of the next
    "panel",  # bytes of packed columns
    "plane",  # of those of the upper bytes of int16
    "bias",  # bytes of the sums' begin, by column
    "corrections",  # bytes of the same by row
    "padded_width",
)


def module_of(key: KernelKey) -> Module:
    """The module of a key."""
    module = Module()

    def prologue(code: IRBuilder, buffers: Buffers) -> None:
        plan = _plan(code, buffers)
        write_scale_tables(code, key.epilogue, _addresses(buffers), plan["padded_width"])

    def item(code: IRBuilder, buffers: Buffers, index: Value) -> None:
        _Item(code, key, buffers, index).write()

    abi.write(module, key.name, OPERANDS, item, prologue)
    return module


def _plan(code: IRBuilder, buffers: Buffers) -> dict[str, Value]:
    return {name: code.load("i64", buffers.plan, 8 * i) for i, name in enumerate(FIELDS)}


def _addresses(buffers: Buffers) -> EpilogueOperands:
    _, _, channels, limits, _ = buffers.operands
    return EpilogueOperands(buffers.out, buffers.table, channels, limits)


class _Item:
    """Writes the work of an item."""

    def __init__(self, code: IRBuilder, key: KernelKey, buffers: Buffers, index: Value) -> None:
        self.code, self.key, self.isa = code, key, key.isa
        plan = self.plan = _plan(code, buffers)
        a, b, _, limits, self.fields = buffers.operands
        of_product = plan["groups"] * plan["parts"]
        number, within = index // of_product, index % of_product
        self.group, part = within // plan["parts"], within % plan["parts"]
        # The last part ends with the rows, and may do some again that another has done.
        first = (part * plan["rows"]).smin(plan["height"] - plan["rows"])
        self.row = number * plan["height"] + first
        self.element, self.size = ("i16", 2) if key.epilogue.is_int16 else ("i8", 1)
        self.a = code.gep(a, self.row * plan["depth"] * self.size)
        self.b = code.gep(b, number * plan["depth"] * plan["width"] * self.size)
        self.panel = buffers.scratch
        self.bias = code.gep(self.panel, plan["panel"])
        self.corrections = code.gep(self.bias, plan["bias"])
        self.copy = code.gep(self.corrections, plan["corrections"])
        self.a_zp, self.b_zp = (code.load("i32", limits, 4 * at) for at in (FILL, B_ZP))
        self.results = EpilogueWriter(code, key.epilogue, _addresses(buffers), plan["width"])
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
        # The last block is apart where it has fewer vectors or columns.
        is_apart = key.rest > 0 or key.epilogue.last_channels < self.isa.lanes
        whole = end.smin(plan["blocks"] - int(is_apart))
        with code.loop(whole - begin) as i:
            self._write_block(begin + i, key.vectors, is_last=False)
        if is_apart:
            with code.if_then(whole < end):
                self._write_block(whole, key.rest or key.vectors, is_last=True)
        self.isa.accumulators.leave(code)

    # Rows.

    def _copy_rows(self) -> None:
        """Copies rows as steps read them. ReductionLayout that are not there may be anything: times 0."""
        code, plan, depth = self.code, self.plan, self.plan["depth"]
        is_less = self.size < self.isa.element_bytes
        with code.loop(plan["rows"]) as row:
            source = code.gep(self.a, row * depth * self.size)
            to = code.gep(self.copy, row * plan["row_pitch"])
            with code.loop(depth) as i:
                x = code.load(self.element, source, i * self.size)
                if is_less:
                    x = x.to("i16") - self.a_zp.to("i16")
                code.store(x, to, i * self.isa.element_bytes)

    def _correct_rows(self) -> None:
        """-b_zp * (sum a - C * a_zp) of each row."""
        code, plan, lanes = self.code, self.plan, self.isa.lanes
        size = 4 * lanes
        with code.loop(plan["rows"]) as row:
            code.store(code.value(0, "i32"), self.corrections, row * 4)
        with code.if_then(self.b_zp.not_equals(0)), code.loop(plan["rows"]) as row:
            source = code.gep(self.a, row * plan["depth"])
            whole = plan["depth"] // size
            vectors, total = code.alloca(self.vector_type), code.alloca("i32")
            code.store(code.value(0, self.vector_type), vectors)
            with code.loop(whole) as i:
                x = code.load(self.vector_type, source, i * size)
                self._add(vectors, x)
            reduced = code.load(self.vector_type, vectors)
            name = f"llvm.vector.reduce.add.v{lanes}i32"
            code.store(code.call("i32", name, reduced), total)
            with code.loop(plan["depth"] - whole * size) as i:
                x = code.load("i8", source, whole * size, i).to("i32")
                code.store(code.load("i32", total) + x, total)
            zero_points = plan["depth"].to("i32") * self.a_zp
            correction = (zero_points - code.load("i32", total)) * self.b_zp
            code.store(correction, self.corrections, row * 4)

    def _add(self, total: Value, of_bytes: Value) -> None:
        """Adds bytes in fours to a variable."""
        added = self.isa.step(
            self.code,
            self.code.load(self.vector_type, total),
            self.ones,
            of_bytes.bitcast(self.vector_type),
        )
        self.code.store(added, total)

    # Columns.

    def _write_block(self, block: Value, vectors: int, *, is_last: bool) -> None:
        """Packs a block of columns, and multiplies all rows by it."""
        code, plan, key = self.code, self.plan, self.key
        before = block * key.vectors
        columns = code.gep(self.b, before * (self.isa.lanes * self.size))
        self._pack(columns, vectors, key.epilogue.last_channels if is_last else self.isa.lanes)
        source = self.a if key.in_place else self.copy
        offsets = code.gep(self.fields, 8 * len(FIELDS))
        with code.loop(plan["rows"], key.rows) as row:
            # The last tile ends with the rows.
            at = row.smin(plan["rows"] - key.rows)
            segments = plan["segments"], offsets, plan["steps"]
            first = code.gep(source, at * plan["row_pitch"])
            terms = ReductionLayout(first, plan["row_pitch"], *segments, self.xor_mask)
            found = self._sums(Tile(key.rows, vectors), terms, at)
            self.results.store(found, self.row + at, before, is_last=is_last)

    def _sums(
        self, tile: Tile, terms: ReductionLayout, row: Value
    ) -> Sequence[Sequence[Value | EvenOdd]]:
        """Of a tile, whose first row is one of the item's."""
        code, isa = self.code, self.isa
        if not self.key.epilogue.is_int16:
            is_corrected = isa.element_bytes == 1
            corrections = code.gep(self.corrections, row * 4) if is_corrected else None
            return accumulate(code, isa, tile, terms, self.panel, self.bias, corrections)
        zero = code.value(0, vector("i64", isa.lanes // 2))
        rounds = Int16Split(code.value(1), code.value(0))
        upper, lower = (
            accumulate_int16(
                code, isa, tile, terms, panel, [EvenOdd(zero, zero)] * tile.vectors, rounds
            )
            for panel in (self.panel, code.gep(self.panel, self.plan["plane"]))
        )
        rows = zip(upper, lower, strict=True)
        return [[join_bytes(parts) for parts in zip(*both, strict=True)] for both in rows]

    def _conversions(self) -> list[StagingConversion]:
        """What panels hold of an element: of int16 the upper and the lower byte."""
        return (
            [lambda x: x >> 8, lambda x: x & 255] if self.key.epilogue.is_int16 else [lambda x: x]
        )

    def _pack(self, block: Value, vectors: int, last: int) -> None:
        """Columns of a block, and where their sums begin; `last` columns of the last vector."""
        code, plan, isa = self.code, self.plan, self.isa
        of_step, of_word = isa.weight_bytes, isa.weight_bytes // (isa.depth // isa.inner)
        counts = [isa.lanes] * (vectors - 1) + [last]
        totals = [code.alloca(self.vector_type) for _ in counts]
        for total in totals:
            code.store(code.value(0, self.vector_type), total)

        def place(number: Value) -> Value:
            each = isa.depth // isa.inner
            step = code.gep(self.panel, number // each * (vectors * of_step))
            return code.gep(step, number % each * of_word)

        def pack(number: Value, terms: int) -> None:
            first, pitch = number * isa.inner, plan["width"] * self.size
            rows = [code.gep(block, (first + t) * pitch) for t in range(terms)]
            of = vector(self.element, isa.lanes)
            for v, (count, total) in enumerate(zip(counts, totals, strict=True)):
                at = v * isa.lanes * self.size
                parts = [code.load_first(count, of, code.gep(r, at)) for r in rows]
                for plane, form in enumerate(self._conversions()):
                    word = pack_words(code, isa, list(map(form, parts)), self.b_zp)
                    code.store(word, place(number), plan["plane"] * plane, v * of_step)
                    if isa.element_bytes == 1:
                        for part in _split_words(word):
                            self._add(total, part)

        with code.loop(plan["words"]) as number:
            pack(number, isa.inner)
        if self.key.tail:
            pack(plan["words"], self.key.tail)
        # What is left of the last step, or of the last segment.
        done = plan["words"] + int(self.key.tail > 0)
        nothing = code.value(0, vector("i8", of_word))
        all_words = plan["segments"] * plan["steps"] * (isa.depth // isa.inner)
        with code.loop(all_words - done) as more:
            for v, plane in itertools.product(range(vectors), range(len(self._conversions()))):
                code.store(nothing, place(done + more), plan["plane"] * plane, v * of_step)
        zero_point = (self.a_zp + isa.input_offset).splat(isa.lanes)
        for v, total in enumerate(totals):
            begin = code.value(0, self.vector_type) - zero_point * code.load(
                self.vector_type, total
            )
            code.store(begin, self.bias, v * (4 * isa.lanes))


def _split_words(word: Value) -> Sequence[Value]:
    """A vector of words of 4 or 8 bytes as vectors of 4 bytes."""
    if element_type(word.type) == "i32":
        return [word]
    return [part.to_elements("i32") for part in (word, word >> 32)]
