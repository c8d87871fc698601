"""The kernel of depthwise convolutions: each channel by itself.

Neighbouring taps of a row of the window are multiplied in one step, as many as the instruction set
has terms in a lane. A thread's copy of a row of the input has them side by side for each pixel of
the output and each channel, so that a vector of channels is read at once. Where a vector has room
for the channels of several pixels, it holds these.
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import rows
from tosajax.native.code import Module, Value, vector
from tosajax.native.isa import InstructionSet
from tosajax.native.product import words
from tosajax.native.results import End
from tosajax.native.rows import COMMON, Rows


class Kind(NamedTuple):
    """What distinguishes the machine code of two depthwise convolutions.

    Args:
      isa: of the processor.
      rows: of the window.
      taps: in a row of the window.
      repeats: whether channels of the input have several of the output.
      end: of the sums.
    """

    isa: InstructionSet
    rows: int
    taps: int
    repeats: bool
    end: End

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        numbers = f"{self.rows}_{self.taps}_{int(self.repeats)}"
        return f"tosajax_depthwise_{self.isa.label}_{numbers}_{self.end.name}"

    @property
    def groups(self) -> int:
        """Steps of a row of the window."""
        return -(-self.taps // self.isa.terms)


FIELDS = (
    *COMMON,
    "line",  # bytes of a row's padded copy
    "run",  # vectors of the same channels in a row: fewer than pixels where one holds several
    "pieces",  # of a row, each of which is contiguous in its padded copy and among words
    "piece",  # elements
    "piece_from",  # elements from a piece to the next
    "piece_to",  # bytes likewise, among words
    "multiplier",  # channels of the output for each of the input
    "tap",  # elements of the padded copy
    "dilation",  # of rows
    "vectors",
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
        self.line = item.code.at(item.behind_table, slot * self.plan["slot"])
        self.words = item.code.at(self.line, self.plan["line"])
        self.group_size = self.plan["staged_row"] // kind.groups

    def write(self) -> None:
        self._copy_rows()
        whole = self.plan["vectors"] - 1
        with self.code.loop(whole) as number:
            self._write_vector(number, is_last=False)
        self._write_vector(whole, is_last=True)

    def _copy_rows(self) -> None:
        """Rows of the input, with the taps of each step side by side in words."""
        code, plan, kind = self.code, self.plan, self.kind
        write = self._write_repeated if kind.repeats else self._write_words
        with code.loop(plan["staged"]) as staged:
            self.item.copy_row(staged, self.line, kind.isa.raised)
            for group in range(kind.groups):
                to = code.at(self.words, staged * plan["staged_row"], self.group_size * group)
                first = group * kind.isa.terms
                taps = [
                    code.at(self.line, plan["tap"] * tap)
                    for tap in range(first, min(first + kind.isa.terms, kind.taps))
                ]
                with code.loop(plan["pieces"]) as piece:
                    source = piece * plan["piece_from"]
                    here = [code.at(tap, source) for tap in taps]
                    write(here, code.at(to, piece * plan["piece_to"]))

    def _write_words(self, taps: list[Value], to: Value) -> None:
        """Of a piece; the last vector may go beyond it, where the next one or nothing is."""
        lanes = self.kind.isa.lanes
        with self.code.loop(self.plan["piece"], lanes) as at:
            values = [self.code.load(vector("i8", lanes), tap, at) for tap in taps]
            self.code.store(self._words(values), to, at * 4)

    def _write_repeated(self, taps: list[Value], to: Value) -> None:
        """Of a pixel, with the word of each channel several times."""
        code, plan = self.code, self.plan
        with code.loop(plan["piece"]) as channel:
            word = self._words([code.load(vector("i8", 1), tap, channel) for tap in taps])
            first = channel * plan["multiplier"] * 4
            with code.loop(plan["multiplier"] * 4, 4) as copy:
                code.store(word, to, first, copy)

    def _words(self, taps: list[Value]) -> Value:
        return words(self.code, self.kind.isa, taps, self.item.padding)

    def _write_vector(self, number: Value, *, is_last: bool) -> None:
        """The outputs of a vector of channels."""
        code, plan, kind, item = self.code, self.plan, self.kind, self.item
        lanes, size = vector("i32", kind.isa.lanes), 4 * kind.isa.lanes
        steps = [(row, group) for row in range(kind.rows) for group in range(kind.groups)]
        weights = code.at(item.operand("weights"), number * (len(steps) * size))
        factors = [code.load(lanes, weights, i * size) for i in range(len(steps))]
        bias = code.load(lanes, item.operand("channels"), number * size)
        out_row = item.out_row
        with code.loop(plan["rows"]) as run:
            starts = [
                code.at(
                    self.words,
                    (run * plan["stride"] + plan["dilation"] * row) * plan["staged_row"],
                    self.group_size * group,
                    number * size,
                )
                for row, group in steps
            ]
            first = (out_row + run) * plan["run"]
            with code.loop(plan["run"]) as pixel:
                total = bias
                for start, factor in zip(starts, factors, strict=True):
                    x = code.load(lanes, start, pixel * plan["padded_channels"] * 4)
                    total = kind.isa.step(code, total, x, factor)
                item.results.store(total, first + pixel, number, is_last=is_last)
