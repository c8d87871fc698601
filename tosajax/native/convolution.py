"""The kernel of convolutions and products: int8 by int8, with an exact RESCALE at the end.

A thread's copy of rows is padded, and in the form in which the instruction set reads it; there the
terms of a pixel are contiguous by row of the window. Sums are made tile by tile, and each tile is
scaled, clamped and stored from registers.
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import rows
from tosajax.native.code import Module, Value
from tosajax.native.isa import InstructionSet
from tosajax.native.product import Terms, Tile, sums
from tosajax.native.results import End
from tosajax.native.rows import COMMON, Rows


class Kind(NamedTuple):
    """What distinguishes the machine code of two convolutions.

    Args:
      isa: of the processor.
      pixels: of a tile.
      vectors: of channels in a tile.
      rest: vectors of channels in the last tile, 0 if there are no others.
      end: of the sums.
    """

    isa: InstructionSet
    pixels: int
    vectors: int
    rest: int
    end: End

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        numbers = f"{self.pixels}_{self.vectors}_{self.rest}"
        return f"tosajax_convolution_{self.isa.label}_{numbers}_{self.end.name}"


# The plan, in order; the offsets of segments follow.
FIELDS = (
    *COMMON,
    "row",  # of the input: elements
    "left",  # padding, elements
    "copied",  # of a row of the input: elements
    "right",
    "runs",  # rows of pixels of an item, each of which tiles cover
    "run_pitch",  # bytes of the copy from a run to the next
    "run",  # pixels
    "pixel_pitch",  # bytes of the copy
    "blocks",  # of `vectors` vectors of channels
    "block_bytes",  # of weights
    "segments",
    "steps",
)


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""

    def write(item: Rows, slot: Value) -> None:
        _Item(item, kind, slot).write()

    return rows.module_of(kind.name, kind.end, FIELDS, write)


class _Item:
    """Writes the work of an item."""

    def __init__(self, item: Rows, kind: Kind, slot: Value) -> None:
        self.item, self.kind = item, kind
        self.code, self.plan = item.code, item.plan
        self.copy = item.code.at(item.behind_table, slot * self.plan["slot"])

    def write(self) -> None:
        kind = self.kind
        self._copy_rows()
        # The last block is apart where it has fewer vectors or channels.
        is_apart = kind.rest > 0 or kind.end.last < kind.isa.lanes
        blocks = self.plan["blocks"] - int(is_apart and not kind.rest)
        with self.code.loop(blocks) as block:
            self._write_block(block, block * kind.vectors, kind.vectors, is_last=False)
        if is_apart:
            done = blocks * kind.vectors
            self._write_block(blocks, done, kind.rest or kind.vectors, is_last=True)

    # The copy.

    def _copy_rows(self) -> None:
        code, plan, size = self.code, self.plan, self.kind.isa.bytes_of_term
        with code.loop(plan["staged"]) as staged:
            row, inside = self.item.input_row(staged)
            to = code.at(self.copy, staged * plan["staged_row"])
            copied, right = (inside.choose(plan[name], 0) for name in ("copied", "right"))
            left = inside.choose(plan["left"], plan["left"] + plan["copied"] + plan["right"])
            source = code.at(self.item.operand("x"), row * plan["row"])
            behind = code.at(to, left * size)
            self._fill(to, left)
            self._convert(source, behind, copied)
            self._fill(code.at(behind, copied * size), right)

    def _fill(self, to: Value, count: Value) -> None:
        code, size = self.code, self.kind.isa.bytes_of_term
        # Of 16 bits, the zero point has been subtracted.
        value = code.value(0, "i8") if size == 2 else self._raised(self.item.padding.to("i8"))
        with code.loop(count * size) as i:
            code.store(value, to, i)

    def _convert(self, source: Value, to: Value, count: Value) -> None:
        code = self.code
        zero_point = self.item.padding.to("i16")
        with code.loop(count) as i:
            x = code.load("i8", source, i)
            if self.kind.isa.bytes_of_term == 1:
                code.store(self._raised(x), to, i)
            else:
                code.store(x.to("i16") - zero_point, to, i * 2)

    def _raised(self, x: Value) -> Value:
        return x ^ self.kind.isa.raised if self.kind.isa.raised else x

    # The sums.

    def _write_block(self, block: Value, before: Value, vectors: int, *, is_last: bool) -> None:
        """The tiles of some vectors of channels, of which there are some before."""
        code, plan, kind, item = self.code, self.plan, self.kind, self.item
        weights = code.at(item.operand("weights"), block * plan["block_bytes"])
        bias = code.at(item.operand("channels"), before * (4 * kind.isa.lanes))
        offsets = code.at(item.buffers.plan, 8 * len(FIELDS))
        out_row = item.out_row
        with code.loop(plan["runs"]) as run:
            start = code.at(self.copy, run * plan["run_pitch"])
            first = out_row * plan["out_width"] + run * plan["run"]
            with code.loop(plan["run"], kind.pixels) as pixel:
                # The last tile ends with the run.
                at = pixel.least(plan["run"] - kind.pixels)
                place = code.at(start, at * plan["pixel_pitch"])
                terms = Terms(place, plan["pixel_pitch"], plan["segments"], offsets, plan["steps"])
                found = sums(code, kind.isa, Tile(kind.pixels, vectors), terms, weights, bias)
                for p, by_vector in enumerate(found):
                    for v, values in enumerate(by_vector):
                        last = is_last and v == vectors - 1
                        item.results.store(values, first + at + p, before + v, is_last=last)
