"""Detects the format of a file from its content."""

from __future__ import annotations

import re

import numpy.lib.format

from tosajax.io.schema import IDENTIFIER

_ARRAYS = "arrays are inputs of a graph"
_WEIGHTS = "it has weights, and no graph"
_CONVERT = "it has to be converted to TOSA"
# Magic numbers of other formats: offset, bytes, description, and advice.
_MAGICS = (
    (0, numpy.lib.format.MAGIC_PREFIX, "a NumPy array", _ARRAYS),
    (
        *(4, b"ET1", "an ExecuTorch program"),
        "its TOSA is in what the Arm backend writes with dump_intermediate_artifacts_to, and "
        "--scales reads it beside",
    ),
    (0, b"\x89HDF\r\n", "an HDF5 file", _WEIGHTS),
    (4, b'\0\0\0\0{"', "a safetensors file", _WEIGHTS),
    (0, b"\x89PNG", "an image", _ARRAYS),
    (0, b"\xff\xd8\xff", "an image", _ARRAYS),
    (0, b"\x1f\x8b", "a gzip archive", "it has to be unpacked"),
    *((0, bytes([0x80, version]), "a Python pickle", _WEIGHTS) for version in range(2, 6)),
)
# Other formats that are ZIP archives: a member's name, description, and advice.
_ZIPPED = (
    (b".npy", "a NumPy archive", _ARRAYS),
    (b"data.pkl", "a PyTorch file", _WEIGHTS),
    (b"ETRECORD_V0", "an ETRecord of ExecuTorch", "--scales reads it beside the graph"),
    (b"serialized_exported_program.json", "a program of torch.export", _CONVERT),
    (b"models/model.json", "a program of torch.export", _CONVERT),
    (b"model.weights.h5", "a Keras model", _CONVERT),
)
_TFLITE_IDENTIFIER = b"TFL3"
# The first field of an ONNX model is its version of the IR, a small number; the tag of another
# field of a model follows.
_ONNX_START = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42\x72]")
_SPIRV_MAGIC = 0x07230203
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The start of the first line of MLIR text that is not a comment.
_MLIR_START = re.compile(
    rb'module\b|"?(?:func|builtin|tosa)\.\w|[#!][\w$.-]+\s*=|\{-#|%[\w$.-]+(?::[0-9]+)?\s*='
)
_OTHER_TEXT = re.compile(
    rb"#+ |#!|```|<|---|\"\"\"|import |from |\["
)  # Markdown, HTML, Python, TOML
_MLIR_FUNCTION = re.compile(rb'^\s*"?func\.func"?[\s(]', re.MULTILINE)


def is_flatbuffer(data: memoryview) -> bool:
    """Whether the bytes have the file identifier of a TOSA flatbuffer, of any version."""
    return data[4:8] == IDENTIFIER


def is_bytecode(data: memoryview) -> bool:
    """Whether the bytes start with the magic number of MLIR bytecode."""
    return data[:4] == b"ML\xefR"


def is_spirv(data: memoryview) -> bool:
    """Whether the bytes start with the magic number of a SPIR-V module, in either byte order."""
    start = bytes(data[:4])
    return _SPIRV_MAGIC in (int.from_bytes(start, "little"), int.from_bytes(start, "big"))


def is_vgf(data: memoryview) -> bool:
    """Whether the bytes start with the magic number of a VGF file."""
    return data[:4] == b"VGF1"


def is_json(data: memoryview) -> bool:
    """Whether the bytes start like a JSON object."""
    start = _text(data[:4096])
    return start.startswith(b"{") and not start.startswith(b"{-#")


def is_mlir(data: memoryview) -> bool:
    """Whether the bytes start like MLIR text that contains functions or TOSA operations."""
    start = _text(data[:65536])
    if b"\0" in start:
        return False
    first = _first_line(start)
    if _MLIR_START.match(first):
        return True
    return not _OTHER_TEXT.match(first) and _MLIR_FUNCTION.search(start) is not None


def is_tflite(data: memoryview) -> bool:
    """Whether the bytes have the file identifier of a TFLite flatbuffer."""
    return data[4:8] == _TFLITE_IDENTIFIER


def is_onnx(data: memoryview) -> bool:
    """Whether the bytes start like the protobuf of an ONNX model."""
    return _ONNX_START.match(data) is not None


def _first_line(start: bytes) -> bytes:
    """The first line that is neither empty nor an MLIR comment; b"" if there is none."""
    lines = (line.strip() for line in start.splitlines())
    return next((line for line in lines if line and not line.startswith(b"//")), b"")


def _text(start: memoryview) -> bytes:
    return bytes(start).removeprefix(_BYTE_ORDER_MARK).lstrip()


def describe(data: memoryview) -> tuple[str, str]:
    """Describes bytes in an unsupported format, for a message: the likely format, and advice.

    The advice is "" if there is none.
    """
    if not data:
        return "an empty file", ""
    start = bytes(data[:65536])
    for at, magic, name, helps in _MAGICS:
        if start[at:].startswith(magic):
            return name, helps
    if start.startswith(b"PK\x03\x04"):
        kinds = ((name, helps) for word, name, helps in _ZIPPED if word in start)
        return next(kinds, ("a ZIP archive", "it has to be unpacked"))
    line = _first_line(_text(memoryview(start)))[:60]
    if b"\0" not in start and line and line.isascii():
        return f"text, neither JSON nor MLIR, that starts with {line.decode()!r}", ""
    return f"an unknown format that starts with {start[:8].hex(' ')}", ""
