"""The kernel of convolutions and products: int8 by int8, with an exact RESCALE at the end.

An item is some rows of the output of one image. Its thread copies the rows of the input that they
read into room of its own, padded and in the form in which the instruction set reads them; there the
terms of a pixel are contiguous by row of the window. Then it sums tile by tile, and scales, clamps
and stores each tile from registers.
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import handler
from tosajax.native.code import Code, Module, Value
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.product import Terms, Tile, sums
from tosajax.native.results import FILL, End, Results, write_scales


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
    "items",
    "threads",
    "items_per_image",
    "rows",  # of the output, of an item
    "out_height",
    "out_width",
    "height",
    "row",  # of the input: elements
    "left",  # padding, elements
    "copied",  # of a row of the input: elements
    "right",
    "top",
    "stride",  # of rows
    "staged",  # rows of an item's copy
    "staged_row",  # bytes
    "slot",  # bytes of a thread's copy
    "runs",  # rows of pixels of an item, each of which tiles cover
    "run_pitch",  # bytes of the copy from a run to the next
    "run",  # pixels
    "pixel_pitch",  # bytes of the copy
    "blocks",  # of `vectors` vectors of channels
    "channels",
    "padded_channels",
    "block_bytes",  # of weights
    "segments",
    "steps",
    "table",  # bytes of the table for scales, at the start of the workspace
)
_FIELD = {name: i for i, name in enumerate(FIELDS)}
OPERANDS = ("x", "weights", "channels", "limits", "plan")


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""
    module = Module()

    def prologue(code: Code, buffers: Buffers) -> None:
        channels = buffers.operands[OPERANDS.index("channels")]
        count = code.load("i64", buffers.plan, 8 * _FIELD["padded_channels"])
        write_scales(code, kind.end, channels, buffers.results[1], count)

    def item(code: Code, buffers: Buffers, slot: Value, index: Value) -> None:
        _Item(code, kind, buffers, slot, index).write()

    handler.write(module, kind.name, (len(OPERANDS), 2), prologue, item)
    return module


class _Item:
    """Writes the work of an item."""

    def __init__(self, code: Code, kind: Kind, buffers: Buffers, slot: Value, index: Value) -> None:
        self.code, self.kind, self.buffers = code, kind, buffers
        plan = {name: code.load("i64", buffers.plan, 8 * i) for name, i in _FIELD.items()}
        self.plan = plan
        self.image = index // plan["items_per_image"]
        part = index % plan["items_per_image"]
        # The last item ends with the image, and may do rows again that the one before has done.
        self.first = (part * plan["rows"]).least(plan["out_height"] - plan["rows"])
        self.padding = code.load("i32", self.operand("limits"), 4 * FILL)
        self.copy = code.at(buffers.results[1], plan["table"], slot * plan["slot"])

    def operand(self, name: str) -> Value:
        return self.buffers.operands[OPERANDS.index(name)]

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
        top = self.first * plan["stride"] - plan["top"]
        before = self.image * plan["height"]
        with code.loop(plan["staged"]) as staged:
            row = top + staged
            to = code.at(self.copy, staged * plan["staged_row"])
            inside = (row > -1) & (row < plan["height"])
            copied, right = (inside.choose(plan[name], 0) for name in ("copied", "right"))
            left = inside.choose(plan["left"], plan["left"] + plan["copied"] + plan["right"])
            source = code.at(self.operand("x"), (before + row) * plan["row"])
            behind = code.at(to, left * size)
            self._fill(to, left)
            self._convert(source, behind, copied)
            self._fill(code.at(behind, copied * size), right)

    def _fill(self, to: Value, count: Value) -> None:
        code, size = self.code, self.kind.isa.bytes_of_term
        # Of 16 bits, the zero point has been subtracted.
        value = code.value(0, "i8") if size == 2 else self._raised(self.padding.to("i8"))
        with code.loop(count * size) as i:
            code.store(value, to, i)

    def _convert(self, source: Value, to: Value, count: Value) -> None:
        code = self.code
        zero_point = self.padding.to("i16")
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
        code, plan, kind = self.code, self.plan, self.kind
        weights = code.at(self.operand("weights"), block * plan["block_bytes"])
        bias = code.at(self.operand("channels"), before * (4 * kind.isa.lanes))
        offsets = code.at(self.buffers.plan, 8 * len(FIELDS))
        out, table = self.buffers.results
        limits = self.operand("limits")
        results = Results(code, kind.end, out, table, limits, plan["channels"])
        image_row = self.image * plan["out_height"] + self.first
        with code.loop(plan["runs"]) as run:
            start = code.at(self.copy, run * plan["run_pitch"])
            first = image_row * plan["out_width"] + run * plan["run"]
            with code.loop(plan["run"], kind.pixels) as pixel:
                # The last tile ends with the run.
                at = pixel.least(plan["run"] - kind.pixels)
                place = code.at(start, at * plan["pixel_pitch"])
                terms = Terms(place, plan["pixel_pitch"], plan["segments"], offsets, plan["steps"])
                found = sums(code, kind.isa, Tile(kind.pixels, vectors), terms, weights, bias)
                for p, by_vector in enumerate(found):
                    for v, values in enumerate(by_vector):
                        last = is_last and v == vectors - 1
                        results.store(values, first + at + p, before + v, is_last=last)
