"""The kernel of convolutions and products: int8 or int16 by int8, with an exact RESCALE at the end.

A thread's copy of rows is padded, and in the form in which the instruction set reads it; there the
terms of a pixel are contiguous by row of the window. Where the input has that form, as that of most
windows of one tap has, it is read in its place. Sums are made tile by tile, and each tile is
scaled, clamped and stored from registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosajax.native.codegen.accumulators import Tile
from tosajax.native.codegen.builder import Module, Value, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import EvenOdd
from tosajax.native.kernels import row_block
from tosajax.native.kernels.epilogue import HIGH, EpilogueKey
from tosajax.native.kernels.gemm_tile import Rounds, Terms, forms, int16_sums, int48_bias, sums
from tosajax.native.kernels.row_block import COMMON, RowBlock


class KernelKey(NamedTuple):
    """What distinguishes the machine code of two convolutions.

    Args:
      isa: of the processor.
      pixels: of a tile.
      vectors: of channels in a tile.
      rest: vectors of channels in the last tile, 0 if there are no others.
      in_place: whether there is no copy.
      end: of the sums.
    """

    isa: InstructionSet
    pixels: int
    vectors: int
    rest: int
    in_place: bool
    end: EpilogueKey

    @property
    def name(self) -> str:
        """Of its function."""
        numbers = f"{self.pixels}_{self.vectors}_{self.rest}_{int(self.in_place)}"
        return f"tosajax_convolution_{self.isa.label}_{numbers}_{self.end.name}"


# The plan, in order; the offsets of segments follow.
FIELDS = (
    *COMMON,
    "runs",  # rows of pixels of an item, each of which tiles cover
    "run_pitch",  # bytes from what a run reads to what the next does
    "run",  # pixels
    "pixel_pitch",  # bytes likewise
    "blocks",  # of `vectors` vectors of channels
    "block_bytes",  # of weights
    "segments",
    "steps",
    "round",  # segments that int32 holds, of int16
    "plane",  # bytes of a copy of the upper bytes of int16
)


def module_of(kind: KernelKey) -> Module:
    """The module of a kind."""

    def write(item: RowBlock) -> None:
        _Item(item, kind).write()

    return row_block.module_of(kind.name, kind.end, FIELDS, write)


class _Item:
    """Writes the work of an item."""

    def __init__(self, item: RowBlock, kind: KernelKey) -> None:
        self.item, self.kind = item, kind
        code, plan = item.code, item.plan
        self.code, self.plan = code, plan
        self.xor_mask = None
        if kind.in_place and kind.isa.input_offset:
            # LLVM would spread what it computes of a known number.
            offset = kind.isa.input_offset * 0x01010101
            self.xor_mask = code.opaque(offset, vector("i32", kind.isa.lanes))
        if kind.in_place:
            row, _ = item.input_row(code.value(0))
            self.rows = code.gep(item.operand("x"), row * plan["row"])
        else:
            self.rows = item.buffers.scratch

    def write(self) -> None:
        kind = self.kind
        if not kind.in_place:
            self._copy_rows()
        kind.isa.accumulators.enter(self.code, kind.pixels)
        # The last block is apart where it has fewer vectors or channels.
        is_apart = kind.rest > 0 or kind.end.last < kind.isa.lanes
        blocks = self.plan["blocks"] - int(is_apart and not kind.rest)
        with self.code.loop(blocks) as block:
            self._write_block(block, block * kind.vectors, kind.vectors, is_last=False)
        if is_apart:
            done = blocks * kind.vectors
            self._write_block(blocks, done, kind.rest or kind.vectors, is_last=True)
        kind.isa.accumulators.leave(self.code)

    def _copy_rows(self) -> None:
        plan, item, kind = self.plan, self.item, self.kind
        for number, form in enumerate(forms(kind.isa, item.padding, wide=kind.end.wide)):
            plane = self.code.gep(self.rows, plan["plane"] * number)
            with self.code.loop(plan["staged"]) as staged:
                item.copy_row(staged, self.code.gep(plane, staged * plan["staged_row"]), form)

    def _write_block(self, block: Value, before: Value, vectors: int, *, is_last: bool) -> None:
        """The tiles of some vectors of channels, of which there are some before."""
        code, plan, kind, item = self.code, self.plan, self.kind, self.item
        weights = code.gep(item.operand("weights"), block * plan["block_bytes"])
        channels = code.gep(item.operand("channels"), before * (4 * kind.isa.lanes))
        offsets = code.gep(item.buffers.plan, 8 * len(FIELDS))
        out_row = item.out_row
        with code.loop(plan["runs"]) as run:
            start = code.gep(self.rows, run * plan["run_pitch"])
            first = out_row * plan["out_width"] + run * plan["run"]
            with code.loop(plan["run"], kind.pixels) as pixel:
                # The last tile ends with the run.
                at = pixel.smin(plan["run"] - kind.pixels)
                place = code.gep(start, at * plan["pixel_pitch"])
                segments = plan["segments"], offsets, plan["steps"]
                terms = Terms(place, plan["pixel_pitch"], *segments, self.xor_mask)
                found = self._sums(Tile(kind.pixels, vectors), terms, weights, channels)
                item.results.store(found, first + at, before, is_last=is_last)

    def _sums(
        self, tile: Tile, terms: Terms, weights: Value, channels: Value
    ) -> Sequence[Sequence[Value | EvenOdd]]:
        """Of a tile, whose channels begin at an address in that operand."""
        code, plan, kind = self.code, self.plan, self.kind
        if not kind.end.wide:
            return sums(code, kind.isa, tile, terms, weights, channels)
        words = channels, code.gep(channels, plan["padded_channels"] * (4 * HIGH))
        bias = int48_bias(code, kind.isa, tile.vectors, *words)
        rounds = Rounds(plan["round"], plan["plane"])
        return int16_sums(code, kind.isa, tile, terms, weights, bias, rounds)
