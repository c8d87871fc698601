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
from tosajax.native.results import End
from tosajax.native.rows import COMMON, Rows


class Kind(NamedTuple):
    """What distinguishes the machine code of two depthwise convolutions.

    Args:
      isa: of the processor.
      rows: of the window.
      groups: of neighbouring taps in a row of the window.
      repeats: whether channels of the input have several of the output.
      end: of the sums.
    """

    isa: InstructionSet
    rows: int
    groups: int
    repeats: bool
    end: End

    @property
    def name(self) -> str:
        """Of the target for XLA."""
        numbers = f"{self.rows}_{self.groups}_{int(self.repeats)}"
        return f"tosajax_depthwise_{self.isa.label}_{numbers}_{self.end.name}"


FIELDS = (
    *COMMON,
    "run",  # vectors of the same channels in a row: fewer than pixels where one holds several
    "width",
    "inputs",  # channels of the input
    "multiplier",  # channels of the output for each of the input
    "pixel",  # bytes of a pixel of the copy
    "left",
    "stride_x",
    "dilation",  # of rows
    "dilation_x",
    "vectors",
)


def module_of(kind: Kind) -> Module:
    """The module with the handler of a kind."""

    def prepare(item: Rows) -> None:
        """A pixel that pads, behind the table."""
        padding = item.padding.to("i8")
        with item.code.loop(item.plan["inputs"]) as i:
            item.code.store(padding, item.behind_table, i)

    def write(item: Rows, slot: Value) -> None:
        _Item(item, kind, slot).write()

    return rows.module_of(kind.name, kind.end, FIELDS, write, prepare)


class _Item:
    """Writes the work of an item."""

    def __init__(self, item: Rows, kind: Kind, slot: Value) -> None:
        self.item, self.kind = item, kind
        self.code, self.plan = item.code, item.plan
        self.padding = item.behind_table
        room = (self.plan["inputs"] + 63) // 64 * 64
        self.copy = item.code.at(self.padding, room, slot * self.plan["slot"])

    def write(self) -> None:
        self._copy_rows()
        whole = self.plan["vectors"] - 1
        with self.code.loop(whole) as number:
            self._write_vector(number, is_last=False)
        self._write_vector(whole, is_last=True)

    def _copy_rows(self) -> None:
        """Rows of the input, with the taps of each step side by side."""
        code, plan, kind = self.code, self.plan, self.kind
        group_size = plan["out_width"] * plan["pixel"]
        with code.loop(plan["staged"]) as staged:
            row, inside = self.item.input_row(staged)
            source = code.at(self.item.operand("x"), row * plan["width"] * plan["inputs"])
            for group in range(kind.groups):
                to = code.at(self.copy, staged * plan["staged_row"], group_size * group)
                with code.loop(plan["out_width"]) as pixel:
                    taps = [
                        self._tap(source, inside, pixel, group * kind.isa.terms + t)
                        for t in range(kind.isa.terms)
                    ]
                    self._interleave(taps, code.at(to, pixel * plan["pixel"]))

    def _tap(self, source: Value, is_row: Value, pixel: Value, tap: int) -> Value:
        """The address of the pixel of the input that a tap reads, or of one that pads."""
        plan = self.plan
        at = pixel * plan["stride_x"] + plan["dilation_x"] * tap - plan["left"]
        inside = is_row & (at > -1) & (at < plan["width"])
        return inside.choose(self.code.at(source, at * plan["inputs"]), self.padding)

    def _interleave(self, taps: list[Value], to: Value) -> None:
        code, isa = self.code, self.kind.isa
        bits = 32 // isa.terms
        zero_point = code.load("i8", self.padding).to("i32")
        with code.loop(self.plan["inputs"]) as channel:
            word = code.value(0, "i32")
            for t, tap in enumerate(taps):
                x = code.load("i8", tap, channel)
                if isa.raised:
                    x = x ^ isa.raised
                wide = x.to("i32") - zero_point if isa.terms == 2 else x.to("i32")
                word = word | ((wide & ((1 << bits) - 1)) << (bits * t))
            if self.kind.repeats:
                first = channel * self.plan["multiplier"] * 4
                with code.loop(self.plan["multiplier"] * 4, 4) as copy:
                    code.store(word, to, first, copy)
            else:
                code.store(word, to, channel * 4)

    def _write_vector(self, number: Value, *, is_last: bool) -> None:
        """The outputs of a vector of channels."""
        code, plan, kind, item = self.code, self.plan, self.kind, self.item
        lanes, size = vector("i32", kind.isa.lanes), 4 * kind.isa.lanes
        steps = [(row, group) for row in range(kind.rows) for group in range(kind.groups)]
        weights = code.at(item.operand("weights"), number * (len(steps) * size))
        factors = [code.load(lanes, weights, i * size) for i in range(len(steps))]
        bias = code.load(lanes, item.operand("channels"), number * size)
        group_size = plan["out_width"] * plan["pixel"]
        out_row = item.out_row
        with code.loop(plan["rows"]) as run:
            starts = [
                code.at(
                    self.copy,
                    (run * plan["stride"] + plan["dilation"] * row) * plan["staged_row"],
                    group_size * group,
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
