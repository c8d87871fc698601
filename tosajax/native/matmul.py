"""The kernel of MATMUL: int8 by int8, neither of which is known before, with an exact RESCALE.

An item is a block of columns, and some or all rows, of one product. Its thread packs the columns
as the steps of `product` read them, and multiplies all its rows by them. Sets that multiply bytes
keep zero points, which sums over columns and rows take away then:

  sum (a - a_zp) * (b - b_zp) = sum a * b - a_zp * sum b - b_zp * (sum a - C * a_zp)
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import handler
from tosajax.native.code import Code, Module, Value, vector
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.product import STEP, Terms, Tile, sums
from tosajax.native.results import FILL, LARGEST, End, Results, write_scales


class Kind(NamedTuple):
    """What distinguishes the machine code of two products.

    Args:
      isa: of the processor.
      rows: of a tile.
      vectors: of columns in a tile.
      rest: vectors of columns in the last block, 0 if it is like the others.
      tail: terms of the last step, 0 if it is like the others.
      end: of the sums.
    """

    isa: InstructionSet
    rows: int
    vectors: int
    rest: int
    tail: int
    end: End

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        numbers = f"{self.rows}_{self.vectors}_{self.rest}_{self.tail}"
        return f"tosajax_matmul_{self.isa.label}_{numbers}_{self.end.name}"

    @property
    def in_place(self) -> bool:
        """Whether rows are read where they are."""
        return self.isa.bytes_of_term == 1 and not self.tail


OPERANDS = ("a", "b", "channels", "limits", "plan")
# Of limits, behind those of `results`, whose first is the zero point of a.
B_ZP = LARGEST + 1
FIELDS = (
    "items",
    "threads",
    "waits",
    "blocks",  # of columns, the last one included
    "parts",  # of rows
    "rows",  # of a part
    "height",
    "depth",
    "width",
    "steps",  # whole ones
    "row_pitch",  # bytes from what is read of a row to that of the next
    "panel",  # bytes of packed columns
    "bias",  # bytes of the sums' begin, by column
    "corrections",  # bytes of the same by row
    "slot",  # bytes of a thread
    "padded_width",
    "table",  # bytes of the table of scales, at the start of the workspace
    "first_segment",  # where it begins
)


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""
    module = Module()

    def prologue(code: Code, buffers: Buffers) -> None:
        plan = _plan(code, buffers)
        channels = buffers.operands[OPERANDS.index("channels")]
        write_scales(code, kind.end, channels, buffers.results[1], plan["padded_width"])

    def item(code: Code, buffers: Buffers, slot: Value, index: Value) -> None:
        _Item(code, kind, buffers, slot, index).write()

    handler.write(module, kind.name, (len(OPERANDS), 2), prologue, item)
    return module


def _plan(code: Code, buffers: Buffers) -> dict[str, Value]:
    return {name: code.load("i64", buffers.plan, 8 * i) for i, name in enumerate(FIELDS)}


class _Item:
    """Writes the work of an item."""

    def __init__(self, code: Code, kind: Kind, buffers: Buffers, slot: Value, index: Value) -> None:
        self.code, self.kind, self.isa = code, kind, kind.isa
        plan = self.plan = _plan(code, buffers)
        a, b, _, limits, self.fields = buffers.operands
        out, table = buffers.results
        of_product = plan["blocks"] * plan["parts"]
        number, within = index // of_product, index % of_product
        self.block, part = within // plan["parts"], within % plan["parts"]
        # The last part ends with the rows, and may do some again that another has done.
        first = (part * plan["rows"]).least(plan["height"] - plan["rows"])
        self.row = number * plan["height"] + first
        self.a = code.at(a, self.row * plan["depth"])
        columns = self.block * (kind.vectors * self.isa.lanes)
        self.b = code.at(b, number * plan["depth"] * plan["width"], columns)
        self.panel = code.at(table, plan["table"], slot * plan["slot"])
        self.bias = code.at(self.panel, plan["panel"])
        self.corrections = code.at(self.bias, plan["bias"])
        self.copy = code.at(self.corrections, plan["corrections"])
        self.a_zp, self.b_zp = (code.load("i32", limits, 4 * at) for at in (FILL, B_ZP))
        self.results = Results(code, kind.end, out, table, limits, plan["width"])
        self.words = vector("i32", self.isa.lanes)
        self.ones = code.value(0x01010101, self.words)
        self.raised = None
        if self.isa.raised:
            self.raised = code.hidden(self.isa.raised * 0x01010101, self.words)

    def write(self) -> None:
        kind, code = self.kind, self.code
        if not kind.in_place:
            self._copy_rows()
        if self.isa.bytes_of_term == 1:
            self._correct_rows()
        # The last block is apart where it has fewer vectors or columns.
        if not kind.rest and kind.end.last == self.isa.lanes:
            self._write_block(kind.vectors, is_last=False)
            return
        is_last = self.block.equals(self.plan["blocks"] - 1)
        with code.when(is_last):
            self._write_block(kind.rest or kind.vectors, is_last=True)
        with code.when(is_last.choose(code.value(0, "i1"), 1)):
            self._write_block(kind.vectors, is_last=False)

    # Rows.

    def _copy_rows(self) -> None:
        """Rows as steps read them. Terms that are not there may be anything: times 0."""
        code, plan, depth = self.code, self.plan, self.plan["depth"]
        wide = self.isa.bytes_of_term == 2
        with code.loop(plan["rows"]) as row:
            source = code.at(self.a, row * depth)
            to = code.at(self.copy, row * plan["row_pitch"])
            with code.loop(depth) as i:
                x = code.load("i8", source, i)
                if wide:
                    x = x.to("i16") - self.a_zp.to("i16")
                code.store(x, to, i * self.isa.bytes_of_term)

    def _correct_rows(self) -> None:
        """-b_zp * (sum a - C * a_zp) of each row; a and a_zp may be raised."""
        code, plan, lanes = self.code, self.plan, self.isa.lanes
        size = lanes * STEP
        with code.loop(plan["rows"]) as row:
            code.store(code.value(0, "i32"), self.corrections, row * 4)
        with code.when(self.b_zp.differs(0)), code.loop(plan["rows"]) as row:
            source = code.at(self.a, row * plan["depth"])
            whole = plan["depth"] // size
            vectors, total = code.room(self.words), code.room("i32")
            code.store(code.value(0, self.words), vectors)
            with code.loop(whole) as i:
                x = code.load(self.words, source, i * size)
                x = x if self.raised is None else x ^ self.raised
                code.store(
                    self.isa.step(code, code.load(self.words, vectors), x, self.ones), vectors
                )
            reduced = code.load(self.words, vectors)
            name = f"llvm.vector.reduce.add.v{lanes}i32"
            code.store(code.call("i32", name, reduced), total)
            with code.loop(plan["depth"] - whole * size) as i:
                x = code.load("i8", source, whole * size, i).to("i32") + self.isa.raised
                code.store(code.load("i32", total) + x, total)
            zero_points = plan["depth"].to("i32") * (self.a_zp + self.isa.raised)
            correction = (zero_points - code.load("i32", total)) * self.b_zp
            code.store(correction, self.corrections, row * 4)

    # Columns.

    def _write_block(self, vectors: int, *, is_last: bool) -> None:
        """Packs a block of columns, and multiplies all rows by it."""
        code, plan, kind = self.code, self.plan, self.kind
        for v in range(vectors):
            count = kind.end.last if is_last and v == vectors - 1 else self.isa.lanes
            self._pack(v, vectors, count)
        source = self.a if kind.in_place else self.copy
        has_tail = int(kind.tail > 0)
        offsets = code.at(self.fields, 8 * FIELDS.index("first_segment"))
        before = self.block * kind.vectors
        corrections = self.corrections if self.isa.bytes_of_term == 1 else None
        with code.loop(plan["rows"], kind.rows) as row:
            # The last tile ends with the rows.
            at = row.least(plan["rows"] - kind.rows)
            segment = code.value(1), offsets, plan["steps"] + has_tail
            first = code.at(source, at * plan["row_pitch"])
            terms = Terms(first, plan["row_pitch"], *segment, self.raised)
            begin = None if corrections is None else code.at(corrections, at * 4)
            tile = Tile(kind.rows, vectors)
            found = sums(code, self.isa, tile, terms, self.panel, self.bias, begin)
            for r, by_vector in enumerate(found):
                for v, values in enumerate(by_vector):
                    last = is_last and v == vectors - 1
                    self.results.store(values, self.row + at + r, before + v, is_last=last)

    def _pack(self, v: int, vectors: int, count: int) -> None:
        """A vector of columns, `count` of which are there, and where its sums begin."""
        code, plan, isa = self.code, self.plan, self.isa
        size = 4 * isa.lanes
        columns = code.at(self.b, v * isa.lanes)
        total = code.room(self.words)
        code.store(code.value(0, self.words), total)

        def step(number: Value, terms: int) -> None:
            rows = [
                code.at(columns, (number * isa.terms + t) * plan["width"]) for t in range(terms)
            ]
            word = self._word([code.load_first(count, vector("i8", isa.lanes), r) for r in rows])
            code.store(word, self.panel, number * (vectors * size), v * size)
            if isa.bytes_of_term == 1:
                code.store(isa.step(code, code.load(self.words, total), self.ones, word), total)

        with code.loop(plan["steps"]) as number:
            step(number, isa.terms)
        if self.kind.tail:
            step(plan["steps"], self.kind.tail)
        zero_point = (self.a_zp + isa.raised).spread(isa.lanes)
        code.store(
            code.value(0, self.words) - zero_point * code.load(self.words, total),
            self.bias,
            v * size,
        )

    def _word(self, rows: list[Value]) -> Value:
        """The terms of a step side by side, by column."""
        bits = 32 // self.isa.terms
        word = self.code.value(0, self.words)
        for t, row in enumerate(rows):
            x = row.to(self.words)
            if self.isa.bytes_of_term == 2:
                x = x - self.b_zp.spread(self.isa.lanes)
            word = word | ((x & ((1 << bits) - 1)) << (bits * t))
        return word
