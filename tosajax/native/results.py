"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tosajax.native import requantize
from tosajax.native.code import Code, Value, element_of, vector
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
      last: channels of the last vector.
    """

    lanes: int
    double: bool | None
    last: int

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double]
        return f"{end}_{self.last}"

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return np.int32 if self.double is None else np.int8

    @property
    def scale(self) -> Scale:
        """The columns of the table of scales."""
        return Scale(self.lanes, bool(self.double))

    def table_size(self, vectors: int) -> int:
        """Bytes of the table of scales, a multiple of 64."""
        return 0 if self.double is None else -(-vectors * self.scale.size // 64) * 64


def write_scales(code: Code, end: End, channels: Value, table: Value, count: Value) -> None:
    """Fills the table of scales of `count` channels, a multiple of the lanes."""
    if end.double is not None:
        multiplier, shift = (code.at(channels, count * (4 * row)) for row in (MULTIPLIER, SHIFT))
        requantize.write_table(code, end.scale, table, multiplier, shift, count)


class Results(NamedTuple):
    """Where results go.

    Args:
      code: gets the instructions.
      end: of the sums.
      out: the address of the output.
      table: of scales.
      limits: the address of that operand.
      channels: of the output.
    """

    code: Code
    end: End
    out: Value
    table: Value
    limits: Value
    channels: Value

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
        # The channels that are there, in pieces of powers of two.
        begin = 0
        while begin < self.end.last:
            length = 1 << ((self.end.last - begin).bit_length() - 1)
            code.store(results.part(begin, length), address, begin * size)
            begin += length

    def _scaled(self, sums: Value, number: Value) -> Value:
        code, scale = self.code, self.end.scale
        scaled = requantize.scaled(code, scale, code.at(self.table, number * scale.size), sums)
        zero_point, least, largest = (
            code.load("i32", self.limits, 4 * i).spread(scale.lanes)
            for i in (ZERO_POINT, LEAST, LARGEST)
        )
        return (scaled + zero_point).most(least).least(largest).to(vector("i8", scale.lanes))
