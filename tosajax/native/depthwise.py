"""The kernel of depthwise convolutions: each channel by itself.

Neighbouring taps of a row of the window are multiplied in one step, as many as the instruction set
has terms in a lane. A thread's copy of a row of the input has them side by side for each pixel of
the output and each channel, so that a vector of channels is read at once. Where a vector has room
for the channels of several pixels, it holds these.
"""

from __future__ import annotations

from typing import NamedTuple

from tosajax.native import handler
from tosajax.native.code import Code, Module, Value, vector
from tosajax.native.handler import Buffers
from tosajax.native.isa import InstructionSet
from tosajax.native.results import FILL, End, Results, write_scales


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
    "items",
    "threads",
    "items_per_image",
    "rows",  # of the output, of an item
    "out_height",
    "out_width",
    "run",  # vectors of the same channels in a row: fewer than pixels where one holds several
    "height",
    "width",
    "inputs",  # channels of the input
    "multiplier",  # channels of the output for each of the input
    "channels",
    "padded_channels",
    "pixel",  # bytes of a pixel of the copy
    "top",
    "left",
    "stride",  # of rows
    "stride_x",
    "dilation",  # of rows
    "dilation_x",
    "staged",  # rows of an item's copy
    "staged_row",  # bytes
    "slot",  # bytes of a thread's copy
    "vectors",
    "table",  # bytes of the table of scales, at the start of the workspace
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
        # Behind the table, a pixel that pads.
        inputs = code.load("i64", buffers.plan, 8 * _FIELD["inputs"])
        limits = buffers.operands[OPERANDS.index("limits")]
        padding = code.load("i32", limits, 4 * FILL).to("i8")
        table = code.load("i64", buffers.plan, 8 * _FIELD["table"])
        with code.loop(inputs) as i:
            code.store(padding, buffers.results[1], table, i)

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
        self.padding = code.at(buffers.results[1], plan["table"])
        room = (plan["inputs"] + 63) // 64 * 64
        self.copy = code.at(self.padding, room, slot * plan["slot"])

    def operand(self, name: str) -> Value:
        return self.buffers.operands[OPERANDS.index(name)]

    def write(self) -> None:
        self._copy_rows()
        whole = self.plan["vectors"] - 1
        with self.code.loop(whole) as number:
            self._write_vector(number, is_last=False)
        self._write_vector(whole, is_last=True)

    def _copy_rows(self) -> None:
        """Rows of the input, with the taps of each step side by side."""
        code, plan, kind = self.code, self.plan, self.kind
        top = self.first * plan["stride"] - plan["top"]
        before = self.image * plan["height"]
        group_size = plan["out_width"] * plan["pixel"]
        with code.loop(plan["staged"]) as staged:
            row = top + staged
            is_row = (row > -1) & (row < plan["height"])
            source = code.at(self.operand("x"), (before + row) * plan["width"] * plan["inputs"])
            for group in range(kind.groups):
                to = code.at(self.copy, staged * plan["staged_row"], group_size * group)
                with code.loop(plan["out_width"]) as pixel:
                    taps = [
                        self._tap(source, is_row, pixel, group * kind.isa.terms + t)
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
        code, plan, kind = self.code, self.plan, self.kind
        lanes, size = vector("i32", kind.isa.lanes), 4 * kind.isa.lanes
        steps = [(row, group) for row in range(kind.rows) for group in range(kind.groups)]
        weights = code.at(self.operand("weights"), number * (len(steps) * size))
        factors = [code.load(lanes, weights, i * size) for i in range(len(steps))]
        bias = code.load(lanes, self.operand("channels"), number * size)
        out, table = self.buffers.results
        limits = self.operand("limits")
        results = Results(code, kind.end, out, table, limits, plan["channels"])
        group_size = plan["out_width"] * plan["pixel"]
        image_row = self.image * plan["out_height"] + self.first
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
            first = (image_row + run) * plan["run"]
            with code.loop(plan["run"]) as pixel:
                total = bias
                for start, factor in zip(starts, factors, strict=True):
                    x = code.load(lanes, start, pixel * plan["padded_channels"] * 4)
                    total = kind.isa.step(code, total, x, factor)
                results.store(total, first + pixel, number, is_last=is_last)
