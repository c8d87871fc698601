"""Narrows vectors of int32 to one vector of int8 or int16, with saturation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, element_count, element_type, vector

# (code, a, b) -> one vector of the elements of both at half the width, saturated. The order is that
# of x86's packs: in each block of 128 bits, the elements of a come before those of b.
Pack = Callable[[IRBuilder, Value, Value], Value]

_BLOCK = 128  # bits that a pack treats alone


def pack_portably(code: IRBuilder, a: Value, b: Value) -> Value:
    """A `Pack` by instructions of any processor."""
    count, bits = element_count(a.type), int(element_type(a.type)[1:])
    half = 1 << (bits // 2 - 1)
    narrow = vector(f"i{bits // 2}", count)
    values = [v.smax(-half).smin(half - 1).to(narrow) for v in (a, b)]
    per_block = _BLOCK // bits
    starts = range(0, count, per_block)
    return values[0].shuffle(
        values[1],
        [
            first + i
            for start in starts
            for first in (start, count + start)
            for i in range(per_block)
        ],
    )


def x86_pack(packssdw: str, packsswb: str) -> Pack:
    """A `Pack` by two intrinsics: int32 to int16, and int16 to int8."""

    def pack(code: IRBuilder, a: Value, b: Value) -> Value:
        bits = int(element_type(a.type)[1:]) // 2
        ir_type = vector(f"i{bits}", 2 * element_count(a.type))
        return code.call(ir_type, packssdw if bits == 16 else packsswb, a, b)

    return pack


class Narrowing(NamedTuple):
    """Adds an output zero point to vectors of int32, clamps them, and narrows them.

    Args:
      pack: the pack function of the instruction set.
      zero_point: the zero point of the output, i32; within the output's type.
      least: lower bound of results, i32.
      largest: upper bound of results, i32.
      wraps: whether value + zero point may exceed int32, and wraps then.
    """

    pack: Pack
    zero_point: Value
    least: Value
    largest: Value
    wraps: bool

    def clamp(self, values: Value) -> Value:
        """Adds the zero point and clamps; the vector stays int32."""
        zero_point = self.zero_point.splat(element_count(values.type))
        return _clamped(values + zero_point, self.least, self.largest)

    def narrow(self, code: IRBuilder, vectors: Sequence[Value]) -> Value:
        """Turns 4 vectors of int32 into one of int8, or 2 into one of int16, in order."""
        lanes, count = element_count(vectors[0].type), len(vectors)
        # Adding the zero point to packed int16 takes half the additions.
        adds_packed = count == 4 and not self.wraps
        zero_point = self.zero_point.splat(lanes)
        values = vectors if adds_packed else [v + zero_point for v in vectors]
        pairs = zip(values[::2], values[1::2], strict=True)
        packed = [self.pack(code, *pair) for pair in pairs]
        if adds_packed:
            # A value that saturates int16 lies beyond int8 after the addition as well.
            name = f"llvm.sadd.sat.v{2 * lanes}i16"
            zero_points = self.zero_point.to("i16").splat(2 * lanes)
            packed = [code.call(part.type, name, part, zero_points) for part in packed]
        whole = packed[0] if count == 2 else self.pack(code, *packed)
        return _clamped(_in_lane_order(whole, lanes, count), self.least, self.largest)


def _clamped(values: Value, least: Value, largest: Value) -> Value:
    """Clamps a vector of any integer type between two i32."""
    element, count = element_type(values.type), element_count(values.type)
    least, largest = (bound.to(element).splat(count) for bound in (least, largest))
    return values.smax(least).smin(largest)


def _in_lane_order(values: Value, lanes: int, count: int) -> Value:
    """Restores the order of `count` packed vectors of `lanes` elements."""
    per_block = _BLOCK // 32
    indices = [
        block * per_block * count + number * per_block + i
        for number in range(count)
        for block in range(lanes // per_block)
        for i in range(per_block)
    ]
    return values.shuffle(values, indices)
