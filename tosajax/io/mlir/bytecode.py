"""Converts MLIR bytecode to and from text, with tosa-opt (`pip install "tosajax[reference]"`).

Bytecode stores the properties of operations by position, in the order of the LLVM that wrote it. So
only a program with the dialect can read it, and it may misread bytecode of an older dialect:
`old_bytecode` reads bytecode from before TOSA 1.0.
"""

from __future__ import annotations

import importlib.metadata
import mmap
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tosajax.io.mlir import old_bytecode
from tosajax.io.mlir.loading import loading_tosa
from tosajax.io.programs import limit
from tosajax.report import FormatError, UnsupportedError

_DISTRIBUTION = "tosa-tools"
_PROGRAM = "bin/tosa-opt"
_STREAM, _FILE = "-", "/dev/stdin"  # names of the input: only files are mapped to memory
_PRINT = ("--mlir-print-op-generic", "--mlir-print-debuginfo")
_MAGIC = b"ML\xefR"
_LONGEST_PRODUCER = 256  # bytes
_LONGEST = 300  # characters of an error message about its content
_MLIR = re.compile(r"MLIR([0-9]+)\.")
_OLDEST = 21  # the first LLVM with the dialect of TOSA 1.0
_SECONDS = 60  # time limit, plus one second for each _BYTES_A_SECOND of input
_BYTES_A_SECOND = 1 << 20
_MEMORY = 2 << 30  # memory limit in bytes, which grows with the input
_QUANT = b"quant\0"  # the name of a dialect
# Parts of tosa-opt's messages about unknown dialects, whose types have their own encoding.
_UNKNOWN = ("unregistered dialect", "is unknown", "does not implement the bytecode interface")
_TEXT = "mlir-opt --mlir-print-op-generic of an LLVM with the dialect makes text, which is read"


class Header(NamedTuple):
    """The header of bytecode."""

    version: int
    producer: str  # such as "MLIR23.0.0git"

    @property
    def llvm(self) -> int | None:
        """The major version of the LLVM that wrote it; None if the producer does not state it."""
        match = _MLIR.match(self.producer)
        return None if match is None else int(match[1])


def header(data: bytes) -> Header:
    """Reads the header of bytecode.

    Raises:
      FormatError: the header is invalid.
    """
    if data[:4] != _MAGIC:
        raise FormatError(f"MLIR bytecode starts with {_MAGIC.hex()}, not with {data[:4].hex()}")
    first = data[4] if len(data) > 4 else 0
    # The length of a varint in bytes is one plus the number of trailing zeros of its first byte.
    size = (first & -first).bit_length() if first else 9
    version = int.from_bytes(data[4 : 4 + size], "little") >> min(size, 8)
    start = 4 + size
    end = data.find(b"\0", start, start + _LONGEST_PRODUCER)
    if end < 0:
        raise FormatError("the header of the MLIR bytecode is broken")
    return Header(version, data[start:end].decode("utf-8", "replace"))


def as_text(data: bytes) -> bytes:
    """Converts bytecode to text in the generic form, with locations.

    Raises:
      FormatError: the bytecode is broken, or tosa-opt cannot read it.
      UnsupportedError: the bytecode has an unknown dialect, or is ambiguous.
      ImportError: the dialect is not older than TOSA 1.0, and tosa-tools is not installed.
    """
    head = header(data)
    what = f"bytecode {head.version} by {head.producer!r}"
    if _is_old(head):
        return _old_text(data, head, what)
    # `foreign` refuses operations of other dialects, by name and location, as for text.
    done = _run(_mapped(_with_quant(data, what)), _FILE, *_PRINT, "--allow-unregistered-dialect")
    if done.code == 0:
        return done.output
    message = f"{_version()} does not read {what}: {done.message}"
    if any(word in done.message for word in _UNKNOWN):
        raise UnsupportedError(f"{message}; {_TEXT}")
    raise FormatError(message)


def _with_quant(data: bytes, what: str) -> bytes:
    """Bytecode whose types of the dialect `quant`, if there are any, tosa-opt reads."""
    if _QUANT not in data:
        return data
    try:
        return loading_tosa(data)
    except FormatError as error:
        raise FormatError(f"{what} is broken: {str(error)[:_LONGEST]}") from None


def _mapped(data: bytes) -> bytes:
    """Bytecode with so long a name of its producer that LLVM maps the file to memory.

    The start of a page is aligned as constants need it, which smaller files in memory are not. LLVM
    maps files of four pages, but no whole pages.
    """
    size = 4 * mmap.PAGESIZE
    if (len(data) + size) % mmap.PAGESIZE == 0:
        size += mmap.PAGESIZE // 2
    end = data.index(b"\0", len(_MAGIC) + 1)
    return data[:end] + b" " * size + data[end:]


def _is_old(found: Header) -> bool:
    """Whether the dialect is older than TOSA 1.0, or unknown and tosa-opt is not installed."""
    if found.llvm is not None:
        return found.llvm < _OLDEST
    try:
        program()
    except ImportError:
        return True
    return False


def _old_text(data: bytes, found: Header, what: str) -> bytes:
    """Converts bytecode of a dialect before TOSA 1.0, which tosa-opt cannot read, to text."""
    try:
        return old_bytecode.as_text(data, found.llvm)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{what} cannot be read safely: {str(error)[:_LONGEST]}; mlir-opt "
            "--mlir-print-op-generic of the LLVM that wrote it makes text of it, which is read"
        ) from None
    except FormatError as error:
        raise FormatError(f"{what} is broken: {str(error)[:_LONGEST]}") from None


def of_text(text: str) -> bytes:
    """Converts text to bytecode.

    Raises:
      ValueError: tosa-opt refuses the text.
      ImportError: tosa-tools is not installed.
    """
    done = _run(text.encode(), _STREAM, "--emit-bytecode")
    if done.code:
        raise ValueError(f"{_version()} does not write the graph: {done.message}")
    return done.output


class _Done(NamedTuple):
    code: int
    output: bytes
    message: str


def _run(data: bytes, name: str, *options: str) -> _Done:
    """Runs tosa-opt within limits of time, memory and output; it opens its input by this name."""
    command = [str(program()), name, "--mlir-disable-threading", *options]
    seconds = _SECONDS + len(data) // _BYTES_A_SECOND
    environment = {**os.environ, "TOSA_MODEL_NO_BACKTRACE": "1"}
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(data)
        source.seek(0)
        with subprocess.Popen(
            command, stdin=source, stdout=output, stderr=subprocess.PIPE, env=environment
        ) as process:
            limit(process.pid, len(data), memory=_MEMORY)
            try:
                _, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                return _Done(1, b"", f"it took more than {seconds} seconds")
        output.seek(0)
        return _Done(process.returncode, output.read(), _message(process.returncode, errors))


def _message(code: int, errors: bytes) -> str:
    """The first error that tosa-opt printed, or its exit status."""
    lines = errors.decode("utf-8", "replace").splitlines()
    messages = [line.partition("error: ")[2] for line in lines if "error: " in line]
    ended = f"it ended with signal {-code}" if code < 0 else f"it ended with status {code}"
    return (messages[0] if messages else ended)[:300]


def program() -> Path:
    """The path of tosa-opt.

    Raises:
      ImportError: tosa-tools is not installed.
    """
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if str(file) == _PROGRAM:
            return Path(str(file.locate()))
    raise ImportError("tosa-tools is not installed: pip install 'tosajax[reference]'")


def _version() -> str:
    return f"tosa-opt of {_DISTRIBUTION} {importlib.metadata.version(_DISTRIBUTION)}"
