"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tosajax.native import requantize
from tosajax.native.code import Code, Value, element_of, pieces
from tosajax.native.requantize import Scale

# The rows of the operand of channels, int32, each of all channels.
BIAS, MULTIPLIER, SHIFT = range(3)
# The operand of limits, int32: what pads, the zero point of the output, the least and the largest
# result.
FILL, ZERO_POINT, LEAST, LARGEST = range(4)


class End(NamedTuple):
    """How sums end.

    Args:
      lanes: of a vector of sums.
      double: whether they are rounded twice; None for int32 sums.
      upper: whether they are scaled by their products' upper words; see `requantize`.
      last: channels of the last vector.
    """

    lanes: int
    double: bool | None
    upper: bool
    last: int

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double]
        return f"{end}{'_upper' if self.upper else ''}_{self.last}"

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return np.int32 if self.double is None else np.int8

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
        multiplier, shift = (code.at(channels, count * (4 * row)) for row in (MULTIPLIER, SHIFT))
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
            self.bounds = [bound.to("i8").spread(end.lanes) for bound in bounds]

    def store(self, sums: Value, pixel: Value, number: Value, *, is_last: bool) -> None:
        """Ends a vector of sums.

        Args:
          sums: int32.
          pixel: of the output, as a number.
          number: of the vector among those of the channels.
          is_last: whether it may have channels that are not there.
        """
        code, lanes = self.code, self.end.lanes
        results = sums if self.end.double is None else self._scaled(sums, number)
        of = element_of(results.type)
        size = int(of[1:]) // 8
        address = code.at(self.out, (pixel * self.channels + number * lanes) * size)
        if not is_last or self.end.last == lanes:
            code.store(results, address)
            return
        for begin, length in pieces(self.end.last):
            code.store(results.part(begin, length), address, begin * size)

    def _scaled(self, sums: Value, number: Value) -> Value:
        scale = self.end.scale
        row = self.code.at(self.table, number * scale.size)
        result = requantize.scaled(self.code, scale, row, sums) + self.zero_point
        return bytes_within(result, *self.bounds)


def bytes_within(values: Value, least: Value, largest: Value) -> Value:
    """A vector of int32 as bytes between two vectors of bytes."""
    narrow = values.most(-128).least(127).to(least.type)
    return narrow.most(least).least(largest)
