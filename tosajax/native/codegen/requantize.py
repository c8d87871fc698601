"""RESCALE of sums in registers ("Scaling Helpers" and "RESCALE", TOSA 1.0.1), in exact integers.

A vector of 32-bit sums is two of 64 bits, of its even and of its odd elements. The product with the
multiplier gets half a unit, and 2**63, by which a logical shift becomes an arithmetic one: many
processors have only the former for 64 bits. Where all shifts are 33 or more, as those of most
networks are, the upper words of the products decide, with half a unit of what is left of the shift.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, element_count, vector

_TOP = 1 << 63
CUT = 16  # bits of a product's first shift, at most, where two are made


class ScaleTable(NamedTuple):
    """The columns of a table for channels: all that a vector of channels needs, side by side.

    Args:
      lanes: channels of a vector.
      double_round: whether it rounds twice.
      upper_only: whether all shifts are `UPPER_SHIFT` or more.
    """

    lanes: int
    double_round: bool
    upper_only: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what is held for a channel."""
        if self.upper_only:
            return "multiplier", "neighbour", "half", "shift"
        wide = ("half", "shift", "away") if self.double_round else ("half", "shift")
        return ("multiplier", "less", *(f"{name} {part}" for name in wide for part in _PARTS))

    @property
    def size(self) -> int:
        """Bytes of the rows of a vector of channels."""
        return 4 * self.lanes * len(self.columns)

    def offset(self, name: str) -> int:
        """Where a column begins; all take as many bytes."""
        return 4 * self.lanes * self.columns.index(name)


_PARTS = ("even", "odd")
UPPER_SHIFT = 33  # the least shift of which a product's lower word holds nothing


def write_scale_table(
    code: IRBuilder, scale: ScaleTable, table: Value, multiplier: Value, shift: Value, count: Value
) -> None:
    """Fills the table of `count` channels, a multiple of the lanes; both operands are int32."""
    with code.loop(count) as channel:
        lane = channel % scale.lanes
        rows = code.gep(table, channel // scale.lanes * scale.size)
        factor, amount = (code.load("i32", x, channel * 4) for x in (multiplier, shift))
        code.store(factor, rows, scale.offset("multiplier"), lane * 4)
        write = _write_upper if scale.upper_only else _write_full
        write(code, scale, rows, lane, factor, amount)


def _write_upper(
    code: IRBuilder, scale: ScaleTable, rows: Value, lane: Value, factor: Value, shift: Value
) -> None:
    place = lane * 4
    # Odd multipliers where the even ones are in the first column.
    code.store(factor, rows, scale.offset("neighbour"), place ^ 4)
    code.store(code.value(1, "i32") << (shift - UPPER_SHIFT), rows, scale.offset("half"), place)
    code.store(shift - (UPPER_SHIFT - 1), rows, scale.offset("shift"), place)


def _write_full(
    code: IRBuilder, scale: ScaleTable, rows: Value, lane: Value, factor: Value, shift: Value
) -> None:
    del factor
    wide, one, top = shift.to("i64"), code.value(1), code.value(_TOP)
    code.store(top.lshr(wide).to("i32"), rows, scale.offset("less"), lane * 4)
    # Even elements, then odd ones; each takes a column of 8 bytes for every other lane.
    at = (lane // 2) * 8 + (lane % 2) * (4 * scale.lanes)
    code.store((one << (wide - 1)) + top, rows, scale.offset("half even"), at)
    code.store(wide, rows, scale.offset("shift even"), at)
    if scale.double_round:
        away = (wide > 31).select(1 << 30, 0)
        code.store(away, rows, scale.offset("away even"), at)


class EvenOdd(NamedTuple):
    """A vector of int64 values: those of even lanes, and those of odd ones."""

    even: Value
    odd: Value

    @classmethod
    def from_i32(cls, values: Value) -> EvenOdd:
        """From int32."""
        both = values.bitcast(vector("i64", element_count(values.type) // 2))
        return cls((both << 32) >> 32, both >> 32)

    @classmethod
    def from_words(cls, low: Value, high: Value) -> EvenOdd:
        """From the lower and the upper words."""
        low, high = (v.bitcast(vector("i64", element_count(v.type) // 2)) for v in (low, high))
        word = (1 << 32) - 1
        return cls((low & word) | (high << 32), low.lshr(32) | (high & ~word))

    def plus(self, other: EvenOdd) -> EvenOdd:
        return EvenOdd(self.even + other.even, self.odd + other.odd)

    def times(self, factor: int) -> EvenOdd:
        return EvenOdd(self.even * factor, self.odd * factor)


def apply(code: IRBuilder, scale: ScaleTable, rows: Value, sums: Value | EvenOdd) -> Value:
    """A vector of sums, scaled; int32, before the output's zero point.

    Args:
      code: gets the instructions.
      scale: the columns of the table.
      rows: the address of those of these channels.
      sums: int32; or int48, whose multipliers have 16 bits.
    """
    values = sums if isinstance(sums, EvenOdd) else EvenOdd.from_i32(sums)
    return (_apply_upper if scale.upper_only else _apply_full)(code, scale, rows, values)


def _apply_upper(code: IRBuilder, scale: ScaleTable, rows: Value, values: EvenOdd) -> Value:
    wide, narrow = vector("i64", scale.lanes // 2), vector("i32", scale.lanes)

    def column(name: str) -> Value:
        return code.load(narrow, rows, scale.offset(name))

    parts = []
    for value, name in zip(values, ("multiplier", "neighbour"), strict=True):
        factor = EvenOdd.from_i32(column(name)).even
        product = value * factor
        if scale.double_round:
            product = product + (product < 0).select(code.value(-(1 << 30), wide), 1 << 30)
        parts.append(product.bitcast(narrow))
    # Upper words alone: even ones from the first, odd ones from the second.
    odd = range(1, scale.lanes, 2)
    upper = parts[0].shuffle(parts[1], [i for lane in odd for i in (lane, scale.lanes + lane)])
    return (upper + column("half")) >> column("shift")


def _apply_full(code: IRBuilder, scale: ScaleTable, rows: Value, values: EvenOdd) -> Value:
    wide, narrow = vector("i64", scale.lanes // 2), vector("i32", scale.lanes)
    factors = code.load(narrow, rows, scale.offset("multiplier"))
    parts = []
    for part, value, factor in zip(_PARTS, values, EvenOdd.from_i32(factors), strict=True):
        half, shift = (
            code.load(wide, rows, scale.offset(f"{n} {part}")) for n in ("half", "shift")
        )
        total = value * factor + half
        if scale.double_round:
            away, sign = code.load(wide, rows, scale.offset(f"away {part}")), value >> 63
            total = total + ((away ^ sign) - sign)
        parts.append(total.lshr(shift))
    even, odd = parts
    merged = ((even & 0xFFFFFFFF) | (odd << 32)).bitcast(narrow)
    return merged - code.load(narrow, rows, scale.offset("less"))


class ByteScaleForm(enum.Enum):
    """How values of few bits are scaled; the less a scale needs, the faster it is."""

    MULTIPLE = "whole"  # by a whole number
    ONE_SHIFT = "short"  # by a multiplier and a shift of at most `CUT`
    TWO_SHIFTS = "long"
    TWICE = "twice"  # any scale that rounds twice

    @classmethod
    def for_constant(cls, multiplier: int, shift: int, *, double_round: bool) -> ByteScaleForm:
        """The fastest form of a scale that is known."""
        if shift > CUT:
            return cls.for_unknown(double_round=double_round)
        return cls.ONE_SHIFT if multiplier % (1 << shift) else cls.MULTIPLE

    @classmethod
    def for_unknown(cls, *, double_round: bool) -> ByteScaleForm:
        """The form of scales that are not known."""
        return cls.TWICE if double_round else cls.TWO_SHIFTS


class ByteScale(NamedTuple):
    """A scale of bytes less their zero point, so that words of 32 bits hold all products.

    The multiplier is cut where the shift or 16 bits end; what the upper part gives is not shifted
    by as much. A shift beyond 46 gives 0, as 46 does. Products of the zero point are taken from
    what is added to those of bytes.

    Args:
      form: which of the numbers are used.
      zero_point: of the values.
      high: the upper part of the multiplier.
      low: the lower one.
      cut: the bits of the lower part.
      half: of the first shift; 0 if another follows; less the zero point's lower product.
      rest: the second shift.
      rest_half: half a unit of it, and 0 if it is 0; less the zero point's upper product.
      away: what rounding twice adds to positive values.
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
        """From int64."""
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
        """With all numbers in vectors of int32."""
        form, *numbers = self
        return ByteScale(form, *(v.to("i32").splat(lanes) for v in numbers))

    def apply(self, values: Value) -> Value:
        """A vector of bytes as int32, scaled; what has more than 32 bits wraps."""
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
