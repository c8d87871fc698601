"""Sums of products: a tile of pixels by vectors of channels, in registers.

The terms of a pixel are some segments, each contiguous: the taps of a row of a window and their
channels. A step reads some bytes of a pixel's terms, and multiplies them by the weights of as many
channels as vectors have lanes; `held` has how. Weights lie in the order in which they are read:
block of channels, segment, step, vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tosajax.native.code import Code, Value, count_of, element_of, vector
from tosajax.native.held import Pixels, Tile
from tosajax.native.isa import InstructionSet
from tosajax.native.requantize import Wide

# What a copy holds of an element.
Form = Callable[[Value], Value]


class Terms(NamedTuple):
    """Where the terms of pixels are.

    Args:
      first: the address of the first pixel's first term.
      pitch: bytes from a pixel to the next.
      segments: their number.
      offsets: the address of an array of int64: where each segment begins, in bytes.
      steps: of a segment.
      raised: turns the bits of pixels over that the instruction set wants raised.
    """

    first: Value
    pitch: Value
    segments: Value
    offsets: Value
    steps: Value
    raised: Value | None


def sums(
    code: Code,
    isa: InstructionSet,
    tile: Tile,
    terms: Terms,
    weights: Value,
    bias: Value | None,
    corrections: Value | None = None,
) -> list[list[Value]]:
    """The sums of a tile, by pixel and vector: int32.

    Args:
      code: gets the instructions.
      isa: of the processor.
      tile: what is summed.
      terms: of the pixels.
      weights: the address of those of these channels.
      bias: the address of int32 for these channels; None for 0.
      corrections: the address of int32 for these pixels.
    """
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    starts = [
        code.value(0, lanes) if bias is None else code.load(lanes, bias, v * size)
        for v in range(tile.vectors)
    ]
    rows = [starts] * tile.pixels
    if corrections is not None:
        own = [code.load("i32", corrections, 4 * p).spread(isa.lanes) for p in range(tile.pixels)]
        rows = [[start + correction for start in starts] for correction in own]
    held = isa.held(code, isa, tile, Pixels(terms.pitch, terms.raised))
    held.begin(rows)
    at = code.room("ptr")
    code.store(weights, at)
    with code.loop(terms.segments) as segment:
        first = code.at(terms.first, code.load("i64", terms.offsets, segment * 8))
        with code.loop(terms.steps * isa.step_bytes, isa.step_bytes) as step:
            here = code.load("ptr", at)
            held.step(first, step, here)
            code.store(code.at(here, tile.vectors * isa.weight_bytes), at)
    return held.values()


class Rounds(NamedTuple):
    """How the terms of int16 are summed in int32.

    Args:
      segments: of a round, whose sums int32 holds: of sets that multiply 16 bits.
      plane: bytes from the upper bytes of terms to the lower ones: of sets that multiply bytes.
    """

    segments: Value
    plane: Value


def wide_sums(
    code: Code,
    isa: InstructionSet,
    tile: Tile,
    terms: Terms,
    weights: Value,
    bias: Sequence[Wide],
    rounds: Rounds,
) -> list[list[Wide]]:
    """The `sums` of a tile of int16, by pixel and vector: int48.

    Args:
      code, isa, tile, terms, weights: as `sums` has them.
      bias: of the vectors of channels.
      rounds: how terms are summed.
    """
    if isa.bytes_of_term == 1:
        upper = sums(code, isa, tile, terms, weights, None)
        of_lower = terms._replace(first=code.at(terms.first, rounds.plane))
        lower = sums(code, isa, tile, of_lower, weights, None)
        return [
            [joined(map(Wide.of, parts)).plus(b) for b, *parts in zip(bias, *both, strict=True)]
            for both in zip(upper, lower, strict=True)
        ]
    half = vector("i64", isa.lanes // 2)
    held = [[Wide(code.room(half), code.room(half)) for _ in bias] for _ in range(tile.pixels)]
    for row in held:
        for room, begin in zip(row, bias, strict=True):
            _store(code, begin, room)
    size = terms.steps * (tile.vectors * isa.weight_bytes)
    with code.loop((terms.segments + rounds.segments - 1) // rounds.segments) as number:
        done = number * rounds.segments
        some = terms._replace(
            segments=rounds.segments.least(terms.segments - done),
            offsets=code.at(terms.offsets, done * 8),
        )
        found = sums(code, isa, tile, some, code.at(weights, done * size), None)
        for row, values in zip(held, found, strict=True):
            for room, value in zip(row, values, strict=True):
                _store(code, _load(code, half, room).plus(Wide.of(value)), room)
    return [[_load(code, half, room) for room in row] for row in held]


def joined(sums: Iterable[Wide]) -> Wide:
    """The sums of the forms of int16: of itself, or of its upper and of its lower bytes."""
    total, *lower = sums
    return total.times(256).plus(*lower) if lower else total


def wide_bias(code: Code, isa: InstructionSet, vectors: int, low: Value, high: Value) -> list[Wide]:
    """The bias of some vectors of channels, from the addresses of its lower and upper words."""
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    words = ([code.load(lanes, at, v * size) for at in (low, high)] for v in range(vectors))
    return [Wide.of_words(*pair) for pair in words]


def _load(code: Code, of: str, rooms: Wide) -> Wide:
    return Wide(*(code.load(of, room) for room in rooms))


def _store(code: Code, value: Wide, rooms: Wide) -> None:
    for part, room in zip(value, rooms, strict=True):
        code.store(part, room)


def forms(isa: InstructionSet, zero_point: Value, *, wide: bool) -> list[Form]:
    """What copies hold of an element; one of int16 is two bytes where a set multiplies those.

    Args:
      isa: of the processor.
      zero_point: of int8, int32.
      wide: whether elements are int16.
    """
    if isa.bytes_of_term == 1:
        if not wide:
            return [lambda x: x ^ isa.raised]
        # Lower bytes have no sign; where sets want one, they lose 128.
        return [
            lambda x: (x >> 8).to_elements("i8") ^ isa.raised,
            lambda x: x.to_elements("i8") ^ (isa.raised ^ 128),
        ]
    if wide:
        return [lambda x: x]

    def less_zero_point(x: Value) -> Value:
        wide = x.to_elements("i16")
        less = zero_point.to("i16")
        return wide - (less.spread(count_of(x.type)) if x.type.startswith("<") else less)

    return [less_zero_point]


def words(code: Code, isa: InstructionSet, terms: Sequence[Value], zero_point: Value) -> Value:
    """The terms of a lane side by side, as steps read them: int32, or int64 of 8 bytes.

    Args:
      code: gets the instructions.
      isa: of the processor; where it multiplies 16 bits, bytes lose the zero point.
      terms: vectors of bytes, or of 16 bits; as many as a lane has or fewer: others are 0.
      zero_point: of bytes, int32.
    """
    lanes, bits = count_of(terms[0].type), int(element_of(terms[0].type)[1:])
    is_less = bits < 8 * isa.bytes_of_term
    zero = zero_point.to("i8").spread(lanes) if is_less else code.value(0, terms[0].type)
    parts = [*terms, *[zero] * (isa.inner - len(terms))]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        bits *= 2
        parts = [one.alternating(other).bits_as(vector(f"i{bits}", lanes)) for one, other in pairs]
    (word,) = parts
    if is_less:
        halves = 2 * lanes
        differences = word.bits_as(vector("i8", halves)).to(vector("i16", halves))
        word = differences - zero_point.to("i16").spread(halves)
    return word.bits_as(vector(f"i{8 * isa.inner * isa.bytes_of_term}", lanes))
