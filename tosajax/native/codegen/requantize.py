"""RESCALE of accumulators in registers ("Scaling Helpers" and "RESCALE", TOSA 1.0.1), exact.

A vector of 32-bit accumulators becomes two vectors of 64 bits, of its even and of its odd lanes.
Half a unit is added to the product with the multiplier, and 2**63, which turns an arithmetic shift
into a logical one: many processors have only logical shifts of 64 bits.

Where all shifts are 33 or more, as in most networks, the upper 32 bits of the products suffice; the
rest of the shift rounds them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, element_count, vector

UPPER_SHIFT = 33  # the least shift for which the lower word of a product does not matter
CUT = 16  # bits that the first of two shifts takes, at most
_TOP = 1 << 63
_PARTS = ("even", "odd")


class ScaleTable(NamedTuple):
    """The layout of a table of scales: one block for each vector of channels, cut into columns.

    Args:
      lanes: channels of a block.
      double_round: whether the scale rounds twice.
      upper_only: whether all shifts are `UPPER_SHIFT` or more.
    """

    lanes: int
    double_round: bool
    upper_only: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, each of which holds 4 bytes for a channel."""
        if self.upper_only:
            return "multiplier", "neighbour", "half", "shift"
        wide = ("half", "shift", "away") if self.double_round else ("half", "shift")
        return ("multiplier", "less", *(f"{name} {part}" for name in wide for part in _PARTS))

    @property
    def size(self) -> int:
        """Bytes of a block."""
        return 4 * self.lanes * len(self.columns)

    def offset(self, name: str) -> int:
        """Bytes from the begin of a block to a column."""
        return 4 * self.lanes * self.columns.index(name)


def write_scale_table(
    code: IRBuilder, scale: ScaleTable, table: Value, multiplier: Value, shift: Value, count: Value
) -> None:
    """Fills a table of scales.

    Args:
      code: gets the instructions.
      scale: layout of the table.
      table: address of the table.
      multiplier: address of the channels' multipliers, int32.
      shift: address of the channels' shifts, int32.
      count: channels, a multiple of the lanes.
    """
    with code.loop(count) as channel:
        lane = channel % scale.lanes
        block = code.gep(table, channel // scale.lanes * scale.size)
        factor, amount = (code.load("i32", x, channel * 4) for x in (multiplier, shift))
        code.store(factor, block, scale.offset("multiplier"), lane * 4)
        write = _write_upper if scale.upper_only else _write_full
        write(code, scale, block, lane, factor, amount)


def _write_upper(
    code: IRBuilder, scale: ScaleTable, block: Value, lane: Value, factor: Value, shift: Value
) -> None:
    offset = lane * 4
    # In "neighbour" even and odd lanes are swapped, so that products of odd lanes read even ones.
    code.store(factor, block, scale.offset("neighbour"), offset ^ 4)
    code.store(code.value(1, "i32") << (shift - UPPER_SHIFT), block, scale.offset("half"), offset)
    code.store(shift - (UPPER_SHIFT - 1), block, scale.offset("shift"), offset)


def _write_full(
    code: IRBuilder, scale: ScaleTable, block: Value, lane: Value, factor: Value, shift: Value
) -> None:
    del factor
    wide, one, top = shift.to("i64"), code.value(1), code.value(_TOP)
    code.store(top.lshr(wide).to("i32"), block, scale.offset("less"), lane * 4)
    # A column of 8-byte values for even lanes, then one for odd lanes.
    offset = (lane // 2) * 8 + (lane % 2) * (4 * scale.lanes)
    code.store((one << (wide - 1)) + top, block, scale.offset("half even"), offset)
    code.store(wide, block, scale.offset("shift even"), offset)
    if scale.double_round:
        away = (wide > 31).select(1 << 30, 0)
        code.store(away, block, scale.offset("away even"), offset)


class EvenOdd(NamedTuple):
    """A vector of int64 in two registers: the values of even lanes, and the values of odd lanes."""

    even: Value
    odd: Value

    @classmethod
    def from_i32(cls, values: Value) -> EvenOdd:
        """Sign-extends a vector of int32."""
        both = values.bitcast(vector("i64", element_count(values.type) // 2))
        return cls((both << 32) >> 32, both >> 32)

    @classmethod
    def from_words(cls, low: Value, high: Value) -> EvenOdd:
        """Joins the lower and the upper 32 bits of each value."""
        low, high = (v.bitcast(vector("i64", element_count(v.type) // 2)) for v in (low, high))
        word = (1 << 32) - 1
        return cls((low & word) | (high << 32), low.lshr(32) | (high & ~word))

    def plus(self, other: EvenOdd) -> EvenOdd:
        return EvenOdd(self.even + other.even, self.odd + other.odd)

    def times(self, factor: int) -> EvenOdd:
        return EvenOdd(self.even * factor, self.odd * factor)


def apply(code: IRBuilder, scale: ScaleTable, block: Value, sums: Value | EvenOdd) -> Value:
    """Scales a vector of accumulators to int32; the output zero point is not added.

    Args:
      code: gets the instructions.
      scale: layout of the table of scales.
      block: address of these channels' block in the table.
      sums: int32; or int48, whose multipliers have 16 bits.
    """
    values = sums if isinstance(sums, EvenOdd) else EvenOdd.from_i32(sums)
    return (_apply_upper if scale.upper_only else _apply_full)(code, scale, block, values)


def _apply_upper(code: IRBuilder, scale: ScaleTable, block: Value, values: EvenOdd) -> Value:
    wide, narrow = vector("i64", scale.lanes // 2), vector("i32", scale.lanes)

    def column(name: str) -> Value:
        return code.load(narrow, block, scale.offset(name))

    parts = []
    for value, name in zip(values, ("multiplier", "neighbour"), strict=True):
        factor = EvenOdd.from_i32(column(name)).even
        product = value * factor
        if scale.double_round:
            product = product + (product < 0).select(code.value(-(1 << 30), wide), 1 << 30)
        parts.append(product.bitcast(narrow))
    # The upper words of all products, in the order of the lanes.
    odd = range(1, scale.lanes, 2)
    upper = parts[0].shuffle(parts[1], [i for lane in odd for i in (lane, scale.lanes + lane)])
    return (upper + column("half")) >> column("shift")


def _apply_full(code: IRBuilder, scale: ScaleTable, block: Value, values: EvenOdd) -> Value:
    wide, narrow = vector("i64", scale.lanes // 2), vector("i32", scale.lanes)
    factors = code.load(narrow, block, scale.offset("multiplier"))
    parts = []
    for part, value, factor in zip(_PARTS, values, EvenOdd.from_i32(factors), strict=True):
        half, shift = (
            code.load(wide, block, scale.offset(f"{n} {part}")) for n in ("half", "shift")
        )
        total = value * factor + half
        if scale.double_round:
            away, sign = code.load(wide, block, scale.offset(f"away {part}")), value >> 63
            total = total + ((away ^ sign) - sign)
        parts.append(total.lshr(shift))
    even, odd = parts
    merged = ((even & 0xFFFFFFFF) | (odd << 32)).bitcast(narrow)
    return merged - code.load(narrow, block, scale.offset("less"))


class ByteScaleForm(enum.Enum):
    """How int8 values are scaled to int32 in 32-bit arithmetic, cheapest first."""

    MULTIPLE = "whole"  # multiplier / 2**shift is an integer
    ONE_SHIFT = "short"  # a product, and a shift of at most `CUT` bits
    TWO_SHIFTS = "long"  # any scale that rounds once
    TWICE = "twice"  # any scale that rounds twice

    @classmethod
    def for_constant(cls, multiplier: int, shift: int, *, double_round: bool) -> ByteScaleForm:
        """The cheapest exact form for a constant scale."""
        if shift > CUT:
            return cls.for_unknown(double_round=double_round)
        return cls.ONE_SHIFT if multiplier % (1 << shift) else cls.MULTIPLE

    @classmethod
    def for_unknown(cls, *, double_round: bool) -> ByteScaleForm:
        """The form that is exact for every scale."""
        return cls.TWICE if double_round else cls.TWO_SHIFTS


class ByteScale(NamedTuple):
    """Scales int8 values less a zero point to int32, in 32-bit arithmetic.

    The multiplier is split at bit min(shift, `CUT`), so that no product exceeds 32 bits; the
    product of the upper part is shifted by the rest of the shift. Shifts beyond 46 give 0, as 46
    does. The products with the zero point are folded into the rounding constants.

    Args:
      form: which of the numbers below are used.
      zero_point: the zero point of the values.
      high: upper part of the multiplier.
      low: lower part of the multiplier.
      cut: bits of the lower part, by which its product is shifted.
      half: half a unit of the first shift, or 0 if a second one follows; less zero_point * low.
      rest: bits of the second shift.
      rest_half: half a unit of the second shift, or 0 if that is 0; less zero_point * high.
      away: added to values >= 0, and subtracted from others, by rounding twice.
    """

    form: ByteScaleForm
    zero_point: Value
    high: Value
    low: Value
    cut: Value
    half: Value
    rest: Value
    rest_half: Value
    away: Value

    @classmethod
    def from_i64(
        cls,
        code: IRBuilder,
        form: ByteScaleForm,
        zero_point: Value,
        multiplier: Value,
        shift: Value,
    ) -> ByteScale:
        """Derives the numbers from a scale in i64; they are i64 as well."""
        one, least = code.value(1), shift.smin(46)
        cut = least.smin(CUT)
        rest = least - cut
        two = rest > 0
        high, low = multiplier >> cut, multiplier & ((one << cut) - 1)
        return cls(
            form,
            zero_point,
            high,
            low,
            cut,
            two.select(0, one << (cut - 1)) - zero_point * low,
            rest,
            two.select((one << rest) >> 1, 0) - zero_point * high,
            (shift > 31).select(1 << (30 - CUT), 0),
        )

    def splat(self, lanes: int) -> ByteScale:
        """The same scale with all numbers as vectors of int32."""
        form, *numbers = self
        return ByteScale(form, *(v.to("i32").splat(lanes) for v in numbers))

    def apply(self, values: Value) -> Value:
        """Scales a vector of int32 that holds int8 values; results beyond 32 bits wrap."""
        total = values * self.high + self.rest_half
        if self.form is ByteScaleForm.MULTIPLE:
            return total
        total = total + ((values * self.low + self.half) >> self.cut)
        if self.form is ByteScaleForm.ONE_SHIFT:
            return total
        if self.form is ByteScaleForm.TWICE:
            sign = (values - self.zero_point) >> 31
            total = total + ((self.away ^ sign) - sign)
        return total >> self.rest
