"""The format of a file, by its content."""

from __future__ import annotations

import numpy.lib.format

from tosajax.io.schema import IDENTIFIER

_MAGICS = (
    (numpy.lib.format.MAGIC_PREFIX, "a NumPy array"),
    (b"PK\x03\x04", "a ZIP archive"),
)
_SPIRV_MAGIC = 0x07230203
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What the first line of MLIR text that is not a comment begins with.
_MLIR_STARTS = (b"module", b"func.", b"builtin.", b'"builtin.', b'"func.', b"#", b"!", b"{-#")
_MLIR_WORDS = (b"func.func", b"tosa.")


def is_flatbuffer(data: memoryview) -> bool:
    """Whether the bytes are marked as a TOSA flatbuffer, of any version."""
    return data[4:8] == IDENTIFIER


def is_bytecode(data: memoryview) -> bool:
    """Whether the bytes are marked as MLIR bytecode."""
    return data[:4] == b"ML\xefR"


def is_spirv(data: memoryview) -> bool:
    """Whether the bytes start like a SPIR-V module, of either byte order."""
    start = bytes(data[:4])
    return _SPIRV_MAGIC in (int.from_bytes(start, "little"), int.from_bytes(start, "big"))


def is_vgf(data: memoryview) -> bool:
    """Whether the bytes are marked as a VGF file."""
    return data[:4] == b"VGF1"


def is_json(data: memoryview) -> bool:
    """Whether the bytes start like a JSON object."""
    start = _text(data[:4096])
    return start.startswith(b"{") and not start.startswith(b"{-#")


def is_mlir(data: memoryview) -> bool:
    """Whether the bytes start like MLIR text with TOSA in it."""
    start = _text(data[:65536])
    if b"\0" in start:
        return False
    if any(word in start for word in _MLIR_WORDS):
        return True
    lines = (line.strip() for line in start.splitlines())
    first = next((line for line in lines if line and not line.startswith(b"//")), b"")
    return first.startswith(_MLIR_STARTS)


def _text(start: memoryview) -> bytes:
    return bytes(start).removeprefix(_BYTE_ORDER_MARK).lstrip()


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
    return f"an unknown format that starts with {start[:8].hex(' ')}"
