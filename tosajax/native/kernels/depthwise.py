"""Kernel of DEPTHWISE_CONV2D: each input channel has its own window.

A step multiplies `dot_length` neighbouring taps of a window row. The thread copies each input row
twice: first with its padding (the line), then as words, which hold the taps of a step side by side
for each output pixel and channel, so that a step loads a whole vector of channels. Where a vector
has more lanes than there are channels, it holds the channels of several pixels.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tosajax.native.codegen.builder import Module, Value, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import EvenOdd
from tosajax.native.kernels import row_block
from tosajax.native.kernels.epilogue import BIAS_HIGH, EpilogueKey
from tosajax.native.kernels.gemm_tile import (
    StagingConversion,
    join_bytes,
    load_int48_bias,
    pack_words,
    staging_conversions,
)
from tosajax.native.kernels.row_block import RowBlock, RowFields

MAX_POSITIONS = 4


class KernelKey(NamedTuple):
    """The specialization of a depthwise convolution: all that its machine code depends on.

    Args:
      isa: the instruction set.
      rows: rows of the window.
      taps: taps in a row of the window.
      positions: positions of the output in a row that are accumulated at a time; one is a pixel, or
        as many pixels as a vector holds.
      repeats: whether an input channel has several output channels.
      epilogue: how accumulators become results.
    """

    isa: InstructionSet
    rows: int
    taps: int
    positions: int
    repeats: bool
    epilogue: EpilogueKey

    @property
    def name(self) -> str:
        """Name of the kernel's function."""
        numbers = f"{self.rows}_{self.taps}_{self.positions}_{int(self.repeats)}"
        return f"tosajax_depthwise_{self.isa.label}_{numbers}_{self.epilogue.name}"

    @property
    def groups(self) -> int:
        """Steps for a row of the window; each multiplies a group of `dot_length` taps."""
        return -(-self.taps // self.isa.dot_length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields(RowFields):
    """The sizes of a plan."""

    line: int  # bytes of the line
    run: int  # positions in an output row
    pieces: int  # contiguous parts of a row of words
    piece: int  # input elements of a piece
    piece_from: int  # bytes of the line from one piece to the next
    piece_to: int  # bytes of words from one piece to the next
    multiplier: int  # output channels for each input channel
    tap: int  # bytes of the line from one tap to the next
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
        self.line = rows.buffers.scratch
        self.words = rows.code.gep(self.line, self.plan["line"])
        self.conversions: list[StagingConversion] = [lambda x: x]
        if key.epilogue.is_int16:
            self.conversions = staging_conversions(key.isa, rows.padding, is_int16=True)
        self.group_size = self.plan["staged_row"] // (key.groups * len(self.conversions))

    def write(self) -> None:
        self._copy_rows()
        last = self.plan["vectors"] - 1
        with self.code.loop(last) as index:
            self._write_vector(index, is_last=False)
        self._write_vector(last, is_last=True)

    def _copy_rows(self) -> None:
        """Copies each input row to the line, and from there to words, group by group of taps."""
        code, plan, key = self.code, self.plan, self.key
        write = self._write_repeated if key.repeats else self._write_words
        xor = 0 if key.epilogue.is_int16 else key.isa.input_offset
        with code.loop(plan["staged"]) as staged:
            self.rows.copy_row(staged, self.line, lambda x: x ^ xor)
            for number, (convert, group) in enumerate(self._word_groups()):
                to = code.gep(self.words, staged * plan["staged_row"], self.group_size * number)
                first = group * key.isa.dot_length
                taps = [
                    code.gep(self.line, plan["tap"] * tap)
                    for tap in range(first, min(first + key.isa.dot_length, key.taps))
                ]
                with code.loop(plan["pieces"]) as piece:
                    offset = piece * plan["piece_from"]
                    sources = [code.gep(tap, offset) for tap in taps]
                    write(sources, code.gep(to, piece * plan["piece_to"]), convert)

    def _word_groups(self) -> Iterator[tuple[StagingConversion, int]]:
        """The conversion and the group of taps of each part of a row of words, in order."""
        return itertools.product(self.conversions, range(self.key.groups))

    def _write_words(self, taps: list[Value], to: Value, convert: StagingConversion) -> None:
        """Writes the words of a piece.

        The last vector may write beyond it: to the next piece, which is written later, or to slack.
        """
        lanes = self.key.isa.lanes
        with self.code.loop(self.plan["piece"], lanes) as element:
            self.code.store(self._load_words(taps, element, lanes, convert), to, element * 4)

    def _write_repeated(self, taps: list[Value], to: Value, convert: StagingConversion) -> None:
        """Writes the words of a pixel, each once for every output channel of its input channel."""
        code, plan = self.code, self.plan
        with code.loop(plan["piece"]) as channel:
            word = self._load_words(taps, channel, 1, convert)
            first = channel * plan["multiplier"] * 4
            with code.loop(plan["multiplier"] * 4, 4) as copy:
                code.store(word, to, first, copy)

    def _load_words(
        self, taps: list[Value], element: Value, count: int, convert: StagingConversion
    ) -> Value:
        """Loads `count` elements of each tap, and interleaves them to a vector of words."""
        ir_type = self.rows.element
        offset = element * (int(ir_type[1:]) // 8)
        values = [convert(self.code.load(vector(ir_type, count), tap, offset)) for tap in taps]
        return pack_words(self.code, self.key.isa, values, self.rows.padding)

    def _write_vector(self, index: Value, *, is_last: bool) -> None:
        """Computes the outputs of one vector of channels."""
        code, plan, key, rows = self.code, self.plan, self.key, self.rows
        lanes, size = vector("i32", key.isa.lanes), 4 * key.isa.lanes
        steps = key.rows * key.groups
        weights = code.gep(rows.operand("weights"), index * (steps * size))
        factors = [code.load(lanes, weights, i * size) for i in range(steps)]
        channels = code.gep(rows.operand("channels"), index * size)
        initial, bias = self._bias(channels)
        out_row = rows.out_row
        with code.loop(plan["rows"]) as row:
            planes = [
                self._step_words(row, index * size, plane) for plane in range(len(self.conversions))
            ]
            first = (out_row + row) * plan["run"]
            with code.loop(plan["run"], key.positions) as begin:
                # The last positions end with the row, and may be computed again.
                position = begin.smin(plan["run"] - key.positions)
                sums = []
                for i in range(key.positions):
                    offset = (position + i) * plan["padded_channels"] * 4
                    totals = [self._accumulate(initial, factors, words, offset) for words in planes]
                    if bias is not None:
                        totals = [join_bytes(map(EvenOdd.from_i32, totals)).plus(bias)]
                    sums.append(totals)
                rows.writer.store(sums, first + position, index, is_last=is_last)

    def _bias(self, channels: Value) -> tuple[Value, EvenOdd | None]:
        """The initial accumulators of a vector of channels, and the int48 bias of int16 inputs."""
        code, plan, isa = self.code, self.plan, self.key.isa
        lanes = vector("i32", isa.lanes)
        if not self.key.epilogue.is_int16:
            return code.load(lanes, channels), None
        words = channels, code.gep(channels, plan["padded_channels"] * (4 * BIAS_HIGH))
        (bias,) = load_int48_bias(code, isa, 1, *words)
        return code.value(0, lanes), bias

    def _step_words(self, row: Value, vector_offset: Value, plane: int) -> list[Value]:
        """The address of each step's words, for one vector of channels of one output row."""
        plan, key = self.plan, self.key
        return [
            self.code.gep(
                self.words,
                (row * plan["stride"] + plan["dilation"] * window_row) * plan["staged_row"],
                self.group_size * (plane * key.groups + group),
                vector_offset,
            )
            for window_row in range(key.rows)
            for group in range(key.groups)
        ]

    def _accumulate(
        self, initial: Value, factors: list[Value], words: list[Value], offset: Value
    ) -> Value:
        """The accumulators of one position, a vector of int32."""
        code, isa, total = self.code, self.key.isa, initial
        for address, factor in zip(words, factors, strict=True):
            total = isa.step(code, total, code.load(initial.type, address, offset), factor)
        return total
