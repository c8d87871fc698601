"""What becomes of sums: scaled by channel, clamped and stored, or stored as they are.

Sums of int8 are int32; those of int16 are int48, held in int64 as `requantize.EvenOdd`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native.codegen import requantize
from tosajax.native.codegen.builder import IRBuilder, Value, power_of_two_runs, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.narrowing import Narrowing
from tosajax.native.codegen.requantize import EvenOdd, ScaleTable
from tosajax.native.kernels.fused_add import AddKey, AddWriter

# The rows of the operand of channels, int32, each of all channels. The bias of int48 sums has a row
# for its upper words, behind that of its lower ones.
BIAS, BIAS_HIGH = range(2)
# The operand of limits, int32: what pads, the zero point of the output, the least and the largest
# result.
FILL, ZERO_POINT, LEAST, LARGEST = range(4)


class FusedAdd(NamedTuple):
    """A sum of results and other bytes.

    Args:
      add: how the sum is computed.
      is_right: whether the results are its right term.
    """

    add: AddKey
    is_right: bool

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        return f"{'right' if self.is_right else 'left'}_of_{self.add.name}"


class EpilogueKey(NamedTuple):
    """How sums end.

    Args:
      isa: of the processor.
      double_round: whether they are rounded twice; None for sums as they are.
      upper_only: whether they are scaled by their products' upper words; see `requantize`.
      last_channels: channels of the last vector.
      is_int16: whether they are sums of int16, in int48.
      out: the type of results.
      fused_add: what bytes are added to or subtracted from, if they are.
    """

    isa: InstructionSet
    double_round: bool | None
    upper_only: bool
    last_channels: int
    is_int16: bool = False
    out: str = "i32"
    fused_add: FusedAdd | None = None

    @property
    def name(self) -> str:
        """In the name of a kernel."""
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double_round]
        ways = ["upper"] * self.upper_only + ["wide"] * self.is_int16
        then = [] if self.fused_add is None else [self.fused_add.name]
        return "_".join([end, *ways, self.out, str(self.last_channels), *then])

    @property
    def lanes(self) -> int:
        """Of a vector of sums."""
        return self.isa.lanes

    @property
    def dtype(self) -> Any:
        """Of the output."""
        return np.dtype(f"int{self.out[1:]}")

    @property
    def result_bytes(self) -> int:
        """Bytes of a result."""
        return self.dtype.itemsize

    @property
    def vectors_per_store(self) -> int:
        """How many vectors of sums become one of results."""
        return 1 if self.double_round is None else 4 // self.result_bytes

    @property
    def scale_rows(self) -> tuple[int, int]:
        """The rows of multipliers and of shifts in the operand of channels."""
        return (BIAS_HIGH + 1, BIAS_HIGH + 2) if self.is_int16 else (BIAS + 1, BIAS + 2)

    @property
    def scale_table(self) -> ScaleTable:
        """The columns of the table of scales."""
        return ScaleTable(self.lanes, bool(self.double_round), self.upper_only)

    def table_size(self, vectors: int) -> int:
        """Bytes of all tables of scales, a multiple of 64."""
        if self.double_round is None:
            return 0
        return self.add_table_size + -(-vectors * self.scale_table.size // 64) * 64

    @property
    def add_table_size(self) -> int:
        """Bytes of the tables of `then`, a multiple of 64, which are before the others."""
        return 0 if self.fused_add is None else -(-self.fused_add.add.table_size // 64) * 64


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

    def add_writer(self, code: IRBuilder, end: EpilogueKey) -> AddWriter | None:
        """What writes the sum of results and others, if there is one."""
        if end.fused_add is None:
            return None
        assert self.scales is not None
        return AddWriter(code, end.isa, end.fused_add.add, self.scales, self.table)


def write_scale_tables(
    code: IRBuilder, end: EpilogueKey, at: EpilogueOperands, count: Value
) -> None:
    """Fills the tables of scales of `count` channels, a multiple of the lanes."""
    adding = at.add_writer(code, end)
    if adding is not None:
        adding.write_tables()
    if end.double_round is not None:
        multiplier, shift = (code.gep(at.channels, count * (4 * row)) for row in end.scale_rows)
        table = code.gep(at.table, end.add_table_size)
        requantize.write_scale_table(code, end.scale_table, table, multiplier, shift, count)


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
        self.adding = at.add_writer(code, end)
        numbers = (code.load("i32", at.limits, 4 * i) for i in (ZERO_POINT, LEAST, LARGEST))
        self.narrowing = Narrowing(end.isa.pack, *numbers, wraps=not end.upper_only)

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
            _ResultVector(p, first + self.channels * p + v * end.lanes, channels)
            for p in range(len(sums))
            for v, channels in enumerate(self._channel_counts(vectors, is_last=is_last))
        ]
        values, narrowing = self._results(sums, number, parts)
        for begin in range(0, len(values), end.vectors_per_store):
            some = values[begin : begin + end.vectors_per_store]
            if end.double_round is not None:
                some = [
                    narrowing.narrow(
                        code, [*some, *some[-1:] * (end.vectors_per_store - len(some))]
                    )
                ]
            self._write(some[0], parts[begin : begin + end.vectors_per_store])

    def _results(
        self,
        sums: Sequence[Sequence[Value | EvenOdd]],
        number: Value,
        parts: Sequence[_ResultVector],
    ) -> tuple[list[Value], Narrowing]:
        """The vectors of a tile in order, scaled if they are, and what makes results of them."""
        flat = [values for of_pixel in sums for values in of_pixel]
        if self.end.double_round is None:
            return list(map(_in_lane_order, flat)), self.narrowing
        numbers = [number + v for v in range(len(sums[0]))] * len(sums)
        values = [self._rescaled(*pair) for pair in zip(flat, numbers, strict=True)]
        if self.adding is None or self.end.fused_add is None:
            return values, self.narrowing
        own = [self.narrowing.clamp(of_vector) for of_vector in values]
        is_right = self.end.fused_add.is_right
        totals = self.adding.rescaled_sums(own, self._addends(parts), is_right=is_right)
        return totals, self.adding.narrowing

    def _channel_counts(self, vectors: int, *, is_last: bool) -> list[int]:
        """The channels of each vector of a pixel."""
        lanes = self.end.lanes
        return [lanes] * (vectors - 1) + [self.end.last_channels if is_last else lanes]

    def _rescaled(self, sums: Value | EvenOdd, number: Value) -> Value:
        scale = self.end.scale_table
        row = self.code.gep(self.at.table, number * scale.size, self.end.add_table_size)
        return requantize.apply(self.code, scale, row, sums)

    def _addends(self, parts: Sequence[_ResultVector]) -> Iterator[Value]:
        """The other terms of sums, int32."""
        assert self.at.other is not None
        of = vector("i8", self.end.lanes)
        for part in parts:
            at = self.code.gep(self.at.other, part.place)
            yield self.code.load_first(part.channels, of, at).to_elements("i32")

    def _write(self, values: Value, parts: Sequence[_ResultVector]) -> None:
        """Stores the first vectors of some that are side by side; those of a pixel are one."""
        size = self.end.result_bytes
        for _, found in itertools.groupby(enumerate(parts), lambda of: of[1].pixel):
            (at, first), *others = found
            for begin, length in power_of_two_runs(
                first.channels + sum(part.channels for _, part in others)
            ):
                some = values.extract(at * self.end.lanes + begin, length)
                self.code.store(some, self.at.out, first.place * size, begin * size)


class _ResultVector(NamedTuple):
    """A vector of results.

    Args:
      pixel: among those of a tile.
      place: of the first one, as a number of the output.
      channels: that there are.
    """

    pixel: int
    place: Value
    channels: int


def _in_lane_order(sums: Value | EvenOdd) -> Value:
    """A vector of sums in order."""
    return sums.even.interleave(sums.odd) if isinstance(sums, EvenOdd) else sums
