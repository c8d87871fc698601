"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are.

Sums of int8 are int32; those of int16 are int48, held in int64 as `requantize.EvenOdd`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native.codegen import requantize
from tosajax.native.codegen.builder import IRBuilder, Value, pieces, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.narrowing import Narrowing
from tosajax.native.codegen.requantize import EvenOdd, ScaleTable
from tosajax.native.kernels.fused_add import AddKey, AddWriter

# The rows of the operand of channels, int32, each of all channels. The bias of int48 sums has a row
# for its upper words, behind that of its lower ones.
BIAS, HIGH = range(2)
# The operand of limits, int32: what pads, the zero point of the output, the least and the largest
# result.
FILL, ZERO_POINT, LEAST, LARGEST = range(4)


class FusedAdd(NamedTuple):
    """A sum of results and other bytes.

    Args:
      how: it is made.
      is_right: whether the results are its right term.
    """

    how: AddKey
    is_right: bool

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        return f"{'right' if self.is_right else 'left'}_of_{self.how.name}"


class EpilogueKey(NamedTuple):
    """How sums end.

    Args:
      isa: of the processor.
      double: whether they are rounded twice; None for sums as they are.
      upper: whether they are scaled by their products' upper words; see `requantize`.
      last: channels of the last vector.
      wide: whether they are sums of int16, in int48.
      out: the type of results.
      then: what bytes are added to or subtracted from, if they are.
    """

    isa: InstructionSet
    double: bool | None
    upper: bool
    last: int
    wide: bool = False
    out: str = "i32"
    then: FusedAdd | None = None

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double]
        ways = [name for name in ("upper", "wide") if getattr(self, name)]
        then = [] if self.then is None else [self.then.name]
        return "_".join([end, *ways, self.out, str(self.last), *then])

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
    def scale(self) -> ScaleTable:
        """The columns of the table of scales."""
        return ScaleTable(self.lanes, bool(self.double), self.upper)

    def table_size(self, vectors: int) -> int:
        """Bytes of all tables of scales, a multiple of 64."""
        if self.double is None:
            return 0
        return self.sum_size + -(-vectors * self.scale.size // 64) * 64

    @property
    def sum_size(self) -> int:
        """Bytes of the tables of `then`, a multiple of 64, which are before the others."""
        return 0 if self.then is None else -(-self.then.how.table_size // 64) * 64


class EpilogueOperands(NamedTuple):
    """Of what results need.

    Args:
      out: the output.
      table: of scales.
      channels: that operand.
      limits: that operand.
      other: what is added, if that is so.
      scales: the operand of scales of the sum.
    """

    out: Value
    table: Value
    channels: Value
    limits: Value
    other: Value | None = None
    scales: Value | None = None

    def summing(self, code: IRBuilder, end: EpilogueKey) -> AddWriter | None:
        """What writes the sum of results and others, if there is one."""
        if end.then is None:
            return None
        assert self.scales is not None
        return AddWriter(code, end.isa, end.then.how, self.scales, self.table)


def write_scales(code: IRBuilder, end: EpilogueKey, at: EpilogueOperands, count: Value) -> None:
    """Fills the tables of scales of `count` channels, a multiple of the lanes."""
    summing = at.summing(code, end)
    if summing is not None:
        summing.write_tables()
    if end.double is not None:
        multiplier, shift = (code.gep(at.channels, count * (4 * row)) for row in end.scales)
        table = code.gep(at.table, end.sum_size)
        requantize.write_table(code, end.scale, table, multiplier, shift, count)


class EpilogueWriter:
    """Where results go.

    Args:
      code: gets the instructions.
      end: of the sums.
      at: the addresses of what they need.
      channels: of the output.
    """

    def __init__(
        self, code: IRBuilder, end: EpilogueKey, at: EpilogueOperands, channels: Value
    ) -> None:
        self.code, self.end, self.at, self.channels = code, end, at, channels
        self.summing = at.summing(code, end)
        numbers = (code.load("i32", at.limits, 4 * i) for i in (ZERO_POINT, LEAST, LARGEST))
        self.narrowing = Narrowing(end.isa.pack, *numbers, wraps=not end.upper)

    def store(
        self,
        sums: Sequence[Sequence[Value | EvenOdd]],
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
        first = pixel * self.channels + number * end.lanes
        parts = [
            _Part(p, first + self.channels * p + v * end.lanes, channels)
            for p in range(len(sums))
            for v, channels in enumerate(self._counts(vectors, is_last=is_last))
        ]
        values, narrowing = self._totals(sums, number, parts)
        for begin in range(0, len(values), end.joined):
            some = values[begin : begin + end.joined]
            if end.double is not None:
                some = [narrowing.of_all(code, [*some, *some[-1:] * (end.joined - len(some))])]
            self._write(some[0], parts[begin : begin + end.joined])

    def _totals(
        self, sums: Sequence[Sequence[Value | EvenOdd]], number: Value, parts: Sequence[_Part]
    ) -> tuple[list[Value], Narrowing]:
        """The vectors of a tile in order, scaled if they are, and what makes results of them."""
        flat = [values for of_pixel in sums for values in of_pixel]
        if self.end.double is None:
            return list(map(_whole, flat)), self.narrowing
        numbers = [number + v for v in range(len(sums[0]))] * len(sums)
        values = [self._scaled(*pair) for pair in zip(flat, numbers, strict=True)]
        if self.summing is None or self.end.then is None:
            return values, self.narrowing
        own = [self.narrowing.of_each(of_vector) for of_vector in values]
        is_right = self.end.then.is_right
        totals = self.summing.totals(own, self._others(parts), is_right=is_right)
        return totals, self.summing.narrowing

    def _counts(self, vectors: int, *, is_last: bool) -> list[int]:
        """The channels of each vector of a pixel."""
        lanes = self.end.lanes
        return [lanes] * (vectors - 1) + [self.end.last if is_last else lanes]

    def _scaled(self, sums: Value | EvenOdd, number: Value) -> Value:
        scale = self.end.scale
        row = self.code.gep(self.at.table, number * scale.size, self.end.sum_size)
        return requantize.scaled(self.code, scale, row, sums)

    def _others(self, parts: Sequence[_Part]) -> Iterator[Value]:
        """The other terms of sums, int32."""
        assert self.at.other is not None
        of = vector("i8", self.end.lanes)
        for part in parts:
            at = self.code.gep(self.at.other, part.place)
            yield self.code.load_first(part.channels, of, at).to_elements("i32")

    def _write(self, values: Value, parts: Sequence[_Part]) -> None:
        """Stores the first vectors of some that are side by side; those of a pixel are one."""
        size = self.end.size
        for _, found in itertools.groupby(enumerate(parts), lambda of: of[1].pixel):
            (at, first), *others = found
            for begin, length in pieces(first.channels + sum(part.channels for _, part in others)):
                some = values.extract(at * self.end.lanes + begin, length)
                self.code.store(some, self.at.out, first.place * size, begin * size)


class _Part(NamedTuple):
    """A vector of results.

    Args:
      pixel: among those of a tile.
      place: of the first one, as a number of the output.
      channels: that there are.
    """

    pixel: int
    place: Value
    channels: int


def _whole(sums: Value | EvenOdd) -> Value:
    """A vector of sums in order."""
    return sums.even.interleave(sums.odd) if isinstance(sums, EvenOdd) else sums
