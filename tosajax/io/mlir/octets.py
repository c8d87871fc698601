"""Reads the numbers and sections of MLIR bytecode, each within its bounds.

Source: "MLIR Bytecode Format", of the documentation of MLIR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from tosajax.report import FormatError

_T = TypeVar("_T")
_LONGEST = 9  # bytes of a number
_PADDING = 0xCB
_ALIGNED = 0x80  # in the identifier of a section
_SHOWN = 40


class Octets:
    """A part of a file, read from its start to its end.

    Args:
      data: the whole file, as alignment counts from its start.
      start: of the part.
      end: of the part; None for that of the file.
      what: the name of the part in messages.
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
        """Goes on by some bytes; returns where they start."""
        if size > self.end - self.at:
            self.wrong(f"{size} bytes are to follow, but only {self.end - self.at} do")
        self.at += size
        return self.at - size

    def part(self, size: int, what: str) -> Octets:
        start = self.take(size)
        return Octets(self.data, start, self.at, what)

    def again(self) -> Octets:
        """The same part, for one more reader."""
        return Octets(self.data, self.at, self.end, self.what)

    def byte(self) -> int:
        return self.data[self.take(1)]

    def number(self) -> int:
        """In as many bytes as the first one has zeros at its low end, and one."""
        start = self.take(1)
        first = self.data[start]
        size = (first & -first).bit_length() if first else _LONGEST
        self.take(size - 1)
        return int.from_bytes(self.data[start : start + size], "little") >> min(size, 8)

    def signed(self) -> int:
        """A number with its sign in the lowest bit."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def flagged(self) -> tuple[int, bool]:
        """A number and the flag in its lowest bit."""
        found = self.number()
        return found >> 1, bool(found & 1)

    def count(self) -> int:
        """How many things follow, of at least one byte each."""
        found = self.number()
        if found > self.end - self.at:
            self.wrong(f"{found} things are to follow in {self.end - self.at} bytes")
        return found

    def numbers(self) -> list[int]:
        return [self.number() for _ in range(self.count())]

    def item(self, items: Sequence[_T]) -> _T:
        """The one of these things whose number follows."""
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
        """Bytes up to a zero."""
        end = self.data.find(b"\0", self.at, self.end)
        if end < 0:
            self.wrong("a text does not end")
        start = self.take(end + 1 - self.at)
        return self.data[start:end]

    def section(self, names: tuple[str, ...]) -> tuple[int, Octets]:
        """A section and its identifier, an index of `names`."""
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
    """The start of a text in messages."""
    return repr(octets[:_SHOWN].decode("utf-8", "replace"))
