"""Kernel of CONV2D: int8 or int16 by int8, with an exact RESCALE as epilogue.

In the staging copy, which is padded and converted, the reduction elements of a pixel are
contiguous in each row of the window. Input that has this form already, as for most 1x1 windows, is
read in place. Each tile of the output is rescaled, clamped and stored from registers.
"""

from __future__ import annotations

import dataclasses
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
from tosajax.native.kernels.row_block import RowBlock, RowFields


class KernelKey(NamedTuple):
    """The specialization of a convolution: all that its machine code depends on.

    Args:
      isa: the instruction set.
      pixels: pixels of a tile.
      vectors: vectors of output channels in a tile.
      rest: vectors in the last block of channels; 0 if that has `vectors` as well.
      in_place: whether the input is read without a staging copy.
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
        """Name of the kernel's function."""
        numbers = f"{self.pixels}_{self.vectors}_{self.rest}_{int(self.in_place)}"
        return f"tosajax_convolution_{self.isa.label}_{numbers}_{self.epilogue.name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(RowFields):
    """The sizes of a plan; the offsets of segments follow, in bytes."""

    runs: int  # rows of pixels in a work item; tiles cover each
    run_pitch: int  # bytes from the inputs of a run to those of the next
    run: int  # pixels of a run
    pixel_pitch: int  # bytes from the inputs of a pixel to those of the next
    blocks: int  # of `vectors` vectors of channels
    block_bytes: int  # of weights
    segments: int  # of a pixel's reduction elements
    steps: int  # of a segment
    round: int  # segments whose sum int32 holds; for int16
    plane: int  # bytes of the staging copy's upper bytes; for int16


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    return row_block.module_of(
        key.name, key.epilogue, Fields, lambda rows: _Item(rows, key).write()
    )


class _Item:
    """Writes the code of a work item."""

    def __init__(self, rows: RowBlock, key: KernelKey) -> None:
        self.rows, self.key = rows, key
        code, plan = rows.code, rows.plan
        self.code, self.plan = code, plan
        self.xor_mask = None
        if key.in_place and key.isa.input_offset:
            # LLVM would fold a constant into each splat; an opaque mask stays in a register.
            offset = key.isa.input_offset * 0x01010101
            self.xor_mask = code.opaque(offset, vector("i32", key.isa.lanes))
        if key.in_place:
            row, _ = rows.input_row(code.value(0))
            self.source = code.gep(rows.operand("x"), row * plan["row"])
        else:
            self.source = rows.buffers.scratch

    def write(self) -> None:
        key = self.key
        if not key.in_place:
            self._copy_rows()
        key.isa.accumulators.enter(self.code, key.pixels)
        # The last block is written apart if it has fewer vectors, or fewer channels in the last.
        is_apart = key.rest > 0 or key.epilogue.last_channels < key.isa.lanes
        blocks = self.plan["blocks"] - int(is_apart and not key.rest)
        with self.code.loop(blocks) as block:
            self._write_block(block, block * key.vectors, key.vectors, is_last=False)
        if is_apart:
            done = blocks * key.vectors
            self._write_block(blocks, done, key.rest or key.vectors, is_last=True)
        key.isa.accumulators.leave(self.code)

    def _copy_rows(self) -> None:
        """Fills the staging copy, plane by plane."""
        plan, rows, key = self.plan, self.rows, self.key
        conversions = staging_conversions(key.isa, rows.padding, is_int16=key.epilogue.is_int16)
        for number, convert in enumerate(conversions):
            plane = self.code.gep(self.source, plan["plane"] * number)
            with self.code.loop(plan["staged"]) as staged:
                rows.copy_row(staged, self.code.gep(plane, staged * plan["staged_row"]), convert)

    def _write_block(
        self, block: Value, first_vector: Value, vectors: int, *, is_last: bool
    ) -> None:
        """Computes all tiles of a block of channels.

        Args:
          block: index of the block, i64.
          first_vector: index of its first vector of channels, i64.
          vectors: vectors of the block.
          is_last: whether its last vector is the last of all channels.
        """
        code, plan, key, rows = self.code, self.plan, self.key, self.rows
        weights = code.gep(rows.operand("weights"), block * plan["block_bytes"])
        channels = code.gep(rows.operand("channels"), first_vector * (4 * key.isa.lanes))
        offsets = code.gep(rows.buffers.plan, Fields.nbytes())
        out_row = rows.out_row
        with code.loop(plan["runs"]) as run:
            start = code.gep(self.source, run * plan["run_pitch"])
            first_pixel = out_row * plan["out_width"] + run * plan["run"]
            with code.loop(plan["run"], key.pixels) as begin:
                # The last tile ends with the run, and may compute pixels again.
                pixel = begin.smin(plan["run"] - key.pixels)
                first = code.gep(start, pixel * plan["pixel_pitch"])
                segments = plan["segments"], offsets, plan["steps"]
                reduction = ReductionLayout(first, plan["pixel_pitch"], *segments, self.xor_mask)
                sums = self._accumulate(Tile(key.pixels, vectors), reduction, weights, channels)
                rows.writer.store(sums, first_pixel + pixel, first_vector, is_last=is_last)

    def _accumulate(
        self, tile: Tile, reduction: ReductionLayout, weights: Value, channels: Value
    ) -> Sequence[Sequence[Value | EvenOdd]]:
        """Computes the accumulators of a tile, by pixel and vector.

        Args:
          tile: size of the tile.
          reduction: its pixels.
          weights: address of the block's weights.
          channels: address of the block's first channel in the operand "channels".
        """
        code, plan, key = self.code, self.plan, self.key
        if not key.epilogue.is_int16:
            return accumulate(code, key.isa, tile, reduction, weights, channels)
        words = channels, code.gep(channels, plan["padded_channels"] * (4 * BIAS_HIGH))
        bias = load_int48_bias(code, key.isa, tile.vectors, *words)
        split = Int16Split(plan["round"], plan["plane"])
        return accumulate_int16(code, key.isa, tile, reduction, weights, bias, split)
