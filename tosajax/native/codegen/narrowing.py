"""Narrows vectors of int32 to one vector of bytes or of int16, whose elements saturate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, element_count, element_type, vector

# (code, one, other) -> a vector of both, whose elements have half the bits and saturate. In each
# part of 128 bits those of one come before those of the other.
Pack = Callable[[IRBuilder, Value, Value], Value]

_PART = 128  # bits


def pack_portably(code: IRBuilder, one: Value, other: Value) -> Value:
    """By instructions of any processor."""
    count, bits = element_count(one.type), int(element_type(one.type)[1:])
    half = 1 << (bits // 2 - 1)
    narrow = vector(f"i{bits // 2}", count)
    values = [v.smax(-half).smin(half - 1).to(narrow) for v in (one, other)]
    of_part = _PART // bits
    starts = range(0, count, of_part)
    return values[0].shuffle(
        values[1],
        [at + i for start in starts for at in (start, count + start) for i in range(of_part)],
    )


def x86_pack(words: str, halves: str) -> Pack:
    """By the intrinsics that pack words, and halves of words."""

    def pack(code: IRBuilder, one: Value, other: Value) -> Value:
        bits = int(element_type(one.type)[1:]) // 2
        of = vector(f"i{bits}", 2 * element_count(one.type))
        return code.call(of, words if bits == 16 else halves, one, other)

    return pack


class Narrowing(NamedTuple):
    """How vectors of int32 become results.

    Args:
      pack: of the instruction set.
      zero_point: is added to each; int32, of the type of results.
      least: of the results, int32.
      largest: of the results, int32.
      wraps: whether sums with the zero point may be beyond int32, and wrap.
    """

    pack: Pack
    zero_point: Value
    least: Value
    largest: Value
    wraps: bool

    def clamp(self, values: Value) -> Value:
        """Adds the zero point and clamps; the results stay int32."""
        zero_point = self.zero_point.splat(element_count(values.type))
        return _clamped(values + zero_point, self.least, self.largest)

    def narrow(self, code: IRBuilder, vectors: Sequence[Value]) -> Value:
        """The results of 4 vectors as bytes, or of 2 as int16, in order."""
        lanes, count = element_count(vectors[0].type), len(vectors)
        is_late = count == 4 and not self.wraps  # Half the additions.
        added = self.zero_point.splat(lanes)
        values = vectors if is_late else [v + added for v in vectors]
        pairs = zip(values[::2], values[1::2], strict=True)
        parts = [self.pack(code, *pair) for pair in pairs]
        if is_late:
            # What saturates before the addition does so behind it.
            name = f"llvm.sadd.sat.v{2 * lanes}i16"
            late = self.zero_point.to("i16").splat(2 * lanes)
            parts = [code.call(part.type, name, part, late) for part in parts]
        whole = parts[0] if count == 2 else self.pack(code, *parts)
        return _clamped(_in_lane_order(whole, lanes, count), self.least, self.largest)


def _clamped(values: Value, least: Value, largest: Value) -> Value:
    """A vector between bounds, which are int32."""
    of, count = element_type(values.type), element_count(values.type)
    least, largest = (bound.to(of).splat(count) for bound in (least, largest))
    return values.smax(least).smin(largest)


def _in_lane_order(values: Value, lanes: int, count: int) -> Value:
    """The elements vector by vector."""
    of_part = _PART // 32
    places = [
        part * of_part * count + number * of_part + at
        for number in range(count)
        for part in range(lanes // of_part)
        for at in range(of_part)
    ]
    return values.shuffle(values, places)
