"""Accumulators of an output tile: SIMD vectors, i8mm 2x2 blocks, or AMX tiles."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tosajax.native.codegen.builder import IRBuilder, Value, vector

if TYPE_CHECKING:
    from tosajax.native.codegen.isa import InstructionSet

_LATENCY = 4  # cycles of a dot-product instruction
_MAX_PIXELS = 16  # of a tile in vectors: each pixel is unrolled


class Tile(NamedTuple):
    """The size of an output tile, which is accumulated in registers.

    Args:
      pixels: rows of the product.
      vectors: vectors of output channels.
    """

    pixels: int
    vectors: int


class PixelLayout(NamedTuple):
    """How the inputs of a tile's pixels lie in memory.

    Args:
      pitch: bytes from one pixel to the next, i64.
      xor_mask: maps int8 to uint8 (x + 128) where the instruction set takes uint8; else None.
    """

    pitch: Value
    xor_mask: Value | None


class Accumulators(abc.ABC):
    """The int32 accumulators of one tile, and the instructions that update them.

    A step consumes `DEPTH` reduction elements of each pixel, and the weights of as many channels
    as vectors have lanes. In packed weights `INNER` consecutive reduction elements of a channel
    lie side by side. None stands for the instruction set's `dot_length`.
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
        """The most pixels of a tile that has so many vectors of channels."""

    @staticmethod
    @abc.abstractmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """Estimated cycles of a step."""

    @staticmethod
    def enter(code: IRBuilder, pixels: int) -> None:
        """Prepares the thread for tiles of so many pixels, once for a work item."""
        del code, pixels

    @staticmethod
    def leave(code: IRBuilder) -> None:
        """Undoes `enter`."""
        del code

    @abc.abstractmethod
    def initialize(self, values: Sequence[Sequence[Value]]) -> None:
        """Sets the accumulators to vectors of int32, by pixel and vector."""

    @abc.abstractmethod
    def step(self, first: Value, offset: Value, weights: Value) -> None:
        """Adds the products of one step.

        Args:
          first: address of the first pixel's segment.
          offset: bytes from there to the step's inputs.
          weights: address of the step's weights.
        """

    @abc.abstractmethod
    def values(self) -> list[list[Value]]:
        """The accumulators as vectors of int32, by pixel and vector."""


class VectorAccumulators(Accumulators):
    """One vector of channels for each pixel; a step splats 4 bytes of the pixel over the lanes."""

    def __init__(
        self, code: IRBuilder, isa: InstructionSet, tile: Tile, pixels: PixelLayout
    ) -> None:
        super().__init__(code, isa, tile, pixels)
        row = range(tile.vectors)
        self.slots = [[code.alloca(self.vector_type) for _ in row] for _ in range(tile.pixels)]

    @staticmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        # The splatted pixel takes a register, and so does the product of `pmaddwd`.
        spare = 2 if isa.element_bytes == 2 else 1
        return min(_MAX_PIXELS, (isa.registers - spare - vectors) // vectors)

    @staticmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """Estimated cycles of a step: two loads or two dot products per cycle.

        A dot product of int16 counts twice, as it adds by a second instruction. No step is shorter
        than the latency, since each accumulator waits for its last update.
        """
        instructions = 2 if isa.element_bytes == 2 else 1
        products = tile.pixels * tile.vectors * instructions
        return max(products / 2, sum(tile) / 2, _LATENCY) + 0.5

    def initialize(self, values: Sequence[Sequence[Value]]) -> None:
        for slots, row in zip(self.slots, values, strict=True):
            for slot, value in zip(slots, row, strict=True):
                self.code.store(value, slot)

    def step(self, first: Value, offset: Value, weights: Value) -> None:
        code, isa, pixels = self.code, self.isa, self.pixels
        size = 4 * isa.lanes
        factors = [code.load(self.vector_type, weights, v * size) for v in range(self.tile.vectors)]
        for p, slots in enumerate(self.slots):
            x = code.load("i32", first, pixels.pitch * p, offset).splat(isa.lanes)
            x = x if pixels.xor_mask is None else x ^ pixels.xor_mask
            for slot, factor in zip(slots, factors, strict=True):
                code.store(isa.step(code, code.load(self.vector_type, slot), x, factor), slot)

    def values(self) -> list[list[Value]]:
        return [[self.code.load(self.vector_type, slot) for slot in slots] for slots in self.slots]


class PairAccumulators(Accumulators):
    """2x2 blocks of Arm's i8mm: two pixels by two channels in a vector of four int32.

    A step consumes 8 int8 of each pixel. A vector of four channels is two blocks. In a tile with an
    odd number of pixels the last pair holds the last pixel twice.
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
        """Adds the products of two pixels and two channels, 8 int8 of each (`smmla`)."""
        return code.call(sums.type, "llvm.aarch64.neon.smmla.v4i32.v16i8", sums, x, weight)

    def initialize(self, values: Sequence[Sequence[Value]]) -> None:
        for (even, odd), by_vector in zip(self.pairs, self.slots, strict=True):
            for v, slots in enumerate(by_vector):
                blocks = _transposed_2x2(values[even][v], values[odd][v])
                for block, slot in zip(blocks, slots, strict=True):
                    self.code.store(block, slot)

    def step(self, first: Value, offset: Value, weights: Value) -> None:
        code = self.code
        bytes_type, row_type = vector("i8", 16), vector("i64", 1)
        factors = [
            [code.load(bytes_type, weights, 32 * v + 16 * half) for half in (0, 1)]
            for v in range(self.tile.vectors)
        ]
        for pair, by_vector in zip(self.pairs, self.slots, strict=True):
            even, odd = (code.load(row_type, first, self.pixels.pitch * p, offset) for p in pair)
            x = even.interleave(odd).bitcast(bytes_type)
            for halves, slots in zip(factors, by_vector, strict=True):
                for factor, slot in zip(halves, slots, strict=True):
                    sums = code.load(self.vector_type, slot)
                    code.store(self.multiply(code, sums, x, factor), slot)

    def values(self) -> list[list[Value]]:
        by_pixel: list[list[Value]] = []
        for (even, odd), by_vector in zip(self.pairs, self.slots, strict=True):
            rows = [
                _transposed_2x2(*(self.code.load(self.vector_type, slot) for slot in slots))
                for slots in by_vector
            ]
            by_pixel += [[row[i] for row in rows] for i in range(1 + (odd > even))]
        return by_pixel


def _transposed_2x2(a: Value, b: Value) -> tuple[Value, Value]:
    """The first halves of two vectors of four elements, and their second halves.

    Turns two pixels of four channels into two 2x2 blocks, and back.
    """
    return a.shuffle(b, [0, 1, 4, 5]), a.shuffle(b, [2, 3, 6, 7])


class TileAccumulators(Accumulators):
    """AMX tiles: 16 pixels by 16 channels, of which a step consumes 64 int8.

    Tiles 0 to 3 are accumulators, by group of 16 pixels and vector of channels; tiles 4 and 5 are
    the pixels of each group, 6 and 7 the weights of each vector.
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
        self.initial: Sequence[Sequence[Value]] = []

    @staticmethod
    def max_pixels(isa: InstructionSet, vectors: int) -> int:
        del isa, vectors
        return 32

    @staticmethod
    def cycles(isa: InstructionSet, tile: Tile) -> float:
        """Estimated cycles of a step: 16 for a tile product, 8 for a tile load of 16 rows."""
        groups = -(-tile.pixels // 16)
        return max(16 * groups * tile.vectors, 8 * (groups + tile.vectors)) + 4

    @staticmethod
    def enter(code: IRBuilder, pixels: int) -> None:
        """Loads the tile configuration (palette 1): bytes of a row, and rows of each tile."""
        settings = [1, 0] + [0] * 14 + [TileAccumulators.ROW, 0] * 8 + [0] * 16
        settings += [*TileAccumulators.tile_rows(pixels), *[0] * 8]
        slot = code.alloca("[64 x i8]")
        for i, value in enumerate(settings):
            code.store(code.value(value, "i8"), slot, i)
        code.call("void", "llvm.x86.ldtilecfg", slot)

    @staticmethod
    def leave(code: IRBuilder) -> None:
        code.call("void", "llvm.x86.tilerelease")

    @staticmethod
    def tile_rows(pixels: int) -> list[int]:
        """The rows of each of the 8 tiles, for output tiles of so many pixels."""
        first, second = min(16, pixels), max(pixels - 16, 1)
        return [first, first, second, second, first, second, 16, 16]

    def zero(self, tile: int) -> None:
        self.code.call("void", "llvm.x86.tilezero", self._tile(tile))

    def load(self, tile: int, address: Value, pitch: Value) -> None:
        self.code.call("void", "llvm.x86.tileloadd64", self._tile(tile), address, pitch)

    def multiply(self, sums: int, x: int, weight: int) -> None:
        """Adds the product of a tile of pixels and a tile of weights; all are tile numbers."""
        self.code.call("void", "llvm.x86.tdpbssd", *map(self._tile, (sums, x, weight)))

    def store(self, tile: int, address: Value) -> None:
        size = self.code.value(self.ROW)
        self.code.call("void", "llvm.x86.tilestored64", self._tile(tile), address, size)

    def _tile(self, number: int) -> Value:
        return self.code.value(number, "i8")

    def initialize(self, values: Sequence[Sequence[Value]]) -> None:
        self.initial = values
        for group in self.groups:
            for v in range(self.tile.vectors):
                self.zero(2 * group + v)

    def step(self, first: Value, offset: Value, weights: Value) -> None:
        code, pitch = self.code, self.pixels.pitch
        for v in range(self.tile.vectors):
            self.load(6 + v, code.gep(weights, v * self.ROWS * self.ROW), code.value(self.ROW))
        for group in self.groups:
            self.load(4 + group, code.gep(first, pitch * (self.ROWS * group), offset), pitch)
            for v in range(self.tile.vectors):
                self.multiply(2 * group + v, 4 + group, 6 + v)

    def values(self) -> list[list[Value]]:
        code = self.code
        slots = {}
        for group in self.groups:
            for v in range(self.tile.vectors):
                slots[group, v] = code.alloca(f"[{self.ROWS * self.ROW} x i8]")
                self.store(2 * group + v, slots[group, v])
        by_pixel = []
        for p, row in enumerate(self.initial):
            group, tile_row = divmod(p, self.ROWS)
            by_pixel.append([
                initial + code.load(self.vector_type, slots[group, v], tile_row * self.ROW)
                for v, initial in enumerate(row)
            ])  # fmt: skip
        return by_pixel
