"""The format of a file, by its content."""

from __future__ import annotations

import numpy.lib.format

from tosajax.io.schema import IDENTIFIER

_MAGICS = (
    (b"ML\xefR", "MLIR bytecode"),
    (b"VGF1", "VGF"),
    (b"\x03\x02\x23\x07", "SPIR-V"),
    (numpy.lib.format.MAGIC_PREFIX, "a NumPy array"),
    (b"PK\x03\x04", "a ZIP archive"),
)
_MLIR_WORDS = (b"func.func", b"tosa.")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def is_flatbuffer(data: memoryview) -> bool:
    """Whether the bytes are marked as a TOSA flatbuffer, of any version."""
    return data[4:8] == IDENTIFIER


def is_json(data: memoryview) -> bool:
    """Whether the bytes start like a JSON object."""
    start = bytes(data[:4096]).removeprefix(_BYTE_ORDER_MARK).lstrip()
    return start.startswith(b"{")


def describe(data: memoryview) -> str:
    """The likely format of other bytes, for a message."""
    if not data:
        return "an empty file"
    start = bytes(data[:65536])
    for magic, name in _MAGICS:
        if start.startswith(magic):
            return name
    if start[4:8] == b"TFL3":
        return "a TFLite flatbuffer"
    if any(word in start for word in _MLIR_WORDS):
        return "MLIR text"
    return f"an unknown format that starts with {start[:8].hex(' ')}"
