"""Kernel of DEPTHWISE_CONV2D of float32, one output channel for each input channel.

The thread copies the input rows with their padding. A step multiplies one tap of a vector of
channels; neighbouring output pixels share what they load.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from tosajax.native.codegen.builder import Module, Value, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.kernels import row_block
from tosajax.native.kernels.epilogue import EpilogueKey
from tosajax.native.kernels.row_block import RowBlock, RowFields

MAX_POSITIONS = 6


class KernelKey(NamedTuple):
    """The specialization of a depthwise convolution: all that its machine code depends on.

    Args:
      isa: the instruction set, of float32.
      rows: rows of the window.
      taps: taps in a row of the window.
      positions: positions of the output in a row that are accumulated at a time.
      step: pixels of the input from a position to the next.
      dilation: pixels of the input from a tap to the next.
      epilogue: what follows the sums.
    """

    isa: InstructionSet
    rows: int
    taps: int
    positions: int
    step: int
    dilation: int
    epilogue: EpilogueKey

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        numbers = f"{self.rows}_{self.taps}_{self.positions}_{self.step}_{self.dilation}"
        return f"tosajax_depthwise_{self.isa.label}_{numbers}_{self.epilogue.name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(RowFields):
    """The sizes of a plan."""

    run: int  # positions in an output row
    pixel: int  # bytes of an input pixel
    dilation: int  # of rows
    vectors: int  # of channels


def module_of(key: KernelKey) -> Module:
    """The LLVM module of a specialization."""
    return row_block.module_of(
        key.name, key.epilogue, Fields, lambda rows: _Item(rows, key).write()
    )


class _Item:
    """Writes the code of a work item."""

    def __init__(self, rows: RowBlock, key: KernelKey) -> None:
        self.rows, self.key = rows, key
        self.code, self.plan = rows.code, rows.plan
        self.lanes = vector("i32", key.isa.lanes)

    def write(self) -> None:
        code, plan, rows = self.code, self.plan, self.rows
        with code.loop(plan["staged"]) as staged:
            to = code.gep(rows.buffers.scratch, staged * plan["staged_row"])
            rows.copy_row(staged, to, lambda x: x)
        last = plan["vectors"] - 1
        with code.loop(last) as index:
            self._write_vector(index, is_last=False)
        self._write_vector(last, is_last=True)

    def _write_vector(self, index: Value, *, is_last: bool) -> None:
        """Computes the outputs of one vector of channels."""
        code, plan, key, rows = self.code, self.plan, self.key, self.rows
        size, taps = 4 * key.isa.lanes, key.rows * key.taps
        weights = code.gep(rows.operand("weights"), index * (taps * size))
        factors = [code.load(self.lanes, weights, i * size) for i in range(taps)]
        bias = code.load(self.lanes, rows.operand("channels"), index * size)
        source = code.gep(rows.buffers.scratch, index * size)
        out_row = rows.out_row
        with code.loop(plan["rows"]) as row:
            lines = [
                code.gep(source, (row * plan["stride"] + plan["dilation"] * y) * plan["staged_row"])
                for y in range(key.rows)
            ]
            first = (out_row + row) * plan["run"]
            with code.loop(plan["run"], key.positions) as begin:
                # The last positions end with the row, and may be computed again.
                position = begin.smin(plan["run"] - key.positions)
                offset = position * key.step * plan["pixel"]
                sums = self._sums([code.gep(line, offset) for line in lines], factors, bias)
                rows.writer.store(sums, first + position, index, is_last=is_last)

    def _sums(self, lines: list[Value], factors: list[Value], bias: Value) -> list[list[Value]]:
        """The sums of some positions, in the order of the taps."""
        code, key, pixel = self.code, self.key, self.plan["pixel"]
        sums = [bias] * key.positions
        for y, line in enumerate(lines):
            loaded: dict[int, Value] = {}
            for tap in range(key.taps):
                factor = factors[y * key.taps + tap]
                for place, total in enumerate(sums):
                    at = place * key.step + tap * key.dilation
                    if at not in loaded:
                        loaded[at] = code.load(self.lanes, line, pixel * at)
                    sums[place] = key.isa.step(code, total, loaded[at], factor)
        return [[total] for total in sums]
