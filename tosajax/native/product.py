"""Sums of products: a tile of pixels by vectors of channels, in registers.

The terms of a pixel are some segments, each contiguous: the taps of a row of a window and their
channels. A step reads 4 bytes of a pixel's terms, spreads them over a vector, and multiplies them
by the weights of as many channels as the vector has lanes. Weights lie in the order in which they
are read: block of channels, segment, step, vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tosajax.native.code import Code, Value, count_of, vector
from tosajax.native.isa import InstructionSet

STEP = 4  # bytes


class Tile(NamedTuple):
    """Sums that are held in registers at a time.

    Args:
      pixels: rows of the product.
      vectors: of channels.
    """

    pixels: int
    vectors: int


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
    bias: Value,
    corrections: Value | None = None,
) -> list[list[Value]]:
    """The sums of a tile, by pixel and vector: int32.

    Args:
      code: gets the instructions.
      isa: of the processor.
      tile: what is summed.
      terms: of the pixels.
      weights: the address of those of these channels.
      bias: the address of int32 for these channels.
      corrections: the address of int32 for these pixels.
    """
    lanes, size = vector("i32", isa.lanes), 4 * isa.lanes
    held = [[code.room(lanes) for _ in range(tile.vectors)] for _ in range(tile.pixels)]
    for v in range(tile.vectors):
        start = code.load(lanes, bias, v * size)
        for p, row in enumerate(held):
            if corrections is None:
                code.store(start, row[v])
            else:
                own = code.load("i32", corrections, 4 * p).spread(isa.lanes)
                code.store(start + own, row[v])
    at = code.room("ptr")
    code.store(weights, at)
    with code.loop(terms.segments) as segment:
        first = code.at(terms.first, code.load("i64", terms.offsets, segment * 8))
        with code.loop(terms.steps * STEP, STEP) as step:
            here = code.load("ptr", at)
            factors = [code.load(lanes, here, v * size) for v in range(tile.vectors)]
            for p, row in enumerate(held):
                x = code.load("i32", first, terms.pitch * p, step).spread(isa.lanes)
                x = x if terms.raised is None else x ^ terms.raised
                for total, factor in zip(row, factors, strict=True):
                    code.store(isa.step(code, code.load(lanes, total), x, factor), total)
            code.store(code.at(here, tile.vectors * size), at)
    return [[code.load(lanes, total) for total in row] for row in held]


def words(code: Code, isa: InstructionSet, terms: Sequence[Value], zero_point: Value) -> Value:
    """The terms of a step side by side, by lane, as steps read them: int32.

    Args:
      code: gets the instructions.
      isa: of the processor; where it multiplies 16 bits, terms lose the zero point.
      terms: vectors of bytes, as many as a step has or fewer: others are 0.
      zero_point: int32.
    """
    lanes, is_wide = count_of(terms[0].type), isa.bytes_of_term == 2
    zero = zero_point.to("i8").spread(lanes) if is_wide else code.value(0, terms[0].type)
    parts = [*terms, *[zero] * (isa.terms - len(terms))]
    bits = 8
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        bits *= 2
        parts = [one.alternating(other).bits_as(vector(f"i{bits}", lanes)) for one, other in pairs]
    (word,) = parts
    if is_wide:
        halves = 2 * lanes
        differences = word.bits_as(vector("i8", halves)).to(vector("i16", halves))
        word = differences - zero_point.to("i16").spread(halves)
    return word.bits_as(vector("i32", lanes))
