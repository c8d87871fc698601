"""Converts flatbuffers to and from nested Python objects, for any table of `tosajax.io.schema`.

A table is a dict of all its fields, a vector a list, data a uint8 view of the file's bytes, an
enumeration its number. Every offset and length is checked against the file before use, because the
flatbuffers package does not verify its input.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from itertools import chain, repeat
from typing import Any

import flatbuffers
import numpy as np

from tosajax.io.schema import Blob, Enumeration, Field, Scalar, Table, Type, Union, Vector
from tosajax.report import FormatError, UnsupportedError

_OFFSET = "<I"
_OCTETS_ALIGNMENT = 8


def decode(data: memoryview, table: Table, only: Collection[str] | None = None) -> dict[str, Any]:
    """Reads the root table of a file.

    Args:
      data: the bytes of the whole file.
      table: the type of the root.
      only: the fields of the root to read; all by default.

    Raises:
      FormatError: an offset, length or string is invalid.
      UnsupportedError: a table has fields of a later version of the format.
    """
    reader = _Reader(data)
    return reader.table(reader.follow(0), table, only)


class _Reader:
    """Reads one file; `path` is the current field path, for messages."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.path: list[str | int] = []
        self.texts: dict[int, str] = {}
        # The number of parts that may still be read, each of which costs some memory. A file of n
        # bytes has less than n parts; without this limit, a file with many references to the same
        # parts could take unbounded memory.
        self.allowance = len(data)

    def place(self) -> str:
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return "".join(parts).lstrip(".") or "root"

    def error(self, message: str) -> FormatError:
        return FormatError(f"{self.place()}: {message}")

    def spend(self, parts: int) -> None:
        self.allowance -= parts
        if self.allowance < 0:
            raise self.error("the same parts of the file are referred to too often")

    def check(self, start: int, size: int, what: str) -> None:
        if start < 0 or start + size > len(self.data):
            message = f"{what} takes bytes {start} to {start + size}"
            raise self.error(f"{message}, beyond the {len(self.data)} bytes of the file")

    def number(self, form: str, at: int) -> int:
        self.check(at, struct.calcsize(form), "a number")
        return struct.unpack_from(form, self.data, at)[0]

    def follow(self, at: int) -> int:
        offset = self.number(_OFFSET, at)
        if offset == 0:
            raise self.error(f"the offset at byte {at} is 0")
        return at + offset

    def table(self, at: int, table: Table, only: Collection[str] | None = None) -> dict[str, Any]:
        slots, size = self.layout(at)
        later = sum(1 for slot in slots[len(table.fields) :] if slot)
        if later and only is None:
            message = f"{table.name} has {later} fields of a later version"
            raise UnsupportedError(f"{self.place()}: {message}")
        value: dict[str, Any] = {}
        for field, slot in zip(table.fields, chain(slots, repeat(0)), strict=False):
            if only is not None and field.name not in only:
                continue
            if not slot:
                value[field.name] = field.default
                continue
            self.path.append(field.name)
            # The size may be too small for the last field: the Python writer shares one vtable
            # among tables of equal slots even if their sizes differ.
            if not 4 <= slot < size:
                raise self.error(f"slot {slot} lies outside its table of {size} bytes")
            value[field.name] = self.value(field.type, at + slot, value)
            self.path.pop()
        return value

    def layout(self, at: int) -> tuple[tuple[int, ...], int]:
        """Reads a vtable: the slots of the fields, 0 if absent, and the table's size in bytes."""
        start = at - self.number("<i", at)
        length, size = self.number("<H", start), self.number("<H", start + 2)
        if length < 4 or length % 2 or size < 4:
            raise self.error(f"the table layout at byte {start} has lengths {length} and {size}")
        self.spend(1 + length // 16)
        self.check(start, length, "a table layout")
        self.check(at, size, "a table")
        return struct.unpack_from(f"<{length // 2 - 2}H", self.data, start + 4), size

    def value(self, kind: Type, at: int, siblings: Mapping[str, Any]) -> Any:
        match kind:
            case Scalar():
                return self.number(f"<{kind.value}", at)
            case Enumeration():
                return self.number(f"<{kind.storage.value}", at)
            case Blob.TEXT:
                return self.text(self.follow(at))
            case Blob.OCTETS:
                return self.octets(self.follow(at))
            case Vector():
                return self.vector(self.follow(at), kind)
            case Table():
                return self.table(self.follow(at), kind)
            case Union():
                chosen = kind.tables.get(siblings[kind.selector])
                return self.table(self.follow(at), chosen) if chosen else {}

    def run(self, at: int, width: int) -> tuple[int, int]:
        """Reads a vector's header: the offset of its first element, and their number."""
        count = self.number(_OFFSET, at)
        self.check(at + 4, count * width, f"a vector of {count} elements")
        return at + 4, count

    def text(self, at: int) -> str:
        if at not in self.texts:
            start, count = self.run(at, 1)
            self.spend(1 + count // 16)
            self.check(start + count, 1, "the end of a text")
            try:
                self.texts[at] = bytes(self.data[start : start + count]).decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.error(f"the text at byte {start} is not UTF-8: {error}") from None
        return self.texts[at]

    def octets(self, at: int) -> np.ndarray:
        start, count = self.run(at, 1)
        self.spend(1 + count // 16)  # equal constants may share their data
        return np.frombuffer(self.data, np.uint8, count, start)

    def vector(self, at: int, kind: Vector) -> list[Any]:
        start, count = self.run(at, _width(kind.element))
        self.spend(1 + count)
        if isinstance(kind.element, Scalar):
            return list(struct.unpack_from(f"<{count}{kind.element.value}", self.data, start))
        values: list[Any] = []
        for index in range(count):
            self.path.append(index)
            values.append(self.value(kind.element, start + 4 * index, {}))
            self.path.pop()
        return values


def _width(kind: Type) -> int:
    """The size in bytes of a value in its table or vector."""
    if isinstance(kind, Enumeration):
        kind = kind.storage
    return struct.calcsize(f"<{kind.value}") if isinstance(kind, Scalar) else 4


def encode(value: Mapping[str, Any], table: Table, identifier: bytes) -> bytes:
    """Writes a root table, the inverse of `decode`.

    Fields that are None or missing are omitted.

    Raises:
      UnsupportedError: the file would exceed 2 GB, the range of offsets.
    """
    writer = _Writer()
    try:
        writer.builder.Finish(writer.table(value, table), file_identifier=identifier)
    except flatbuffers.builder.BuilderSizeError:
        raise UnsupportedError("the graph is larger than 2 GB, the limit of the format") from None
    return bytes(writer.builder.Output())


class _Writer:
    """Writes children before their parents, as the format requires, and equal strings once."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(4096)
        self.texts: dict[str, int] = {}

    def table(self, value: Mapping[str, Any], table: Table) -> int:
        present = [(slot, f, value.get(f.name)) for slot, f in enumerate(table.fields)]
        present = [(slot, f, v) for slot, f, v in present if v is not None]
        offsets = {
            slot: self.child(f.type, v, value)
            for slot, f, v in present
            if not isinstance(f.type, Scalar | Enumeration)
        }
        self.builder.StartObject(len(table.fields))
        for slot, field, v in present:
            if slot in offsets:
                self.builder.PrependUOffsetTRelativeSlot(slot, offsets[slot], 0)
            else:
                self.scalar(slot, field, v)
        return self.builder.EndObject()

    def scalar(self, slot: int, field: Field, value: int) -> None:
        kind = field.type.storage if isinstance(field.type, Enumeration) else field.type
        prepend = {
            Scalar.BOOL: self.builder.PrependBoolSlot,
            Scalar.UINT8: self.builder.PrependUint8Slot,
            Scalar.INT16: self.builder.PrependInt16Slot,
            Scalar.INT32: self.builder.PrependInt32Slot,
            Scalar.UINT32: self.builder.PrependUint32Slot,
            Scalar.UINT64: self.builder.PrependUint64Slot,
            Scalar.INT64: self.builder.PrependInt64Slot,
            Scalar.FLOAT32: self.builder.PrependFloat32Slot,
            Scalar.FLOAT64: self.builder.PrependFloat64Slot,
        }
        assert isinstance(kind, Scalar)
        prepend[kind](slot, value, field.default)

    def child(self, kind: Type, value: Any, siblings: Mapping[str, Any]) -> int:
        match kind:
            case Blob.TEXT:
                return self.text(value)
            case Blob.OCTETS:
                return self.octets(bytes(value))
            case Vector():
                return self.vector(kind, value)
            case Table():
                return self.table(value, kind)
            case Union():
                return self.table(value, kind.tables[siblings[kind.selector]])
            case _:
                raise TypeError(f"{kind} stands in its table")

    def text(self, value: str) -> int:
        if value not in self.texts:
            self.texts[value] = self.builder.CreateString(value)
        return self.texts[value]

    def octets(self, value: bytes) -> int:
        self.builder.Prep(_OCTETS_ALIGNMENT, len(value))
        return self.builder.CreateByteVector(value)

    def vector(self, kind: Vector, values: list[Any]) -> int:
        if isinstance(kind.element, Scalar):
            return self.builder.CreateNumpyVector(np.asarray(values, f"<{kind.element.value}"))
        offsets = [self.child(kind.element, value, {}) for value in values]
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()
