"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are.

Sums of int8 are int32; those of int16 are int48, held in int64 as `requantize.Wide`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native import requantize
from tosajax.native.code import Code, Value, count_of, element_of, pieces
from tosajax.native.isa import InstructionSet
from tosajax.native.packing import packed
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
      isa: of the processor.
      double: whether they are rounded twice; None for sums as they are.
      upper: whether they are scaled by their products' upper words; see `requantize`.
      last: channels of the last vector.
      wide: whether they are sums of int16, in int48.
      out: the type of results.
    """

    isa: InstructionSet
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
    def lanes(self) -> int:
        """Of a vector of sums."""
        return self.isa.lanes

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return np.dtype(f"int{self.out[1:]}")

    @property
    def size(self) -> int:
        """Bytes of a result."""
        return self.dtype.itemsize

    @property
    def joined(self) -> int:
        """How many vectors of sums become one of results."""
        return 1 if self.double is None else 4 // self.size

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
            self.zero_point, *self.bounds = (
                code.load("i32", limits, 4 * i) for i in (ZERO_POINT, LEAST, LARGEST)
            )

    def store(
        self,
        sums: Sequence[Sequence[Value | Wide]],
        pixel: Value,
        number: Value,
        *,
        is_last: bool,
    ) -> None:
        """Ends the sums of a tile.

        Args:
          sums: by pixel and vector, int32 or int48.
          pixel: the first one, as a number of the output.
          number: of the first vector among those of the channels.
          is_last: whether the last vector may have channels that are not there.
        """
        code, end, vectors = self.code, self.end, len(sums[0])
        base = code.at(self.out, (pixel * self.channels + number * end.lanes) * end.size)
        values = [
            self._scaled(of_vector, number + v) if end.double is not None else _whole(of_vector)
            for of_pixel in sums
            for v, of_vector in enumerate(of_pixel)
        ]
        for begin in range(0, len(values), end.joined):
            some = values[begin : begin + end.joined]
            joined = some[0] if end.double is None else self._joined(some)
            for p, of_pixel in itertools.groupby(
                range(begin, begin + len(some)), lambda i: i // vectors
            ):
                first, *others = of_pixel
                length = (1 + len(others)) * end.lanes
                if is_last and (first + len(others)) % vectors == vectors - 1:
                    length -= end.lanes - end.last
                place = code.at(base, self.channels * (p * end.size))
                for at, part in pieces(length):
                    found = joined.part((first - begin) * end.lanes + at, part)
                    code.store(found, place, (first % vectors * end.lanes + at) * end.size)

    def _scaled(self, sums: Value | Wide, number: Value) -> Value:
        scale = self.end.scale
        row = self.code.at(self.table, number * scale.size)
        return requantize.scaled(self.code, scale, row, sums)

    def _joined(self, values: Sequence[Value]) -> Value:
        """The results of some vectors, after which others may follow."""
        code, end = self.code, self.end
        whole = [*values, *[values[-1]] * (end.joined - len(values))]
        packs = packed(code, end.isa.pack, whole, self.zero_point, wraps=not end.upper)
        return clamped(packs, *self.bounds)


def clamped(values: Value, least: Value, largest: Value) -> Value:
    """A vector of narrow elements between bounds, which are int32."""
    of, count = element_of(values.type), count_of(values.type)
    least, largest = (bound.to(of).spread(count) for bound in (least, largest))
    return values.most(least).least(largest)


def _whole(sums: Value | Wide) -> Value:
    """A vector of sums in order."""
    return sums.even.alternating(sums.odd) if isinstance(sums, Wide) else sums
