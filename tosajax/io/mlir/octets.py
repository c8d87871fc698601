"""Reads numbers and sections of MLIR bytecode, with bounds checks.

Source: "MLIR Bytecode Format", in MLIR's documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from tosajax.report import FormatError

_T = TypeVar("_T")
_LONGEST = 9  # bytes of a varint
_PADDING = 0xCB
_ALIGNED = 0x80  # bit in a section's identifier
_SHOWN = 40


class Octets:
    """A cursor over a part of a file.

    Args:
      data: the whole file, as alignment counts from its start.
      start: the part's offset in bytes.
      end: the offset of the part's end; None for the file's end.
      what: the part's name in messages.
    """

    def __init__(self, data: bytes, start: int, end: int | None, what: str) -> None:
        self.data = data
        self.at = start
        self.end = len(data) if end is None else end
        self.what = what

    def __bool__(self) -> bool:
        return self.at < self.end

    def wrong(self, message: str) -> NoReturn:
        raise FormatError(f"MLIR bytecode, {self.what}, byte {self.at}: {message}")

    def take(self, size: int) -> int:
        """Advances by `size` bytes; returns the offset of the first."""
        if size > self.end - self.at:
            self.wrong(f"{size} bytes are to follow, but only {self.end - self.at} do")
        self.at += size
        return self.at - size

    def part(self, size: int, what: str) -> Octets:
        start = self.take(size)
        return Octets(self.data, start, self.at, what)

    def again(self) -> Octets:
        """Returns a new cursor at the same position."""
        return Octets(self.data, self.at, self.end, self.what)

    def byte(self) -> int:
        return self.data[self.take(1)]

    def number(self) -> int:
        """Reads an unsigned varint: its length is one plus the trailing zeros of its first byte."""
        start = self.take(1)
        first = self.data[start]
        size = (first & -first).bit_length() if first else _LONGEST
        self.take(size - 1)
        return int.from_bytes(self.data[start : start + size], "little") >> min(size, 8)

    def signed(self) -> int:
        """Reads a zigzag-encoded varint: the sign is in the lowest bit."""
        number = self.number()
        return (number >> 1) ^ -(number & 1)

    def flagged(self) -> tuple[int, bool]:
        """Reads a varint with a flag in its lowest bit."""
        number = self.number()
        return number >> 1, bool(number & 1)

    def count(self) -> int:
        """Reads the count of the items that follow, each of at least one byte."""
        number = self.number()
        if number > self.end - self.at:
            self.wrong(f"{number} things are to follow in {self.end - self.at} bytes")
        return number

    def numbers(self) -> list[int]:
        return [self.number() for _ in range(self.count())]

    def item(self, items: Sequence[_T]) -> _T:
        """Reads an index, and returns the item at this index."""
        number = self.number()
        if number >= len(items):
            self.wrong(f"number {number} is beyond {len(items)}")
        return items[number]

    def blob(self) -> bytes:
        size = self.number()
        start = self.take(size)
        return self.data[start : self.at]

    def rest(self) -> bytes:
        start = self.take(self.end - self.at)
        return self.data[start : self.end]

    def text(self) -> bytes:
        """Reads a zero-terminated string; returns it without the zero."""
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            self.wrong("a text does not end")
        start = self.take(end + 1 - self.at)
        return self.data[start:end]

    def section(self, names: tuple[str, ...]) -> tuple[int, Octets]:
        """Reads a section; returns its identifier, an index of `names`, and its content."""
        identifier = self.byte()
        size = self.number()
        if identifier & _ALIGNED:
            self.align(self.number())
        identifier &= ~_ALIGNED
        if identifier >= len(names):
            self.wrong(f"there is no section {identifier}")
        return identifier, self.part(size, names[identifier])

    def align(self, alignment: int) -> None:
        if alignment == 0 or alignment & (alignment - 1):
            self.wrong(f"alignment {alignment} is not a power of two")
        self.skip_padding(self.take(-self.at % alignment), self.at)

    def skip_padding(self, start: int, end: int) -> None:
        if self.data.count(_PADDING, start, end) != end - start:
            self.wrong("the padding is not that of MLIR")

    def check_end(self) -> None:
        if self:
            self.wrong(f"{self.end - self.at} bytes are left over")


def shown(octets: bytes) -> str:
    """The start of a string, for messages."""
    return repr(octets[:_SHOWN].decode("utf-8", "replace"))
