"""The sums of a tile while they grow: in vectors, in pairs of pixels, or in the tiles of AMX."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, vector

if TYPE_CHECKING:
    from tosajax.native.codegen.isa import InstructionSet

_LATENCY = 4  # cycles of a multiplication
_MAX_PIXELS = 16  # of a tile in vectors, each of which is code


class Tile(NamedTuple):
    """Sums that are held in registers at a time.

    Args:
      pixels: rows of the product.
      vectors: of channels.
    """

    pixels: int
    vectors: int


class PixelLayout(NamedTuple):
    """How the pixels of a tile lie in memory.

    Args:
      pitch: bytes from a pixel to the next.
      xor_mask: maps int8 to uint8 (x + 128) where the instruction set takes uint8; else None.
    """

    pitch: Value
    xor_mask: Value | None


class Accumulators(abc.ABC):
    """The sums of a tile.

    A step reads `DEPTH` terms of each pixel, and the weights of as many channels as vectors have
    lanes, with `INNER` terms of a lane side by side. None stands for those that lanes multiply.
    """

    DEPTH: ClassVar[int | None] = None
    INNER: ClassVar[int | None] = None
    MAX_VECTORS: ClassVar[int] = 4

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, tile: Tile, pixels: PixelLayout
    ) -> None:
        self.code, self.isa, self.tile, self.pixels = code, isa, tile, pixels
        self.vector_type = vector("i32", isa.lanes)

    @staticmethod
    @abc.abstractmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        """PixelLayout of a tile that has some vectors of channels."""

    @staticmethod
    @abc.abstractmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """Of a step, roughly."""

    @staticmethod
    def enter(code: IRBuilder, pixels: int) -> None:
        """What a thread does before it sums tiles of so many pixels."""
        del code, pixels

    @staticmethod
    def leave(code: IRBuilder) -> None:
        """What it does then."""
        del code

    @abc.abstractmethod
    def initialize(self, starts: Sequence[Sequence[Value]]) -> None:
        """Sums begin with vectors of int32, by pixel and vector."""

    @abc.abstractmethod
    def step(self, first: Value, at: Value, weights: Value) -> None:
        """Adds a step.

        Args:
          first: the address of the segment, of the first pixel.
          at: bytes from there.
          weights: the address of those of the step.
        """

    @abc.abstractmethod
    def values(self) -> list[list[Value]]:
        """The sums, by pixel and vector."""


class VectorAccumulators(Accumulators):
    """Sums in vectors: a step reads 4 bytes of a pixel, and spreads them over a vector."""

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, tile: Tile, pixels: PixelLayout
    ) -> None:
        super().__init__(code, isa, tile, pixels)
        row = range(tile.vectors)
        self.slots = [[code.alloca(self.vector_type) for _ in row] for _ in range(tile.pixels)]

    @staticmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        spare = 1 if isa.element_bytes == 1 else 2
        return min(_MAX_PIXELS, (isa.registers - spare - vectors) // vectors)

    @staticmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """Two loads, and two multiplications, of which one of 16 bits counts twice.

        It takes as long at least as a sum waits for the one before.
        """
        products = tile.pixels * tile.vectors * isa.element_bytes
        return max(products / 2, sum(tile) / 2, _LATENCY) + 0.5

    def initialize(self, starts: Sequence[Sequence[Value]]) -> None:
        for slots, row in zip(self.slots, starts, strict=True):
            for slot, start in zip(slots, row, strict=True):
                self.code.store(start, slot)

    def step(self, first: Value, at: Value, weights: Value) -> None:
        code, isa, pixels = self.code, self.isa, self.pixels
        size = 4 * isa.lanes
        factors = [code.load(self.vector_type, weights, v * size) for v in range(self.tile.vectors)]
        for p, slots in enumerate(self.slots):
            x = code.load("i32", first, pixels.pitch * p, at).splat(isa.lanes)
            x = x if pixels.xor_mask is None else x ^ pixels.xor_mask
            for slot, factor in zip(slots, factors, strict=True):
                code.store(isa.step(code, code.load(self.vector_type, slot), x, factor), slot)

    def values(self) -> list[list[Value]]:
        return [[self.code.load(self.vector_type, slot) for slot in slots] for slots in self.slots]


class PairAccumulators(Accumulators):
    """Sums of two pixels by two channels in a vector of four, of 8 bytes at a time.

    A vector of channels is two of those; what is beyond the last pixel of an odd number is its own
    again.
    """

    DEPTH: ClassVar[int | None] = 8
    INNER: ClassVar[int | None] = 8

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, tile: Tile, pixels: PixelLayout
    ) -> None:
        super().__init__(code, isa, tile, pixels)
        self.pairs = [(p, min(p + 1, tile.pixels - 1)) for p in range(0, tile.pixels, 2)]
        self.slots = [
            [[code.alloca(self.vector_type) for _ in range(2)] for _ in range(tile.vectors)]
            for _ in self.pairs
        ]

    @staticmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        return min(_MAX_PIXELS, (isa.registers - 2 - 2 * vectors) // vectors)

    @staticmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        del isa
        pairs = -(-tile.pixels // 2)
        return max(pairs * tile.vectors * 2, (tile.pixels + tile.vectors * 2) / 2, _LATENCY) + 0.5

    @staticmethod
    def multiply(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        """Adds the products of two pixels and two channels, of 8 bytes each."""
        return code.call(sums.type, "llvm.aarch64.neon.smmla.v4i32.v16i8", sums, x, weight)

    def initialize(self, starts: Sequence[Sequence[Value]]) -> None:
        for (one, other), by_vector in zip(self.pairs, self.slots, strict=True):
            for v, slots in enumerate(by_vector):
                halves = _transposed_2x2(starts[one][v], starts[other][v])
                for half, slot in zip(halves, slots, strict=True):
                    self.code.store(half, slot)

    def step(self, first: Value, at: Value, weights: Value) -> None:
        code = self.code
        of_bytes, word = vector("i8", 16), vector("i64", 1)
        factors = [
            [code.load(of_bytes, weights, 32 * v + 16 * half) for half in (0, 1)]
            for v in range(self.tile.vectors)
        ]
        for pair, by_vector in zip(self.pairs, self.slots, strict=True):
            one, other = (code.load(word, first, self.pixels.pitch * p, at) for p in pair)
            x = one.interleave(other).bitcast(of_bytes)
            for halves, slots in zip(factors, by_vector, strict=True):
                for factor, slot in zip(halves, slots, strict=True):
                    code.store(
                        self.multiply(code, code.load(self.vector_type, slot), x, factor), slot
                    )

    def values(self) -> list[list[Value]]:
        found: list[list[Value]] = []
        for (one, other), by_vector in zip(self.pairs, self.slots, strict=True):
            rows = [
                _transposed_2x2(*(self.code.load(self.vector_type, r) for r in slots))
                for slots in by_vector
            ]
            found += [[row[i] for row in rows] for i in range(1 + (other > one))]
        return found


def _transposed_2x2(one: Value, other: Value) -> tuple[Value, Value]:
    """The first halves of two vectors of four, and the second ones."""
    return one.shuffle(other, [0, 1, 4, 5]), one.shuffle(other, [2, 3, 6, 7])


class TileAccumulators(Accumulators):
    """Sums in tiles of AMX, of 16 pixels by 16 channels, of 64 bytes at a time.

    Tiles 0 to 3 are sums, by group of pixels and vector; 4 and 5 are pixels, 6 and 7 weights.
    """

    DEPTH: ClassVar[int | None] = 64
    INNER: ClassVar[int | None] = 4
    MAX_VECTORS: ClassVar[int] = 2
    ROWS: ClassVar[int] = 16
    ROW: ClassVar[int] = 64  # bytes

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, tile: Tile, pixels: PixelLayout
    ) -> None:
        super().__init__(code, isa, tile, pixels)
        self.groups = range(-(-tile.pixels // self.ROWS))
        self.starts: Sequence[Sequence[Value]] = []

    @staticmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        del isa, vectors
        return 32

    @staticmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """16 of a multiplication, and some of a load, which has a row in each."""
        groups = -(-tile.pixels // 16)
        return max(16 * groups * tile.vectors, 8 * (groups + tile.vectors)) + 4

    @staticmethod
    def enter(code: IRBuilder, pixels: int) -> None:
        """Says how many rows tiles have, and bytes of a row."""
        settings = [1, 0] + [0] * 14 + [TileAccumulators.ROW, 0] * 8 + [0] * 16
        settings += [*TileAccumulators.tile_rows(pixels), *[0] * 8]
        slot = code.alloca("[64 x i8]")
        for at, value in enumerate(settings):
            code.store(code.value(value, "i8"), slot, at)
        code.call("void", "llvm.x86.ldtilecfg", slot)

    @staticmethod
    def leave(code: IRBuilder) -> None:
        code.call("void", "llvm.x86.tilerelease")

    @staticmethod
    def tile_rows(pixels: int) -> list[int]:
        """Of each tile."""
        first, second = min(16, pixels), max(pixels - 16, 1)
        return [first, first, second, second, first, second, 16, 16]

    def zero(self, tile: int) -> None:
        self.code.call("void", "llvm.x86.tilezero", self._tile(tile))

    def load(self, tile: int, address: Value, pitch: Value) -> None:
        self.code.call("void", "llvm.x86.tileloadd64", self._tile(tile), address, pitch)

    def multiply(self, sums: int, x: int, weight: int) -> None:
        """Adds the products of a tile of pixels and one of weights."""
        self.code.call("void", "llvm.x86.tdpbssd", *map(self._tile, (sums, x, weight)))

    def store(self, tile: int, address: Value) -> None:
        size = self.code.value(self.ROW)
        self.code.call("void", "llvm.x86.tilestored64", self._tile(tile), address, size)

    def _tile(self, number: int) -> Value:
        return self.code.value(number, "i8")

    def initialize(self, starts: Sequence[Sequence[Value]]) -> None:
        self.starts = starts
        for group in self.groups:
            for v in range(self.tile.vectors):
                self.zero(2 * group + v)

    def step(self, first: Value, at: Value, weights: Value) -> None:
        code, pitch = self.code, self.pixels.pitch
        for v in range(self.tile.vectors):
            self.load(6 + v, code.gep(weights, v * self.ROWS * self.ROW), code.value(self.ROW))
        for group in self.groups:
            self.load(4 + group, code.gep(first, pitch * (self.ROWS * group), at), pitch)
            for v in range(self.tile.vectors):
                self.multiply(2 * group + v, 4 + group, 6 + v)

    def values(self) -> list[list[Value]]:
        code = self.code
        slots = {}
        for group in self.groups:
            for v in range(self.tile.vectors):
                slots[group, v] = code.alloca(f"[{self.ROWS * self.ROW} x i8]")
                self.store(2 * group + v, slots[group, v])
        found = []
        for p, row in enumerate(self.starts):
            group, at = divmod(p, self.ROWS)
            found.append([
                start + code.load(self.vector_type, slots[group, v], at * self.ROW)
                for v, start in enumerate(row)
            ])  # fmt: skip
        return found
