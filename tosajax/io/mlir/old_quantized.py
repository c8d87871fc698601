"""Quantized types in MLIR bytecode of LLVM until 20 -> the text that MLIR has for them.

Source: the dialect quant in LLVM 17 to 20. Types with scales of blocks came later.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable

from tosajax.io.mlir.octets import Octets
from tosajax.report import UnsupportedError

_SIGNED = 1  # the bit of a type's flags
_STORAGE = re.compile(r"i[1-9][0-9]?")
_EXPRESSED = re.compile(r"b?f[0-9]+")
_ANY, _ANY_OF_FLOATS, _CALIBRATED, _UNIFORM, _BY_CHANNEL = range(1, 6)


def quantized(part: Octets, type_of: Callable[[int], str]) -> str:
    """The text of a type of the dialect quant, `!quant.uniform<i8:f32, 0.5:3>`.

    Args:
      part: its bytes.
      type_of: other types, by their number.

    Raises:
      FormatError: it is broken.
      UnsupportedError: it is of a kind that LLVM 20 does not have.
    """
    kind = part.number()
    if kind == _CALIBRATED:
        expressed = _expressed(part, type_of)
        low, high = _double(part), _double(part)
        text = f"!quant.calibrated<{expressed}<{low}:{high}>>"
    elif kind in (_ANY, _ANY_OF_FLOATS):
        storage = _storage(part, type_of)
        floats = f":{_expressed(part, type_of)}" if kind == _ANY_OF_FLOATS else ""
        text = f"!quant.any<{storage}{_bounds(part)}{floats}>"
    elif kind == _UNIFORM:
        storage, expressed = _storage(part, type_of), _expressed(part, type_of)
        scale = f"{_double(part)}:{part.signed()}"
        text = f"!quant.uniform<{storage}{_bounds(part)}:{expressed}, {scale}>"
    elif kind == _BY_CHANNEL:
        storage, expressed = _storage(part, type_of), _expressed(part, type_of)
        axis, bounds = part.number(), _bounds(part)
        scales = [_double(part) for _ in range(part.count())]
        zero_points = [part.signed() for _ in range(part.count())]
        if len(scales) != len(zero_points):
            part.wrong(f"a type has {len(scales)} scales and {len(zero_points)} zero points")
        pairs = ", ".join(f"{s}:{z}" for s, z in zip(scales, zero_points, strict=True))
        text = f"!quant.uniform<{storage}{bounds}:{expressed}:{axis}, {{{pairs}}}>"
    else:
        raise UnsupportedError(f"type {kind} of the dialect quant is not of LLVM until 20")
    part.check_end()
    return text


def _storage(part: Octets, type_of: Callable[[int], str]) -> str:
    """The integers of a type, as "i8" or "u8": their sign is not in their own type."""
    is_signed, element = part.number() & _SIGNED, type_of(part.number())
    if not _STORAGE.fullmatch(element):
        part.wrong(f"a quantized type is stored as {element[:80]}")
    return element if is_signed else f"u{element[1:]}"


def _expressed(part: Octets, type_of: Callable[[int], str]) -> str:
    element = type_of(part.number())
    if not _EXPRESSED.fullmatch(element):
        part.wrong(f"a quantized type stands for {element[:80]}")
    return element


def _bounds(part: Octets) -> str:
    return f"<{part.signed()}:{part.signed()}>"


def _double(part: Octets) -> str:
    """A float of 64 bits: their number has its sign in the lowest bit."""
    bits = part.signed() & (1 << 64) - 1
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    if not math.isfinite(value):
        part.wrong(f"a scale or a bound is {value}")
    return repr(value)
