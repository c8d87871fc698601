"""The kernel of depthwise convolutions: each channel by itself.

Neighbouring taps of a row of the window are multiplied in one step, as many as the instruction set
has terms in a lane. A thread's copy of a row of the input has them side by side for each pixel of
the output and each channel, so that a vector of channels is read at once. Where a vector has room
for the channels of several pixels, it holds these.
"""

from __future__ import annotations

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
from tosajax.native.kernels.row_block import COMMON, RowBlock

MAX_PIXELS = 4


class KernelKey(NamedTuple):
    """What distinguishes the machine code of two depthwise convolutions.

    Args:
      isa: of the processor.
      rows: of the window.
      taps: in a row of the window.
      places: of the output in a row, that are summed at a time.
      repeats: whether channels of the input have several of the output.
      epilogue: how accumulators become results.
    """

    isa: InstructionSet
    rows: int
    taps: int
    places: int
    repeats: bool
    epilogue: EpilogueKey

    @property
    def name(self) -> str:
        """Of its function."""
        numbers = f"{self.rows}_{self.taps}_{self.places}_{int(self.repeats)}"
        return f"tosajax_depthwise_{self.isa.label}_{numbers}_{self.epilogue.name}"

    @property
    def groups(self) -> int:
        """Steps of a row of the window."""
        return -(-self.taps // self.isa.dot_length)


FIELDS = (
    *COMMON,
    "line",  # bytes of a row's padded copy
    "run",  # places of a row: its pixels, or fewer where a vector holds several of these
    "pieces",  # of a row, each of which is contiguous in its padded copy and among words
    "piece",  # elements
    "piece_from",  # elements from a piece to the next
    "piece_to",  # bytes likewise, among words
    "multiplier",  # channels of the output for each of the input
    "tap",  # elements of the padded copy
    "dilation",  # of rows
    "vectors",
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
        self.code, self.plan = item.code, item.plan
        self.line = item.buffers.scratch
        self.words = item.code.gep(self.line, self.plan["line"])
        self.forms = (
            staging_conversions(key.isa, item.padding, is_int16=True)
            if key.epilogue.is_int16
            else [lambda x: x]
        )
        self.group_size = self.plan["staged_row"] // (key.groups * len(self.forms))

    def write(self) -> None:
        self._copy_rows()
        whole = self.plan["vectors"] - 1
        with self.code.loop(whole) as number:
            self._write_vector(number, is_last=False)
        self._write_vector(whole, is_last=True)

    def _copy_rows(self) -> None:
        """Copies rows of the input, with the taps of each step side by side in words."""
        code, plan, key = self.code, self.plan, self.key
        write = self._write_repeated if key.repeats else self._write_words
        xor = 0 if key.epilogue.is_int16 else key.isa.input_offset
        with code.loop(plan["staged"]) as staged:
            self.item.copy_row(staged, self.line, lambda x: x ^ xor)
            for number, (form, group) in enumerate(self._copies()):
                to = code.gep(self.words, staged * plan["staged_row"], self.group_size * number)
                first = group * key.isa.dot_length
                taps = [
                    code.gep(self.line, plan["tap"] * tap)
                    for tap in range(first, min(first + key.isa.dot_length, key.taps))
                ]
                with code.loop(plan["pieces"]) as piece:
                    source = piece * plan["piece_from"]
                    here = [code.gep(tap, source) for tap in taps]
                    write(here, code.gep(to, piece * plan["piece_to"]), form)

    def _copies(self) -> Iterator[tuple[StagingConversion, int]]:
        """The groups of a row's copy, in order."""
        return itertools.product(self.forms, range(self.key.groups))

    def _write_words(self, taps: list[Value], to: Value, form: StagingConversion) -> None:
        """Of a piece; the last vector may go beyond it, where the next one or nothing is."""
        lanes = self.key.isa.lanes
        with self.code.loop(self.plan["piece"], lanes) as at:
            self.code.store(self._words(taps, at, lanes, form), to, at * 4)

    def _write_repeated(self, taps: list[Value], to: Value, form: StagingConversion) -> None:
        """Of a pixel, with the word of each channel several times."""
        code, plan = self.code, self.plan
        with code.loop(plan["piece"]) as channel:
            word = self._words(taps, channel, 1, form)
            first = channel * plan["multiplier"] * 4
            with code.loop(plan["multiplier"] * 4, 4) as copy:
                code.store(word, to, first, copy)

    def _words(
        self, taps: list[Value], element: Value, count: int, form: StagingConversion
    ) -> Value:
        of = self.item.element
        at = element * (int(of[1:]) // 8)
        values = [form(self.code.load(vector(of, count), tap, at)) for tap in taps]
        return pack_words(self.code, self.key.isa, values, self.item.padding)

    def _write_vector(self, number: Value, *, is_last: bool) -> None:
        """The outputs of a vector of channels."""
        code, plan, key, item = self.code, self.plan, self.key, self.item
        lanes, size = vector("i32", key.isa.lanes), 4 * key.isa.lanes
        steps = key.rows * key.groups
        weights = code.gep(item.operand("weights"), number * (steps * size))
        factors = [code.load(lanes, weights, i * size) for i in range(steps)]
        channels = code.gep(item.operand("channels"), number * size)
        bias = None
        if key.epilogue.is_int16:
            words = channels, code.gep(channels, plan["padded_channels"] * (4 * BIAS_HIGH))
            (bias,) = load_int48_bias(code, key.isa, 1, *words)
        begin = code.value(0, lanes) if key.epilogue.is_int16 else code.load(lanes, channels)
        out_row = item.out_row
        with code.loop(plan["rows"]) as run:
            places = [self._places(run, number * size, form) for form in range(len(self.forms))]
            first = (out_row + run) * plan["run"]
            with code.loop(plan["run"], key.places) as at:
                # The last ones end with the run.
                begin_at = at.smin(plan["run"] - key.places)
                found = []
                for i in range(key.places):
                    place = (begin_at + i) * plan["padded_channels"] * 4
                    totals = [self._total(begin, factors, of_form, place) for of_form in places]
                    found.append(
                        totals
                        if bias is None
                        else [join_bytes(map(EvenOdd.from_i32, totals)).plus(bias)]
                    )
                item.writer.store(found, first + begin_at, number, is_last=is_last)

    def _places(self, run: Value, vector_at: Value, form: int) -> list[Value]:
        """Where the words of each step begin, of a row of the output."""
        plan, key = self.plan, self.key
        return [
            self.code.gep(
                self.words,
                (run * plan["stride"] + plan["dilation"] * row) * plan["staged_row"],
                self.group_size * (form * key.groups + group),
                vector_at,
            )
            for row in range(key.rows)
            for group in range(key.groups)
        ]

    def _total(
        self, begin: Value, factors: list[Value], places: list[Value], pixel: Value
    ) -> Value:
        """The sums of a pixel, int32."""
        code, isa, total = self.code, self.key.isa, begin
        for place, factor in zip(places, factors, strict=True):
            total = isa.step(code, total, code.load(begin.type, place, pixel), factor)
        return total
