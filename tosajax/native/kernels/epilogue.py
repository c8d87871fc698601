"""Epilogue: requantize accumulators per channel, clamp and store; or store them as they are.

Accumulators of int8 inputs are int32; accumulators of int16 inputs are int48, as
`requantize.EvenOdd`. A fused addition may follow, which adds other int8 values to the results
before they are stored.

Accumulators of float32 are kept as their bits. Elementwise operators may follow.
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
from tosajax.native.codegen.steps import CHANNEL, ELEMENT, IMAGES, OF_FLOATS, SCALAR
from tosajax.native.kernels.fused_add import AddKey, AddWriter

# Rows of the operand "channels", int32, [rows, channels]; the bias of int48 accumulators has a row
# for its lower 32 bits and one for its upper 32 bits. Multipliers and shifts follow. float32 has
# bits of the bias, and of operands of steps.
BIAS, BIAS_HIGH = range(2)
# Elements of the operand "limits", int32: the value of padding, the zero point of the output, and
# the bounds of results. Of float32, the value of padding, then a number for each padded or scalar
# operand of steps: its channels, or its bits.
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
    """Elementwise operators that follow sums of float32.

    Value 0 is the sums. The operands follow, and the result of each step; the last is stored.

    Args:
      operands: the kind of each, see `codegen.steps`.
      steps: operators of `steps.OF_FLOATS`, and the numbers of the values that each reads.
    """

    operands: tuple[str, ...] = ()
    steps: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def name(self) -> str:
        """Part of a kernel's name."""
        steps = (f"{op.lower()}{'.'.join(map(str, read))}" for op, read in self.steps)
        return "_".join(["float32", *self.operands, *steps])

    @property
    def others(self) -> int:
        """Operands that are inputs of the kernel."""
        return sum(kind in IMAGES for kind in self.operands)


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
    def others(self) -> int:
        """Inputs that the results are combined with."""
        if self.floats is not None:
            return self.floats.others
        return int(self.fused_add is not None)

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
      others: other operands of the fused addition, or of steps.
      scales: operand "scales" of the fused addition, if there is one.
    """

    out: Value
    table: Value
    channels: Value
    limits: Value
    others: Sequence[Value] = ()
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
            _ResultVector(p, v, pixel + p, first + self.channels * p + v * key.lanes, channels)
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
            return list(self._followed(bits, first_vector, places)), self.narrowing
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

    def _followed(
        self, sums: Sequence[Value], first_vector: Value, places: Sequence[_ResultVector]
    ) -> Iterator[Value]:
        """The results of steps, as bits, for sums of float32 in store order."""
        floats_key = self.key.floats
        assert floats_key is not None
        for total, place in zip(sums, places, strict=True):
            values = [floats.of_bits(total), *self._operands(first_vector, place)]
            for op, read in floats_key.steps:
                values.append(OF_FLOATS[op](*(values[number] for number in read)))
            yield floats.to_bits(values[-1]) if floats_key.steps else total

    def _operands(self, first_vector: Value, place: _ResultVector) -> Iterator[Value]:
        """Vectors of the operands of steps, for one vector of results."""
        code, lanes = self.code, self.key.lanes
        assert self.key.floats is not None
        others = iter(self.operands.others)
        rows, numbers = itertools.count(BIAS + 1), itertools.count(FILL + 1)
        for kind in self.key.floats.operands:
            if kind == SCALAR:
                bits = self._number(next(numbers)).splat(lanes)
            elif kind == CHANNEL:
                of_row = code.gep(self.operands.channels, self.padded_channels * (4 * next(rows)))
                index = first_vector + place.vector
                bits = code.load(vector("i32", lanes), of_row, index * (4 * lanes))
            elif kind == ELEMENT:
                bits = self._of_other(next(others), place)
            else:
                channels = self._number(next(numbers)).to("i64")
                bits = self._of_padded(next(others), channels, first_vector, place)
            yield floats.of_bits(bits)

    def _number(self, place: int) -> Value:
        """An element of the operand "limits"."""
        return self.code.load("i32", self.operands.limits, 4 * place)

    def _of_other(self, source: Value, place: _ResultVector) -> Value:
        """A vector of another input of the results' shape, of the results' type."""
        address = self.code.gep(source, place.element * self.key.result_bytes)
        return self.code.load_first(place.channels, vector(self.key.out, self.key.lanes), address)

    def _of_padded(
        self, source: Value, channels: Value, first_vector: Value, place: _ResultVector
    ) -> Value:
        """A vector of an input with fewer channels, which are 0 beyond them."""
        code, lanes = self.code, self.key.lanes
        channel = (first_vector + place.vector) * lanes
        left = (channels - channel).smax(0).smin(lanes)
        # No address beyond the input, also where nothing is read.
        address = code.gep(source, (place.row * channels + channel.smin(channels)) * 4)
        return code.load_masked(vector("i32", lanes), address, left)

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
        """Vectors of the fused addition's other operand, as int32."""
        (other,) = self.operands.others
        for place in places:
            yield self._of_other(other, place).to_elements("i32")

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
      vector: index in the tile.
      row: index of its pixel in the output, i64.
      element: index of its first result in the output, i64.
      channels: results in it; the lanes behind them are not stored.
    """

    pixel: int
    vector: int
    row: Value
    element: Value
    channels: int


def _in_lane_order(sums: Value | EvenOdd) -> Value:
    """Accumulators as one vector, in the order of the lanes."""
    return sums.even.interleave(sums.odd) if isinstance(sums, EvenOdd) else sums
