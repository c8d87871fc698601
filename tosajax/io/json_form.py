"""Converts JSON text, as flatc writes it, to and from nested Python objects.

The nested form is the same as in `tosajax.io.flatbuffer`: numbers for enumerations, uint8 arrays
for data. Missing fields have the schema's defaults.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from tosajax.io.schema import Blob, Enumeration, Field, Scalar, Table, Type, Union, Vector
from tosajax.report import FormatError


def parse(text: bytes) -> Mapping[str, Any]:
    """Reads JSON text, without a schema.

    Raises:
      FormatError: the text is not JSON, or the JSON is not an object.
    """
    try:
        raw = json.loads(text)
    except RecursionError:
        raise FormatError("the JSON text is nested too deeply") from None
    except ValueError as error:  # also text that is not UTF-8
        raise FormatError(f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise FormatError(f"root: found {_shown(raw)}, expected an object")
    return raw


def decode(
    raw: Mapping[str, Any], table: Table, only: Collection[str] | None = None
) -> dict[str, Any]:
    """Converts a JSON object to the nested form of a table.

    Args:
      raw: the result of `parse`.
      table: the type of the root.
      only: the fields of the root to read; all by default.

    Raises:
      FormatError: a field is unknown, or its value does not have the field's type.
    """
    return _table(raw, table, "", only)


def _table(
    raw: Any, table: Table, path: str, only: Collection[str] | None = None
) -> dict[str, Any]:
    _expect(isinstance(raw, dict), raw, "an object", path)
    if only is None:
        unknown = raw.keys() - {field.name for field in table.fields}
        if unknown:
            names = ", ".join(field.name for field in table.fields) or "none"
            message = f"{table.name} has no field {min(unknown)!r}"
            raise FormatError(f"{path or 'root'}: {message}, expected {names}")
    value: dict[str, Any] = {}
    for field in table.fields:
        if only is None or field.name in only:
            entry = raw.get(field.name)
            where = f"{path}.{field.name}".lstrip(".")
            value[field.name] = (
                field.default if entry is None else _value(entry, field.type, where, value)
            )
    return value


def _value(raw: Any, kind: Type, path: str, siblings: Mapping[str, Any]) -> Any:
    match kind:
        case Scalar():
            return _number(raw, kind, path)
        case Enumeration():
            return _enumerant(raw, kind, path)
        case Blob.TEXT:
            return _text(raw, path)
        case Blob.OCTETS:
            return _octets(raw, path)
        case Vector():
            _expect(isinstance(raw, list), raw, "a list", path)
            return [_value(v, kind.element, f"{path}[{i}]", {}) for i, v in enumerate(raw)]
        case Table():
            return _table(raw, kind, path)
        case Union():
            chosen = kind.tables.get(siblings[kind.selector])
            return _table(raw, chosen, path) if chosen else {}


def _number(raw: Any, kind: Scalar, path: str) -> int | bool:
    if kind is Scalar.BOOL:
        _expect(isinstance(raw, bool) or raw in (0, 1), raw, "true or false", path)
        return bool(raw)
    _expect(isinstance(raw, int) and not isinstance(raw, bool), raw, "an integer", path)
    try:
        struct.pack(f"<{kind.value}", raw)
    except struct.error:
        raise FormatError(f"{path}: {_shown(raw)} is not a {kind.name.lower()}") from None
    return raw


def _enumerant(raw: Any, kind: Enumeration, path: str) -> int:
    if not isinstance(raw, str):
        return _number(raw, kind.storage, path)
    if raw not in kind.numbers:
        raise FormatError(f"{path}: {kind.name} has no value {_shown(raw)}")
    return kind.numbers[raw]


def _text(raw: Any, path: str) -> str:
    _expect(isinstance(raw, str), raw, "a string", path)
    try:
        raw.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{path}: {_shown(raw)} has half of a surrogate pair") from None
    return raw


def _octets(raw: Any, path: str) -> np.ndarray:
    _expect(isinstance(raw, list), raw, "a list of bytes", path)
    try:
        return np.frombuffer(bytes(raw), np.uint8)
    except (TypeError, ValueError):
        raise FormatError(f"{path}: a value is not an integer from 0 to 255") from None


def _expect(good: bool, raw: Any, wanted: str, path: str) -> None:
    if not good:
        raise FormatError(f"{path or 'root'}: found {_shown(raw)}, expected {wanted}")


def _shown(raw: Any) -> str:
    """Formats a value for a message, without all digits of a large integer."""
    if isinstance(raw, dict | list):
        return "an object" if isinstance(raw, dict) else "a list"
    if isinstance(raw, int) and abs(raw) >= 1 << 64:
        return f"an integer of about 10**{int(raw.bit_length() * math.log10(2))}"
    return repr(raw)[:80]


def plain(value: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Converts a table to a JSON object, the inverse of `decode`.

    Fields that are None, missing, or equal to the schema's default are omitted.
    """
    entries = ((field, value.get(field.name)) for field in table.fields)
    return {
        field.name: _json_value(field, v, value)
        for field, v in entries
        if v is not None and (field.default is None or v != field.default)
    }


def dumps(raw: Mapping[str, Any]) -> str:
    """Writes a JSON object as text, the inverse of `parse`.

    Each list of numbers or strings is on one line.
    """
    return "".join(_lines(raw, "")) + "\n"


def encode(value: Mapping[str, Any], table: Table) -> str:
    """Writes a table as JSON text: `plain`, then `dumps`."""
    return dumps(plain(value, table))


def _json_value(field: Field, value: Any, siblings: Mapping[str, Any]) -> Any:
    match field.type:
        case Enumeration():
            return field.type.name_of(value) or value
        case Blob.OCTETS:
            return list(bytes(value))
        case Vector(element=Table() as table):
            return [plain(v, table) for v in value]
        case Table():
            return plain(value, field.type)
        case Union():
            return plain(value, field.type.tables[siblings[field.type.selector]])
        case _:
            return value


def _lines(value: Any, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        entries = [(f"{json.dumps(key)}: ", entry) for key, entry in value.items()]
        brackets = "{}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        entries = [("", entry) for entry in value]
        brackets = "[]"
    else:
        yield json.dumps(value)
        return
    yield brackets[0]
    for index, (key, entry) in enumerate(entries):
        yield f"{',' if index else ''}\n{deeper}{key}"
        yield from _lines(entry, deeper)
    yield f"\n{indent}{brackets[1]}"
