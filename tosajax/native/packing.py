"""Vectors of int32 as one vector of bytes or of int16, whose elements saturate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tosajax.native.code import Code, Value, count_of, element_of, vector

# (code, one, other) -> a vector of both, whose elements have half the bits and saturate. In each
# part of 128 bits those of one come before those of the other.
Pack = Callable[[Code, Value, Value], Value]

_PART = 128  # bits


def plain(code: Code, one: Value, other: Value) -> Value:
    """By instructions of any processor."""
    count, bits = count_of(one.type), int(element_of(one.type)[1:])
    half = 1 << (bits // 2 - 1)
    narrow = vector(f"i{bits // 2}", count)
    values = [v.most(-half).least(half - 1).to(narrow) for v in (one, other)]
    of_part = _PART // bits
    starts = range(0, count, of_part)
    return values[0].mixed(
        values[1],
        [at + i for start in starts for at in (start, count + start) for i in range(of_part)],
    )


def x86(words: str, halves: str) -> Pack:
    """By the intrinsics that pack words, and halves of words."""

    def pack(code: Code, one: Value, other: Value) -> Value:
        bits = int(element_of(one.type)[1:]) // 2
        of = vector(f"i{bits}", 2 * count_of(one.type))
        return code.call(of, words if bits == 16 else halves, one, other)

    return pack


def packed(
    code: Code, pack: Pack, vectors: Sequence[Value], zero_point: Value, *, wraps: bool
) -> Value:
    """One vector of all elements in order, after the zero point is added to each.

    Args:
      code: gets the instructions.
      pack: of the instruction set.
      vectors: of int32; 4, which become bytes, or 2, which become int16.
      zero_point: int32, of the type of results.
      wraps: whether sums with the zero point may be beyond int32, and wrap.
    """
    lanes, count = count_of(vectors[0].type), len(vectors)
    is_late = count == 4 and not wraps  # Half the additions.
    values = vectors if is_late else [v + zero_point.spread(lanes) for v in vectors]
    parts = [pack(code, *pair) for pair in zip(values[::2], values[1::2], strict=True)]
    if is_late:
        # What saturates before the addition does so behind it.
        name, added = f"llvm.sadd.sat.v{2 * lanes}i16", zero_point.to("i16").spread(2 * lanes)
        parts = [code.call(part.type, name, part, added) for part in parts]
    return _in_order(parts[0] if count == 2 else pack(code, *parts), lanes, count)


def _in_order(values: Value, lanes: int, count: int) -> Value:
    """The elements vector by vector."""
    of_part = _PART // 32
    places = [
        part * of_part * count + number * of_part + at
        for number in range(count)
        for part in range(lanes // of_part)
        for at in range(of_part)
    ]
    return values.mixed(values, places)
