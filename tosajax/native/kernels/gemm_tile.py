"""The inner kernel of a GEMM: one output tile of pixels by vectors of channels, in registers.

The reduction elements of a pixel lie in segments, each contiguous in memory: for a convolution, a
row of the window with its taps and channels. A step reads some bytes of each pixel, and multiplies
them by the weights of as many channels as vectors have lanes (see `codegen.accumulators`).
Weights are packed in the order in which they are read: block of channels, segment, step, vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tosajax.native.codegen.accumulators import PixelLayout, Tile
from tosajax.native.codegen.builder import IRBuilder, Value, element_count, element_type, vector
from tosajax.native.codegen.isa import InstructionSet
from tosajax.native.codegen.requantize import EvenOdd

# Converts a loaded element, or a vector of elements, before it is written to the staging copy.
StagingConversion = Callable[[Value], Value]


class ReductionLayout(NamedTuple):
    """The memory layout of the reduction elements of a tile's pixels.

    Args:
      first: address of the first pixel's first element.
      pitch: bytes from one pixel to the next, i64.
      segments: number of segments, i64.
      offsets: address of an array of int64: bytes from a pixel to each of its segments.
      steps: steps of a segment, i64.
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
    reduction: ReductionLayout,
    weights: Value,
    bias: Value | None,
    corrections: Value | None = None,
) -> list[list[Value]]:
    """Computes the accumulators of a tile: vectors of int32, by pixel and vector.

    Args:
      code: gets the instructions.
      isa: the instruction set.
      tile: size of the tile.
      reduction: the pixels.
      weights: address of the packed weights of these channels.
      bias: address of these channels' bias, int32; None for 0.
      corrections: address of int32 values that are added by pixel; None for 0.
    """
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    biases = [
        code.value(0, lanes) if bias is None else code.load(lanes, bias, v * size)
        for v in range(tile.vectors)
    ]
    initial = [biases] * tile.pixels
    if corrections is not None:
        splats = [code.load("i32", corrections, 4 * p).splat(isa.lanes) for p in range(tile.pixels)]
        initial = [[each + correction for each in biases] for correction in splats]
    layout = PixelLayout(reduction.pitch, reduction.xor_mask)
    accumulators = isa.accumulators(code, isa, tile, layout)
    accumulators.initialize(initial)
    cursor = code.alloca("ptr")
    code.store(weights, cursor)
    with code.loop(reduction.segments) as segment:
        first = code.gep(reduction.first, code.load("i64", reduction.offsets, segment * 8))
        with code.loop(reduction.steps * isa.step_bytes, isa.step_bytes) as offset:
            step_weights = code.load("ptr", cursor)
            accumulators.step(first, offset, step_weights)
            code.store(code.gep(step_weights, tile.vectors * isa.weight_bytes), cursor)
    return accumulators.values()


class Int16Split(NamedTuple):
    """How a reduction of int16 inputs is split, so that int32 accumulators hold each part.

    Args:
      segments: segments whose sum int32 holds, i64; for sets that multiply 16 bits.
      plane: bytes from the inputs' upper bytes to their lower bytes, i64; for sets that multiply
        8 bits.
    """

    segments: Value
    plane: Value


def accumulate_int16(
    code: IRBuilder,
    isa: InstructionSet,
    tile: Tile,
    reduction: ReductionLayout,
    weights: Value,
    bias: Sequence[EvenOdd],
    split: Int16Split,
) -> list[list[EvenOdd]]:
    """Computes the accumulators of a tile of int16 inputs: int48, by pixel and vector.

    Args:
      code, isa, tile, reduction, weights: see `accumulate`.
      bias: the bias of each vector of channels.
      split: parts of the reduction.
    """
    if isa.element_bytes == 1:
        return _accumulate_planes(code, isa, tile, reduction, weights, bias, split.plane)
    half = vector("i64", isa.lanes // 2)
    totals = [
        [EvenOdd(code.alloca(half), code.alloca(half)) for _ in bias] for _ in range(tile.pixels)
    ]
    for row in totals:
        for slots, value in zip(row, bias, strict=True):
            _store(code, value, slots)
    size = reduction.steps * (tile.vectors * isa.weight_bytes)
    with code.loop((reduction.segments + split.segments - 1) // split.segments) as number:
        done = number * split.segments
        part = reduction._replace(
            segments=split.segments.smin(reduction.segments - done),
            offsets=code.gep(reduction.offsets, done * 8),
        )
        sums = accumulate(code, isa, tile, part, code.gep(weights, done * size), None)
        for row, values in zip(totals, sums, strict=True):
            for slots, value in zip(row, values, strict=True):
                _store(code, _load(code, half, slots).plus(EvenOdd.from_i32(value)), slots)
    return [[_load(code, half, slots) for slots in row] for row in totals]


def _accumulate_planes(
    code: IRBuilder,
    isa: InstructionSet,
    tile: Tile,
    reduction: ReductionLayout,
    weights: Value,
    bias: Sequence[EvenOdd],
    plane: Value,
) -> list[list[EvenOdd]]:
    """`accumulate_int16` by sets that multiply 8 bits: upper and lower bytes apart."""
    upper = accumulate(code, isa, tile, reduction, weights, None)
    lower_bytes = reduction._replace(first=code.gep(reduction.first, plane))
    lower = accumulate(code, isa, tile, lower_bytes, weights, None)
    return [
        [
            join_bytes(map(EvenOdd.from_i32, parts)).plus(b)
            for b, *parts in zip(bias, *planes, strict=True)
        ]
        for planes in zip(upper, lower, strict=True)
    ]


def join_bytes(sums: Iterable[EvenOdd]) -> EvenOdd:
    """Sums of int16 inputs, from the sums of their upper and their lower bytes.

    Args:
      sums: the sums of both bytes, upper ones first; or of whole int16 alone, which are returned.
    """
    total, *lower = sums
    return total.times(256).plus(*lower) if lower else total


def load_int48_bias(
    code: IRBuilder, isa: InstructionSet, vectors: int, low: Value, high: Value
) -> list[EvenOdd]:
    """Loads the int48 bias of some vectors of channels.

    Args:
      code: gets the instructions.
      isa: the instruction set.
      vectors: vectors of channels.
      low: address of the lower 32 bits.
      high: address of the upper 32 bits.
    """
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    words = ([code.load(lanes, word, v * size) for word in (low, high)] for v in range(vectors))
    return [EvenOdd.from_words(*pair) for pair in words]


def _load(code: IRBuilder, ir_type: str, slots: EvenOdd) -> EvenOdd:
    return EvenOdd(*(code.load(ir_type, slot) for slot in slots))


def _store(code: IRBuilder, value: EvenOdd, slots: EvenOdd) -> None:
    for part, slot in zip(value, slots, strict=True):
        code.store(part, slot)


def staging_conversions(
    isa: InstructionSet, zero_point: Value, *, is_int16: bool
) -> list[StagingConversion]:
    """The conversions of an input element, one for each plane of the staging copy.

    There are two planes for int16 inputs of a set that multiplies 8 bits: the upper bytes, and the
    lower bytes.

    Args:
      isa: the instruction set.
      zero_point: the zero point of int8 inputs, i32; sets that multiply 16 bits subtract it here.
      is_int16: whether inputs are int16.
    """
    if isa.is_float:
        return [lambda x: x]
    if isa.element_bytes == 1:
        if not is_int16:
            return [lambda x: x ^ isa.input_offset]
        # Lower bytes are unsigned; for instructions that take int8, 128 is subtracted.
        return [
            lambda x: (x >> 8).to_elements("i8") ^ isa.input_offset,
            lambda x: x.to_elements("i8") ^ (isa.input_offset ^ 128),
        ]
    if is_int16:
        return [lambda x: x]

    def less_zero_point(x: Value) -> Value:
        wide = x.to_elements("i16")
        less = zero_point.to("i16")
        return wide - (less.splat(element_count(x.type)) if x.type.startswith("<") else less)

    return [less_zero_point]


def pack_words(
    code: IRBuilder, isa: InstructionSet, rows: Sequence[Value], zero_point: Value
) -> Value:
    """Interleaves rows of a matrix, so that each lane has `isa.inner` elements of its column.

    Args:
      code: gets the instructions.
      isa: the instruction set; if it multiplies 16 bits, int8 is widened less its zero point.
      rows: at most `isa.inner` vectors of int8 or int16, a column in each lane; missing rows
        count as zeros.
      zero_point: the zero point of int8, i32.

    Returns:
      A vector of i32; or of i64, where a lane has 8 bytes.
    """
    lanes, bits = element_count(rows[0].type), int(element_type(rows[0].type)[1:])
    widens = bits < 8 * isa.element_bytes
    zero = zero_point.to("i8").splat(lanes) if widens else code.value(0, rows[0].type)
    parts = [*rows, *[zero] * (isa.inner - len(rows))]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        bits *= 2
        parts = [even.interleave(odd).bitcast(vector(f"i{bits}", lanes)) for even, odd in pairs]
    (word,) = parts
    if widens:
        halves = 2 * lanes
        differences = word.bitcast(vector("i8", halves)).to(vector("i16", halves))
        word = differences - zero_point.to("i16").splat(halves)
    return word.bitcast(vector(f"i{8 * isa.inner * isa.element_bytes}", lanes))
