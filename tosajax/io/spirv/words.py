"""Decodes and encodes the words of a module.

A module is a header of five words, then instructions. The first word of an instruction has its
length and its opcode. Words may have either byte order; strings start at a word's lowest byte in
both.
Source: "SPIR-V Specification" 1.6, "Binary Form".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tosajax.io.spirv.grammar import MAGIC, Op
from tosajax.report import FormatError, UnsupportedError

_HEADER = 5
_LONGEST = 0xFFFF  # words of an instruction, at most
_NEWEST = (1, 6)
_SHOWN = 60  # characters of a string in a message


class Header(NamedTuple):
    """The header of a module.

    Args:
      version: major and minor version.
      tool: the registered number of the tool that wrote the module.
      tool_version: the tool's version number.
      bound: the exclusive upper bound of ids.
    """

    version: tuple[int, int]
    tool: int
    tool_version: int
    bound: int


class Instruction(NamedTuple):
    """One instruction, and the index of its first word."""

    opcode: int
    operands: tuple[int, ...]
    at: int

    @property
    def name(self) -> str:
        is_named = self.opcode in Op._value2member_map_
        return Op(self.opcode).name if is_named else f"instruction {self.opcode}"

    def __str__(self) -> str:
        return f"{self.name} at word {self.at}"

    def exactly(self, count: int) -> tuple[int, ...]:
        """The operands, which must be `count`.

        Raises:
          FormatError: their number differs.
        """
        if len(self.operands) != count:
            raise FormatError(f"{len(self.operands)} operands, expected {count}")
        return self.operands

    def first(self, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first `count` operands, and the rest.

        Raises:
          FormatError: there are fewer than `count`.
        """
        if len(self.operands) < count:
            raise FormatError(f"{len(self.operands)} operands, expected at least {count}")
        return self.operands[:count], self.operands[count:]


def read_words(data: memoryview | bytes) -> tuple[Header, np.ndarray]:
    """Reads the header of a module.

    Returns:
      The header, and all words of the module, including the header's.

    Raises:
      FormatError: the bytes are not a module.
      UnsupportedError: the version is unknown.
    """
    if len(data) % 4 or len(data) < 4 * _HEADER:
        raise FormatError(f"the module has {len(data)} bytes, expected a multiple of 4 from 20 on")
    words = np.frombuffer(data, "<u4")
    if words[0] != MAGIC:
        words = words.byteswap()
    magic, version, generator, bound, schema = map(int, words[:_HEADER])
    if magic != MAGIC:
        raise FormatError(f"the first word is {int(words[0].byteswap()):#010x}, not SPIR-V's")
    if schema or version & 0xFF0000FF:
        raise FormatError(f"the version is {version:#010x} and the schema {schema}, expected 0")
    numbers = version >> 16, version >> 8 & 0xFF
    if not (1, 0) <= numbers <= _NEWEST:
        raise UnsupportedError(f"the version is {numbers[0]}.{numbers[1]}, expected 1.0 to 1.6")
    return Header(numbers, generator >> 16, generator & 0xFFFF, bound), words


def instructions(words: np.ndarray) -> Iterator[Instruction]:
    """Yields the instructions of a module.

    Raises:
      FormatError: an instruction has no length, or ends beyond the module.
    """
    at = _HEADER
    while at < len(words):
        count, opcode = divmod(int(words[at]), 1 << 16)
        if not 0 < count <= len(words) - at:
            raise FormatError(
                f"the instruction at word {at} has {count} words, expected 1 to {len(words) - at}"
            )
        yield Instruction(opcode, tuple(words[at + 1 : at + count].tolist()), at)
        at += count


def read_text(words: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Decodes a string; returns it, and the words after it.

    Raises:
      FormatError: the string does not end, or is not UTF-8.
    """
    content = np.array(words, "<u4").tobytes()
    end = content.find(b"\0")
    if end < 0:
        raise FormatError("a text has no end")
    try:
        return content[:end].decode(), words[end // 4 + 1 :]
    except UnicodeDecodeError as error:
        raise FormatError(
            f"a text is not UTF-8: {error.reason} at its byte {error.start}"
        ) from None


def quoted(text: str) -> str:
    """Quotes a string for a message, shortened."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def text_words(text: str) -> list[int]:
    """Encodes a string as words.

    Raises:
      UnsupportedError: the string has a zero byte, which terminates strings in SPIR-V.
    """
    content = text.encode()
    if b"\0" in content:
        raise UnsupportedError(f"{quoted(text)} has a zero byte, which no text of SPIR-V has")
    padded = content + bytes(4 - len(content) % 4)
    return np.frombuffer(padded, "<u4").tolist()


def encoded(opcode: Op, *operands: int) -> list[int]:
    """Encodes an instruction as words.

    Raises:
      UnsupportedError: the instruction has too many words.
    """
    count = 1 + len(operands)
    if count > _LONGEST:
        raise UnsupportedError(f"{opcode.name} of {count} words, of which SPIR-V has {_LONGEST}")
    return [count << 16 | opcode, *operands]


def module_bytes(version: tuple[int, int], bound: int, words: Sequence[int]) -> bytes:
    """Encodes a module with these instructions as little-endian bytes, without a tool's number."""
    major, minor = version
    header = (MAGIC, major << 16 | minor << 8, 0, bound, 0)
    return np.array([*header, *words], "<u4").tobytes()
