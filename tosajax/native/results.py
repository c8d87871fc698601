"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are.

Sums of int8 are int32; those of int16 are int48, held in int64 as `requantize.Wide`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tosajax.native import requantize
from tosajax.native.code import Code, Value, element_of, pieces
from tosajax.native.requantize import Scale, Wide

# The rows of the operand of channels, int32, each of all channels. The bias of int48 sums has a row
# for its upper words, behind that of its lower ones.
BIAS, HIGH = range(2)
# The operand of limits, int32: what pads, the zero point of the output, the least and the largest
# result.
FILL, ZERO_POINT, LEAST, LARGEST = range(4)


class End(NamedTuple):
    """How sums end.

    Args:
      lanes: of a vector of sums.
      double: whether they are rounded twice; None for sums as they are.
      upper: whether they are scaled by their products' upper words; see `requantize`.
      last: channels of the last vector.
      wide: whether they are sums of int16, in int48.
      out: the type of results.
    """

    lanes: int
    double: bool | None
    upper: bool
    last: int
    wide: bool = False
    out: str = "i32"

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double]
        ways = [name for name in ("upper", "wide") if getattr(self, name)]
        return "_".join([end, *ways, self.out, str(self.last)])

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return np.dtype(f"int{self.out[1:]}")

    @property
    def scales(self) -> tuple[int, int]:
        """The rows of multipliers and of shifts in the operand of channels."""
        return (HIGH + 1, HIGH + 2) if self.wide else (BIAS + 1, BIAS + 2)

    @property
    def scale(self) -> Scale:
        """The columns of the table of scales."""
        return Scale(self.lanes, bool(self.double), self.upper)

    def table_size(self, vectors: int) -> int:
        """Bytes of the table of scales, a multiple of 64."""
        return 0 if self.double is None else -(-vectors * self.scale.size // 64) * 64


def write_scales(code: Code, end: End, channels: Value, table: Value, count: Value) -> None:
    """Fills the table of scales of `count` channels, a multiple of the lanes."""
    if end.double is not None:
        multiplier, shift = (code.at(channels, count * (4 * row)) for row in end.scales)
        requantize.write_table(code, end.scale, table, multiplier, shift, count)


class Results:
    """Where results go.

    Args:
      code: gets the instructions.
      end: of the sums.
      out: the address of the output.
      table: of scales.
      limits: the address of that operand.
      channels: of the output.
    """

    def __init__(
        self, code: Code, end: End, out: Value, table: Value, limits: Value, channels: Value
    ) -> None:
        self.code, self.end = code, end
        self.out, self.table, self.channels = out, table, channels
        if end.double is not None:
            zero_point, *bounds = (
                code.load("i32", limits, 4 * i) for i in (ZERO_POINT, LEAST, LARGEST)
            )
            self.zero_point = zero_point.spread(end.lanes)
            self.bounds = [bound.to(end.out).spread(end.lanes) for bound in bounds]

    def store(self, sums: Value | Wide, pixel: Value, number: Value, *, is_last: bool) -> None:
        """Ends a vector of sums.

        Args:
          sums: int32, or int48.
          pixel: of the output, as a number.
          number: of the vector among those of the channels.
          is_last: whether it may have channels that are not there.
        """
        code, lanes = self.code, self.end.lanes
        if self.end.double is not None:
            results = self._scaled(sums, number)
        else:
            results = sums.even.alternating(sums.odd) if isinstance(sums, Wide) else sums
        of = element_of(results.type)
        size = int(of[1:]) // 8
        address = code.at(self.out, (pixel * self.channels + number * lanes) * size)
        if not is_last or self.end.last == lanes:
            code.store(results, address)
            return
        for begin, length in pieces(self.end.last):
            code.store(results.part(begin, length), address, begin * size)

    def _scaled(self, sums: Value | Wide, number: Value) -> Value:
        scale = self.end.scale
        row = self.code.at(self.table, number * scale.size)
        result = requantize.scaled(self.code, scale, row, sums) + self.zero_point
        return within(result, *self.bounds)


def within(values: Value, least: Value, largest: Value) -> Value:
    """A vector of int32 in the type of two vectors, and between them."""
    half = 1 << (int(element_of(least.type)[1:]) - 1)
    narrow = values.most(-half).least(half - 1).to(least.type)
    return narrow.most(least).least(largest)
