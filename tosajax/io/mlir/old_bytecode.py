"""Converts MLIR bytecode of the TOSA dialect before 1.0 to text in the generic form.

Newer programs misread such bytecode, because it stores the properties of operations by position.
This reader refuses everything that the old dialect cannot have written.

Source: "MLIR Bytecode Format", versions 0 to 6, and the files of LLVM 19.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from tosajax.io.mlir.locations import quoted
from tosajax.io.mlir.octets import Octets, shown
from tosajax.io.mlir.old_attributes import Attributes, Entry
from tosajax.io.mlir.old_operations import DIALECT_VERSIONS, ELIDED, NATIVE, NEWEST, Body
from tosajax.io.mlir.old_properties import properties
from tosajax.report import FormatError, UnsupportedError

_MAGIC_SIZE = 4  # bytes
_SECTIONS = (
    "strings",
    "dialects",
    "attributes and types",
    "offsets",
    "operations",
    "resources",
    "offsets of resources",
    "versions of dialects",
    "properties",
)
_NEEDED = ("strings", "dialects", "attributes and types", "offsets", "operations")
_MORE_TEXT = 1 << 22  # limit of the text, in characters, plus _TEXT_OF_A_BYTE for each byte
_TEXT_OF_A_BYTE = 32
_BLOB = 0  # the kind of a resource with data
_ALIGNMENT = "04000000"  # precedes the data of a resource in text


class _Name(NamedTuple):
    """The name of an operation; `is_native` if its properties are stored by position."""

    name: str
    is_native: bool


def as_text(data: bytes, llvm: int | None) -> bytes:
    """Converts bytecode to text.

    Args:
      data: the file, with its header.
      llvm: the major version of the LLVM that wrote it; None if unknown.

    Raises:
      FormatError: the bytecode is broken.
      UnsupportedError: the bytecode has something that the TOSA dialect before 1.0 does not have,
        or its properties are ambiguous.
    """
    part = Octets(data, _MAGIC_SIZE, None, "the file")
    version = part.number()
    if version > NEWEST:
        raise UnsupportedError(f"version {version} of MLIR bytecode is newer than {NEWEST}")
    part.text()  # the producer
    return File(part, version, llvm).text()


class File:
    """The sections of a file, and the lines of its text."""

    def __init__(self, part: Octets, version: int, llvm: int | None) -> None:
        self.version = version
        self.llvm = llvm
        self.left = _MORE_TEXT + _TEXT_OF_A_BYTE * part.end  # characters still allowed
        self.parts = _sections(part)
        self.strings = _strings(self.parts["strings"])
        self.dialects, self.names = self._dialects(self.parts["dialects"])
        self.resources = dict(self._resources())
        attributes, types = self._entries()
        self.attributes = Attributes(
            attributes, types, self.strings, list(self.resources), self.spend
        )
        self.blobs = _blobs(self.parts.get("properties"))
        self.places: dict[int, str] = {}  # keys: the indices of locations in use
        self.lines: list[str] = []
        self.regions = itertools.count()

    def prefix(self) -> str:
        """A unique prefix for the value names of a region."""
        return f"r{next(self.regions)}_"

    def spend(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise UnsupportedError("a few bytes of MLIR bytecode stand for a very long text")

    def say(self, line: str) -> None:
        self.spend(len(line))
        self.lines.append(line)

    def text(self) -> bytes:
        operations = self.parts["operations"]
        Body(self, operations).module()
        self._say_locations()
        self._say_resources()
        return "\n".join(self.lines).encode()

    # Tables that operations refer to.

    def string(self, number: int) -> bytes:
        if number >= len(self.strings):
            raise FormatError(f"MLIR bytecode has no string {number}")
        return self.strings[number]

    def _dialects(self, part: Octets) -> tuple[list[bytes], list[_Name]]:
        dialects = []
        for _ in range(part.count()):
            name, versioned = part.number(), False
            if self.version >= DIALECT_VERSIONS:
                name, versioned = name >> 1, bool(name & 1)
            if versioned:
                part.section(_SECTIONS)
            dialects.append(self.string(name))
        if self.version >= ELIDED:
            part.number()  # the number of names
        names = []
        while part:
            dialect = part.item(dialects)
            names += [self._name(dialect, part) for _ in range(part.count())]
        return dialects, names

    def _name(self, dialect: bytes, part: Octets) -> _Name:
        if self.version >= NATIVE:
            number, is_native = part.flagged()
        else:
            number, is_native = part.number(), False
        name = dialect + b"." + self.string(number)
        try:
            return _Name(name.decode(), is_native)
        except UnicodeDecodeError:
            part.wrong(f"operation {shown(name)} is not UTF-8")

    def _entries(self) -> tuple[list[Entry], list[Entry]]:
        """The encoded attributes and types."""
        part, held = self.parts["offsets"], self.parts["attributes and types"]
        tables: list[list[Entry]] = []
        for size in (part.number(), part.number()):
            entries: list[Entry] = []
            while len(entries) < size:
                dialect = part.item(self.dialects)
                for _ in range(part.count()):
                    length, is_custom = part.flagged()
                    inner = held.part(length, held.what)
                    entries.append(Entry(dialect, inner, not is_custom))
            if len(entries) > size:
                part.wrong(f"{len(entries)} offsets of {size}")
            tables.append(entries)
        part.check_end()
        held.check_end()
        return tables[0], tables[1]

    def _resources(self) -> Iterator[tuple[str, bytes | None]]:
        """Yields the keys and data of dialect resources; None for missing data."""
        part, held = self.parts.get("offsets of resources"), self.parts.get("resources")
        if part is None:
            return
        keys: set[str] = set()
        for _ in range(part.count()):  # external resources, ignored
            self.string(part.number())
            for _ in range(part.count()):
                self._resource(part, held)
        while part:
            part.item(self.dialects)
            for _ in range(part.count()):
                key, data = self._resource(part, held)
                if key in keys:
                    part.wrong(f"resource {key} is there twice")
                keys.add(key)
                yield key, data

    def _resource(self, part: Octets, held: Octets | None) -> tuple[str, bytes | None]:
        name = self.string(part.number())
        size, kind = part.number(), part.byte()
        try:
            key = quoted(name.decode())
        except UnicodeDecodeError:
            part.wrong(f"resource {shown(name)} is not UTF-8")
        data = held.part(size, held.what) if held is not None else None
        return key, _resource_data(data) if data and kind == _BLOB else None

    def properties(self, name: _Name, blob: Octets | None) -> dict[str, int]:
        """The indices of an operation's attributes, by name."""
        if name.is_native:
            return properties(name.name, blob, self.llvm, self.attributes.kind)
        if blob is None:
            return {}
        numbers = self.attributes.dictionary(blob.number())
        blob.check_end()
        return numbers

    # Text that follows the operations.

    def location(self, number: int) -> str:
        """Formats a reference to a location, whose definition follows the operations."""
        self.places.setdefault(number, "")
        return f" loc(#l{number})"

    def _say_locations(self) -> None:
        wanted = list(self.places)
        while wanted:
            number = wanted.pop()
            text, inner = self.attributes.location(number)
            self.say(f"#l{number} = loc({text})")
            fresh = [n for n in dict.fromkeys(inner) if n not in self.places]
            self.places |= dict.fromkeys(fresh, "")
            wanted += fresh

    def _say_resources(self) -> None:
        held = [
            f'{key}: "0x{_ALIGNMENT}{data.hex().upper()}"'
            for key, data in self.resources.items()
            if data is not None
        ]
        if held:
            self.say(f"{{-# dialect_resources: {{builtin: {{{', '.join(held)}}}}} #-}}")


def _sections(part: Octets) -> dict[str, Octets]:
    sections: dict[str, Octets] = {}
    while part:
        number, inner = part.section(_SECTIONS)
        if _SECTIONS[number] in sections:
            part.wrong(f"the section of {_SECTIONS[number]} is there twice")
        sections[_SECTIONS[number]] = inner
    for name in _NEEDED:
        if name not in sections:
            part.wrong(f"there is no section of {name}")
    return sections


def _strings(part: Octets) -> list[bytes]:
    """Reads the strings: their lengths are in reverse order, and each ends with a zero byte."""
    lengths = part.numbers()
    strings = []
    for length in reversed(lengths):
        start = part.take(length)
        if not length or part.data[part.at - 1]:
            part.wrong("a string does not end with a zero")
        strings.append(part.data[start : part.at - 1])
    part.check_end()
    return strings


def _blobs(part: Octets | None) -> list[Octets]:
    if part is None:
        return []
    blobs = [part.part(part.number(), part.what) for _ in range(part.count())]
    part.check_end()
    return blobs


def _resource_data(part: Octets) -> bytes:
    """The data of a resource, after its alignment and padding."""
    part.number()
    size = part.number()
    padding = part.end - part.at - size
    if padding < 0:
        part.wrong(f"a resource of {size} bytes is longer than its section")
    part.skip_padding(part.take(padding), part.at)
    return part.rest()
