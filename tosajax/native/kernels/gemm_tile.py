"""Sums of products: a tile of pixels by vectors of channels, in registers.

The terms of a pixel are some segments, each contiguous: the taps of a row of a window and their
channels. A step reads some bytes of a pixel's terms, and multiplies them by the weights of as many
channels as vectors have lanes; `held` has how. Weights lie in the order in which they are read:
block of channels, segment, step, vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.accumulators import PixelLayout, Tile
from tosajax.native.codegen.builder import IRBuilder, Value, element_count, element_type, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import EvenOdd

# What a copy holds of an element.
StagingConversion = Callable[[Value], Value]


class ReductionLayout(NamedTuple):
    """Where the terms of pixels are.

    Args:
      first: the address of the first pixel's first term.
      pitch: bytes from a pixel to the next.
      segments: their number.
      offsets: the address of an array of int64: where each segment begins, in bytes.
      steps: of a segment.
      xor_mask: maps int8 to uint8 (x + 128) where the instruction set takes uint8; else None.
    """

    first: Value
    pitch: Value
    segments: Value
    offsets: Value
    steps: Value
    xor_mask: Value | None


def accumulate(
    code: IRBuilder,
    isa: InstructionSet,
    tile: Tile,
    terms: ReductionLayout,
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
        own = [code.load("i32", corrections, 4 * p).splat(isa.lanes) for p in range(tile.pixels)]
        rows = [[start + correction for start in starts] for correction in own]
    held = isa.accumulators(code, isa, tile, PixelLayout(terms.pitch, terms.xor_mask))
    held.initialize(rows)
    at = code.alloca("ptr")
    code.store(weights, at)
    with code.loop(terms.segments) as segment:
        first = code.gep(terms.first, code.load("i64", terms.offsets, segment * 8))
        with code.loop(terms.steps * isa.step_bytes, isa.step_bytes) as step:
            here = code.load("ptr", at)
            held.step(first, step, here)
            code.store(code.gep(here, tile.vectors * isa.weight_bytes), at)
    return held.values()


class Int16Split(NamedTuple):
    """How the terms of int16 are summed in int32.

    Args:
      segments: of a round, whose sums int32 holds: of sets that multiply 16 bits.
      plane: bytes from the upper bytes of terms to the lower ones: of sets that multiply bytes.
    """

    segments: Value
    plane: Value


def accumulate_int16(
    code: IRBuilder,
    isa: InstructionSet,
    tile: Tile,
    terms: ReductionLayout,
    weights: Value,
    bias: Sequence[EvenOdd],
    rounds: Int16Split,
) -> list[list[EvenOdd]]:
    """The `sums` of a tile of int16, by pixel and vector: int48.

    Args:
      code, isa, tile, terms, weights: as `sums` has them.
      bias: of the vectors of channels.
      rounds: how terms are summed.
    """
    if isa.element_bytes == 1:
        upper = accumulate(code, isa, tile, terms, weights, None)
        of_lower = terms._replace(first=code.gep(terms.first, rounds.plane))
        lower = accumulate(code, isa, tile, of_lower, weights, None)
        return [
            [
                join_bytes(map(EvenOdd.from_i32, parts)).plus(b)
                for b, *parts in zip(bias, *both, strict=True)
            ]
            for both in zip(upper, lower, strict=True)
        ]
    half = vector("i64", isa.lanes // 2)
    held = [
        [EvenOdd(code.alloca(half), code.alloca(half)) for _ in bias] for _ in range(tile.pixels)
    ]
    for row in held:
        for slot, begin in zip(row, bias, strict=True):
            _store(code, begin, slot)
    size = terms.steps * (tile.vectors * isa.weight_bytes)
    with code.loop((terms.segments + rounds.segments - 1) // rounds.segments) as number:
        done = number * rounds.segments
        some = terms._replace(
            segments=rounds.segments.smin(terms.segments - done),
            offsets=code.gep(terms.offsets, done * 8),
        )
        found = accumulate(code, isa, tile, some, code.gep(weights, done * size), None)
        for row, values in zip(held, found, strict=True):
            for slot, value in zip(row, values, strict=True):
                _store(code, _load(code, half, slot).plus(EvenOdd.from_i32(value)), slot)
    return [[_load(code, half, slot) for slot in row] for row in held]


def join_bytes(sums: Iterable[EvenOdd]) -> EvenOdd:
    """The sums of the forms of int16: of itself, or of its upper and of its lower bytes."""
    total, *lower = sums
    return total.times(256).plus(*lower) if lower else total


def load_int48_bias(
    code: IRBuilder, isa: InstructionSet, vectors: int, low: Value, high: Value
) -> list[EvenOdd]:
    """The bias of some vectors of channels, from the addresses of its lower and upper words."""
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    words = ([code.load(lanes, at, v * size) for at in (low, high)] for v in range(vectors))
    return [EvenOdd.from_words(*pair) for pair in words]


def _load(code: IRBuilder, of: str, slots: EvenOdd) -> EvenOdd:
    return EvenOdd(*(code.load(of, slot) for slot in slots))


def _store(code: IRBuilder, value: EvenOdd, slots: EvenOdd) -> None:
    for part, slot in zip(value, slots, strict=True):
        code.store(part, slot)


def staging_conversions(
    isa: InstructionSet, zero_point: Value, *, wide: bool
) -> list[StagingConversion]:
    """What copies hold of an element; one of int16 is two bytes where a set multiplies those.

    Args:
      isa: of the processor.
      zero_point: of int8, int32.
      wide: whether elements are int16.
    """
    if isa.element_bytes == 1:
        if not wide:
            return [lambda x: x ^ isa.input_offset]
        # Lower bytes have no sign; where sets want one, they lose 128.
        return [
            lambda x: (x >> 8).to_elements("i8") ^ isa.input_offset,
            lambda x: x.to_elements("i8") ^ (isa.input_offset ^ 128),
        ]
    if wide:
        return [lambda x: x]

    def less_zero_point(x: Value) -> Value:
        wide = x.to_elements("i16")
        less = zero_point.to("i16")
        return wide - (less.splat(element_count(x.type)) if x.type.startswith("<") else less)

    return [less_zero_point]


def pack_words(
    code: IRBuilder, isa: InstructionSet, terms: Sequence[Value], zero_point: Value
) -> Value:
    """The terms of a lane side by side, as steps read them: int32, or int64 of 8 bytes.

    Args:
      code: gets the instructions.
      isa: of the processor; where it multiplies 16 bits, bytes lose the zero point.
      terms: vectors of bytes, or of 16 bits; as many as a lane has or fewer: others are 0.
      zero_point: of bytes, int32.
    """
    lanes, bits = element_count(terms[0].type), int(element_type(terms[0].type)[1:])
    is_less = bits < 8 * isa.element_bytes
    zero = zero_point.to("i8").splat(lanes) if is_less else code.value(0, terms[0].type)
    parts = [*terms, *[zero] * (isa.inner - len(terms))]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        bits *= 2
        parts = [one.interleave(other).bitcast(vector(f"i{bits}", lanes)) for one, other in pairs]
    (word,) = parts
    if is_less:
        halves = 2 * lanes
        differences = word.bitcast(vector("i8", halves)).to(vector("i16", halves))
        word = differences - zero_point.to("i16").splat(halves)
    return word.bitcast(vector(f"i{8 * isa.inner * isa.element_bytes}", lanes))
