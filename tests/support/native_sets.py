"""Instruction sets to test: this processor's, and emulations of others.

An emulation replaces a set's dot-product instructions by portable ones, so that the code written
for the set runs on any processor.
"""

from __future__ import annotations

from typing import Any

import pytest

from tosajax.native.codegen import isa
from tosajax.native.codegen.accumulators import Accumulators, PairAccumulators, TileAccumulators
from tosajax.native.codegen.builder import IRBuilder, Value, vector


def _byte_step(*, unsigned: bool) -> isa.Step:
    """A step of 4 products of int8 weights and int8 inputs, or uint8 inputs if `unsigned`."""

    def step(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        del code
        for left in (0, 8, 16, 24):
            shifted = x << left
            byte = shifted.lshr(24) if unsigned else shifted >> 24
            sums = sums + byte * ((weight << left) >> 24)
        return sums

    return step


class _Pairs(PairAccumulators):
    """Emulates `smmla` of Arm's i8mm."""

    @staticmethod
    def multiply(code: IRBuilder, sums: Value, x: Value, weight: Value) -> Value:
        del code
        for term in range(8):
            pixels = x.shuffle(x, [term, term, 8 + term, 8 + term])
            channels = weight.shuffle(weight, [term, 8 + term] * 2)
            sums = sums + pixels.to(sums.type) * channels.to(sums.type)
        return sums


class _Tiles(TileAccumulators):
    """Emulates AMX; the tile configuration is not loaded."""

    def __init__(self, code: IRBuilder, *others: Any) -> None:
        super().__init__(code, *others)
        self._tiles = [code.alloca("[1024 x i8]") for _ in range(8)]
        self._rows = self.tile_rows(self.tile.pixels)

    enter = staticmethod(Accumulators.enter)
    leave = staticmethod(Accumulators.leave)

    def zero(self, tile: int) -> None:
        self._copy(self._tiles[tile], None, 0, self._rows[tile])

    def load(self, tile: int, address: Value, pitch: Value) -> None:
        self._copy(self._tiles[tile], address, pitch, self._rows[tile])

    def store(self, tile: int, address: Value) -> None:
        self._copy(address, self._tiles[tile], self.ROW, self._rows[tile])

    def _copy(self, to: Value, source: Value | None, pitch: Value | int, rows: int) -> None:
        code = self.code
        with code.loop(code.value(rows)) as row:
            values = code.value(0, self.vector_type)
            if source is not None:
                values = code.load(self.vector_type, source, row * pitch)
            code.store(values, to, row * self.ROW)

    def multiply(self, sums: int, x: int, weight: int) -> None:
        code, step = self.code, _byte_step(unsigned=False)
        c, a, b = (self._tiles[tile] for tile in (sums, x, weight))
        with code.loop(code.value(self._rows[x])) as row, code.loop(code.value(16)) as k:
            pixel = code.load("i32", a, row * self.ROW, k * 4).splat(16)
            channels = code.load(vector("i32", 16), b, k * self.ROW)
            code.store(step(code, code.load(self.vector_type, c, row * self.ROW), pixel, channels),
                       c, row * self.ROW)  # fmt: skip


# Level 0: optimizing emulated instructions would take most of these tests' time.
_SIGNED = isa.PORTABLE._replace(
    name="signed-bytes", dot_length=4, step=_byte_step(unsigned=False), int16=isa.PORTABLE, level=0
)
_UNSIGNED = _SIGNED._replace(name="raised-bytes", input_offset=128, step=_byte_step(unsigned=True))
_WIDE = _UNSIGNED._replace(name="wide-bytes", lanes=16)
EMULATED = (
    _SIGNED,
    _UNSIGNED,
    _SIGNED._replace(name="pairs", registers=32, accumulators=_Pairs, base=_SIGNED),
    _WIDE._replace(name="tiles", input_offset=0, accumulators=_Tiles, base=_WIDE),
)
_ALL = (*isa.usable(), *EMULATED)
USABLE = [pytest.param(s, id=s.name) for s in isa.usable()]
SETS = [pytest.param(s, id=s.name) for s in _ALL]
SETS_OF_INT16 = [pytest.param(s, id=s.name) for s in _ALL if s.element_bytes == 2]
