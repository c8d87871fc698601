"""Epilogue: requantize accumulators per channel, clamp and store; or store them as they are.

Accumulators of int8 inputs are int32; accumulators of int16 inputs are int48, as
`requantize.EvenOdd`. A fused addition may follow, which adds other int8 values to the results
before they are stored.

Accumulators of float32 are kept as their bits. Other values may be added to them, and CLAMP or a
slope of negative values may follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax.native.codegen import floats, requantize
from tosajax.native.codegen.builder import IRBuilder, Value, power_of_two_runs, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.narrowing import Narrowing
from tosajax.native.codegen.requantize import EvenOdd, ScaleTable
from tosajax.native.kernels.fused_add import AddKey, AddWriter

# Rows of the operand "channels", int32, [rows, channels]; the bias of int48 accumulators has a row
# for its lower 32 bits and one for its upper 32 bits. Multipliers and shifts follow. float32 has
# bits of the bias, and of the slope of negative values.
BIAS, BIAS_HIGH = range(2)
SLOPE = BIAS + 1
# Elements of the operand "limits", int32: the value of padding, the zero point of the output, and
# the bounds of results; as bits of float32, if these are.
FILL, ZERO_POINT, LEAST, LARGEST = range(4)


class FusedAdd(NamedTuple):
    """ADD or SUB of the results and other int8 values.

    Args:
      add: how the sum is computed.
      is_right: whether the results are the right operand.
    """

    add: AddKey
    is_right: bool

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return f"{'right' if self.is_right else 'left'}_of_{self.add.name}"


class FloatEpilogue(NamedTuple):
    """What follows sums of float32.

    Args:
      adds: whether other values are added to them.
      activation: what follows: "clamp", "slope" of negative values, or "" for nothing.
    """

    adds: bool = False
    activation: str = ""

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        return "_".join(
            ["float32", *["added"] * self.adds, *[self.activation] * bool(self.activation)]
        )


class EpilogueKey(NamedTuple):
    """The specialization of an epilogue: all that its machine code depends on.

    Args:
      isa: the instruction set.
      double_round: whether RESCALE rounds twice; None stores accumulators without RESCALE.
      upper_only: whether RESCALE needs the upper words of products only; see `requantize`.
      last_channels: channels of the last vector, 1 to lanes.
      is_int16: whether inputs are int16, and accumulators int48.
      out: IR type of results: "i8" or "i16"; without RESCALE "i32" or "i64".
      fused_add: addition that follows RESCALE, or None.
      floats: what follows sums of float32, whose bits are stored as "i32"; None for integers.
    """

    isa: InstructionSet
    double_round: bool | None
    upper_only: bool
    last_channels: int
    is_int16: bool = False
    out: str = "i32"
    fused_add: FusedAdd | None = None
    floats: FloatEpilogue | None = None

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        if self.floats is not None:
            return f"{self.floats.name}_{self.last_channels}"
        end = {None: "sums", False: "rescaled", True: "rescaled_twice"}[self.double_round]
        ways = ["upper"] * self.upper_only + ["wide"] * self.is_int16
        then = [] if self.fused_add is None else [self.fused_add.name]
        return "_".join([end, *ways, self.out, str(self.last_channels), *then])

    @property
    def lanes(self) -> int:
        """Accumulators of a vector."""
        return self.isa.lanes

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the output."""
        if self.floats is not None:
            return np.dtype(np.float32)
        return np.dtype(f"int{self.out[1:]}")

    @property
    def element(self) -> str:
        """IR type of an element of the input."""
        return f"i{8 * self.input_bytes}"

    @property
    def input_bytes(self) -> int:
        """Bytes of an element of the input."""
        if self.floats is not None:
            return 4
        return 2 if self.is_int16 else 1

    @property
    def has_other(self) -> bool:
        """Whether other values are added to the results."""
        return self.fused_add is not None or (self.floats is not None and self.floats.adds)

    @property
    def result_bytes(self) -> int:
        """Bytes of a result."""
        return self.dtype.itemsize

    @property
    def vectors_per_store(self) -> int:
        """Vectors of accumulators that are narrowed to one vector of results."""
        return 1 if self.double_round is None else 4 // self.result_bytes

    @property
    def scale_rows(self) -> tuple[int, int]:
        """The rows of multipliers and of shifts in the operand "channels"."""
        return (BIAS_HIGH + 1, BIAS_HIGH + 2) if self.is_int16 else (BIAS + 1, BIAS + 2)

    @property
    def scale_table(self) -> ScaleTable:
        """Layout of the table of scales."""
        return ScaleTable(self.lanes, bool(self.double_round), self.upper_only)

    def table_size(self, vectors: int) -> int:
        """Bytes of all tables for so many vectors of channels, a multiple of 64."""
        if self.double_round is None:
            return 0
        return self.add_table_size + -(-vectors * self.scale_table.size // 64) * 64

    @property
    def add_table_size(self) -> int:
        """Bytes of the fused addition's tables, a multiple of 64; they come first."""
        return 0 if self.fused_add is None else -(-self.fused_add.add.table_size // 64) * 64


class EpilogueOperands(NamedTuple):
    """Addresses that an epilogue reads and writes.

    Args:
      out: the output.
      table: tables of scales, filled by the kernel's prologue.
      channels: operand "channels".
      limits: operand "limits".
      other: other operand of the fused addition, if there is one.
      scales: operand "scales" of the fused addition, if there is one.
    """

    out: Value
    table: Value
    channels: Value
    limits: Value
    other: Value | None = None
    scales: Value | None = None

    def add_writer(self, code: IRBuilder, key: EpilogueKey) -> AddWriter | None:
        """The writer of the fused addition, or None."""
        if key.fused_add is None:
            return None
        assert self.scales is not None
        return AddWriter(code, key.isa, key.fused_add.add, self.scales, self.table)


def write_scale_tables(
    code: IRBuilder, key: EpilogueKey, operands: EpilogueOperands, count: Value
) -> None:
    """Fills the tables of scales, for `count` channels: a multiple of the lanes, i64."""
    addition = operands.add_writer(code, key)
    if addition is not None:
        addition.write_tables()
    if key.double_round is not None:
        rows = (code.gep(operands.channels, count * (4 * row)) for row in key.scale_rows)
        multiplier, shift = rows
        table = code.gep(operands.table, key.add_table_size)
        requantize.write_scale_table(code, key.scale_table, table, multiplier, shift, count)


class EpilogueWriter:
    """Writes the code that turns accumulators of tiles into results in memory.

    Args:
      code: gets the instructions.
      key: the specialization.
      operands: addresses that the epilogue reads and writes.
      channels: channels of the output, i64.
      padded_channels: channels of the operand "channels", i64.
    """

    def __init__(
        self,
        code: IRBuilder,
        key: EpilogueKey,
        operands: EpilogueOperands,
        channels: Value,
        padded_channels: Value,
    ) -> None:
        self.code, self.key, self.operands, self.channels = code, key, operands, channels
        self.padded_channels = padded_channels
        self.addition = operands.add_writer(code, key)
        bounds = (code.load("i32", operands.limits, 4 * i) for i in (ZERO_POINT, LEAST, LARGEST))
        self.narrowing = Narrowing(key.isa.pack, *bounds, wraps=not key.upper_only)

    def store(
        self,
        sums: Sequence[Sequence[Value | EvenOdd]],
        pixel: Value,
        first_vector: Value,
        *,
        is_last: bool,
    ) -> None:
        """Computes and stores the results of a tile.

        Args:
          sums: accumulators, by pixel and vector; int32 or int48.
          pixel: index of the tile's first pixel in the output, i64.
          first_vector: index of the tile's first vector of channels, i64.
          is_last: whether the last vector of the tile has `last_channels` channels only.
        """
        code, key, vectors = self.code, self.key, len(sums[0])
        first = pixel * self.channels + first_vector * key.lanes
        places = [
            _ResultVector(p, first + self.channels * p + v * key.lanes, channels)
            for p in range(len(sums))
            for v, channels in enumerate(self._channel_counts(vectors, is_last=is_last))
        ]
        values, narrowing = self._results(sums, first_vector, places)
        count = key.vectors_per_store
        for begin in range(0, len(values), count):
            group = values[begin : begin + count]
            if key.double_round is not None:
                # The last vector is repeated where there are fewer than are narrowed together.
                group = [narrowing.narrow(code, [*group, *group[-1:] * (count - len(group))])]
            self._write(group[0], places[begin : begin + count])

    def _results(
        self,
        sums: Sequence[Sequence[Value | EvenOdd]],
        first_vector: Value,
        places: Sequence[_ResultVector],
    ) -> tuple[list[Value], Narrowing]:
        """Rescaled vectors of the tile, in store order, and the narrowing to apply."""
        flat = [values for by_vector in sums for values in by_vector]
        if self.key.floats is not None:
            bits = list(map(_in_lane_order, flat))
            return self._floats(bits, first_vector, len(sums[0]), places), self.narrowing
        if self.key.double_round is None:
            return list(map(_in_lane_order, flat)), self.narrowing
        indices = [first_vector + v for v in range(len(sums[0]))] * len(sums)
        values = [self._rescaled(*pair) for pair in zip(flat, indices, strict=True)]
        if self.addition is None or self.key.fused_add is None:
            return values, self.narrowing
        results = [self.narrowing.clamp(rescaled) for rescaled in values]
        is_right = self.key.fused_add.is_right
        totals = self.addition.rescaled_sums(results, self._addends(places), is_right=is_right)
        return totals, self.addition.narrowing

    def _floats(
        self,
        sums: Sequence[Value],
        first_vector: Value,
        vectors: int,
        places: Sequence[_ResultVector],
    ) -> list[Value]:
        """The results of sums of float32, both as bits."""
        code, floats_key = self.code, self.key.floats
        assert floats_key is not None
        values = [floats.of_bits(each) for each in sums]
        if floats_key.adds:
            others = map(floats.of_bits, self._addends(places))
            values = [floats.add(code, *pair) for pair in zip(values, others, strict=True)]
        if floats_key.activation == "clamp":
            bounds = self.narrowing.least, self.narrowing.largest
            least, largest = (floats.of_bits(bound.splat(self.key.lanes)) for bound in bounds)
            values = [floats.clamp(code, each, least, largest) for each in values]
        elif floats_key.activation == "slope":
            slopes = [self._slope(first_vector + v) for v in range(vectors)]
            slopes *= len(values) // vectors
            pairs = zip(values, slopes, strict=True)
            values = [floats.scale_negative(code, *pair) for pair in pairs]
        return [floats.to_bits(each) for each in values]

    def _slope(self, index: Value) -> Value:
        """The slope of negative values of vector `index` of the channels."""
        code, lanes = self.code, self.key.lanes
        row = code.gep(self.operands.channels, self.padded_channels * (4 * SLOPE))
        return floats.of_bits(code.load(vector("i32", lanes), row, index * (4 * lanes)))

    def _channel_counts(self, vectors: int, *, is_last: bool) -> list[int]:
        """The channels of each vector of a pixel."""
        lanes = self.key.lanes
        return [lanes] * (vectors - 1) + [self.key.last_channels if is_last else lanes]

    def _rescaled(self, sums: Value | EvenOdd, index: Value) -> Value:
        """Scales a vector of accumulators by the scales of vector `index` of the channels."""
        scale = self.key.scale_table
        block = self.code.gep(self.operands.table, index * scale.size, self.key.add_table_size)
        return requantize.apply(self.code, scale, block, sums)

    def _addends(self, places: Sequence[_ResultVector]) -> Iterator[Value]:
        """Vectors of the fused addition's other operand, as int32; or as bits of float32."""
        assert self.operands.other is not None
        ir_type = vector(self.key.out, self.key.lanes)
        for place in places:
            offset = place.element * self.key.result_bytes
            address = self.code.gep(self.operands.other, offset)
            yield self.code.load_first(place.channels, ir_type, address).to_elements("i32")

    def _write(self, values: Value, places: Sequence[_ResultVector]) -> None:
        """Stores one vector, which has the results of `places` side by side, `lanes` for each.

        Neighbouring vectors of one pixel are stored as one run.
        """
        size = self.key.result_bytes
        for _, of_pixel in itertools.groupby(enumerate(places), lambda pair: pair[1].pixel):
            (number, first), *others = of_pixel
            count = first.channels + sum(place.channels for _, place in others)
            for begin, length in power_of_two_runs(count):
                run = values.extract(number * self.key.lanes + begin, length)
                self.code.store(run, self.operands.out, first.element * size, begin * size)


class _ResultVector(NamedTuple):
    """The destination of a vector of results.

    Args:
      pixel: index in the tile.
      element: index of its first result in the output, i64.
      channels: results in it; the lanes behind them are not stored.
    """

    pixel: int
    element: Value
    channels: int


def _in_lane_order(sums: Value | EvenOdd) -> Value:
    """Accumulators as one vector, in the order of the lanes."""
    return sums.even.interleave(sums.odd) if isinstance(sums, EvenOdd) else sums
