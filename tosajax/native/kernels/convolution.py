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
from tosajax.native.kernels.epilogue import BIAS_HIGH, EpilogueKey
from tosajax.native.kernels.gemm_tile import (
    Int16Split,
    ReductionLayout,
    accumulate,
    accumulate_int16,
    load_int48_bias,
    staging_conversions,
)
from tosajax.native.kernels.row_block import COMMON, RowBlock


class KernelKey(NamedTuple):
    """What distinguishes the machine code of two convolutions.

    Args:
      isa: of the processor.
      pixels: of a tile.
      vectors: of channels in a tile.
      rest: vectors of channels in the last tile, 0 if there are no others.
      in_place: whether there is no copy.
      epilogue: how accumulators become results.
    """

    isa: InstructionSet
    pixels: int
    vectors: int
    rest: int
    in_place: bool
    epilogue: EpilogueKey

    @property
    def name(self) -> str:
        """Of its function."""
        numbers = f"{self.pixels}_{self.vectors}_{self.rest}_{int(self.in_place)}"
        return f"tosajax_convolution_{self.isa.label}_{numbers}_{self.epilogue.name}"


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


def module_of(key: KernelKey) -> Module:
    """The module of a key."""

    def write(item: RowBlock) -> None:
        _Item(item, key).write()

    return row_block.module_of(key.name, key.epilogue, FIELDS, write)


class _Item:
    """Writes the work of an item."""

    def __init__(self, item: RowBlock, key: KernelKey) -> None:
        self.item, self.key = item, key
        code, plan = item.code, item.plan
        self.code, self.plan = code, plan
        self.xor_mask = None
        if key.in_place and key.isa.input_offset:
            # LLVM would spread what it computes of a known number.
            offset = key.isa.input_offset * 0x01010101
            self.xor_mask = code.opaque(offset, vector("i32", key.isa.lanes))
        if key.in_place:
            row, _ = item.input_row(code.value(0))
            self.rows = code.gep(item.operand("x"), row * plan["row"])
        else:
            self.rows = item.buffers.scratch

    def write(self) -> None:
        key = self.key
        if not key.in_place:
            self._copy_rows()
        key.isa.accumulators.enter(self.code, key.pixels)
        # The last block is apart where it has fewer vectors or channels.
        is_apart = key.rest > 0 or key.epilogue.last_channels < key.isa.lanes
        blocks = self.plan["blocks"] - int(is_apart and not key.rest)
        with self.code.loop(blocks) as block:
            self._write_block(block, block * key.vectors, key.vectors, is_last=False)
        if is_apart:
            done = blocks * key.vectors
            self._write_block(blocks, done, key.rest or key.vectors, is_last=True)
        key.isa.accumulators.leave(self.code)

    def _copy_rows(self) -> None:
        plan, item, key = self.plan, self.item, self.key
        for number, form in enumerate(
            staging_conversions(key.isa, item.padding, is_int16=key.epilogue.is_int16)
        ):
            plane = self.code.gep(self.rows, plan["plane"] * number)
            with self.code.loop(plan["staged"]) as staged:
                item.copy_row(staged, self.code.gep(plane, staged * plan["staged_row"]), form)

    def _write_block(self, block: Value, before: Value, vectors: int, *, is_last: bool) -> None:
        """The tiles of some vectors of channels, of which there are some before."""
        code, plan, key, item = self.code, self.plan, self.key, self.item
        weights = code.gep(item.operand("weights"), block * plan["block_bytes"])
        channels = code.gep(item.operand("channels"), before * (4 * key.isa.lanes))
        offsets = code.gep(item.buffers.plan, 8 * len(FIELDS))
        out_row = item.out_row
        with code.loop(plan["runs"]) as run:
            start = code.gep(self.rows, run * plan["run_pitch"])
            first = out_row * plan["out_width"] + run * plan["run"]
            with code.loop(plan["run"], key.pixels) as pixel:
                # The last tile ends with the run.
                at = pixel.smin(plan["run"] - key.pixels)
                place = code.gep(start, at * plan["pixel_pitch"])
                segments = plan["segments"], offsets, plan["steps"]
                terms = ReductionLayout(place, plan["pixel_pitch"], *segments, self.xor_mask)
                found = self._sums(Tile(key.pixels, vectors), terms, weights, channels)
                item.writer.store(found, first + at, before, is_last=is_last)

    def _sums(
        self, tile: Tile, terms: ReductionLayout, weights: Value, channels: Value
    ) -> Sequence[Sequence[Value | EvenOdd]]:
        """Of a tile, whose channels begin at an address in that operand."""
        code, plan, key = self.code, self.plan, self.key
        if not key.epilogue.is_int16:
            return accumulate(code, key.isa, tile, terms, weights, channels)
        words = channels, code.gep(channels, plan["padded_channels"] * (4 * BIAS_HIGH))
        bias = load_int48_bias(code, key.isa, tile.vectors, *words)
        rounds = Int16Split(plan["round"], plan["plane"])
        return accumulate_int16(code, key.isa, tile, terms, weights, bias, rounds)
