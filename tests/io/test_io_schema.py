"""Compares our statement of the file layout with the schema that Arm's tools use."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tosajax.io import schema
from tosajax.io.schema import Blob, Enumeration, Scalar, Table, Type, Union, Vector

_OURS = {
    Scalar.BOOL: "bool",
    Scalar.INT32: "int32",
    Scalar.UINT32: "uint32",
    Scalar.UINT64: "uint64",
    Blob.TEXT: "string",
    Blob.OCTETS: "[ubyte]",
}
_SYNONYMS = {"ulong": "uint64"}
_STATED = (
    schema.OP,
    schema.DTYPE,
    schema.RESIZE_MODE,
    schema.NAN_MODE,
    schema.ROUNDING_MODE,
    schema.BLOCK_SHAPE,
)


@pytest.fixture(scope="module")
def text(tosa_tools) -> str:
    return re.sub(r"//.*", "", tosa_tools("bin/tosa.fbs").read_text())


def _body(text: str, kind: str, name: str) -> str:
    found = re.search(rf"{kind} {name}\b[^{{]*{{(.*?)}}", text, re.DOTALL)
    assert found, f"the schema has no {kind} {name}"
    return found[1]


def _enumerants(text: str, name: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for entry in filter(None, (e.strip() for e in _body(text, "enum", name).split(","))):
        key, _, value = (part.strip() for part in entry.partition("="))
        numbers[key] = int(value) if value else max(numbers.values(), default=-1) + 1
    return numbers


def _fields(text: str, table: str) -> list[tuple]:
    """Name, type and default of each field, in order."""
    body = re.sub(r"\([^)]*\)", "", _body(text, "table", table))
    found = re.findall(r"(\w+)\s*:\s*([\w\[\]]+)\s*(?:=\s*(\S+?))?\s*;", body)
    return [
        (name, _SYNONYMS.get(kind) or kind, None if default in ("", "0") else default)
        for name, kind, default in found
    ]


def _spelled(kind: Type) -> str:
    if isinstance(kind, Vector):
        return f"[{_spelled(kind.element)}]"
    if isinstance(kind, Union):
        return "Attribute"
    return kind.name if isinstance(kind, Table | Enumeration) else _OURS[kind]


def _tables(kind: Type) -> Iterator[Table]:
    """All tables that a type leads to."""
    if isinstance(kind, Vector):
        yield from _tables(kind.element)
    elif isinstance(kind, Union):
        yield from kind.tables.values()
    elif isinstance(kind, Table):
        yield kind
        for field in kind.fields:
            yield from _tables(field.type)


_TABLES = {table.name: table for table in _tables(schema.GRAPH)}


@pytest.mark.parametrize("enumeration", _STATED, ids=lambda e: e.name)
def test_enumeration_has_the_schemas_names_and_numbers(text, enumeration):
    assert dict(enumeration.numbers) == _enumerants(text, enumeration.name)


def test_features_have_the_schemas_bits(text):
    bits = {n: name for name, n in _enumerants(text, "CompatibilityFeature").items() if n}
    assert bits == schema.FEATURES


def test_union_has_the_schemas_order(text):
    names = [name.strip() for name in _body(text, "union", "Attribute").split(",")]
    wanted = dict(zip(["NONE", *filter(None, names)], range(len(names) + 1), strict=False))
    assert dict(schema.ATTRIBUTE_TYPE.numbers) == wanted


def test_union_number_is_operator_number():
    for name, number in schema.OP.numbers.items():
        if number in schema.ATTRIBUTE.tables:
            assert schema.ATTRIBUTE.tables[number].name == schema.ATTRIBUTE_TYPE.name_of(number)
            assert name not in schema.DRAFT_OPERATORS


@pytest.mark.parametrize("table", _TABLES.values(), ids=lambda t: t.name)
def test_table_has_the_schemas_fields(text, table):
    ours = []
    for field in table.fields:
        if field.name == "attribute_type":  # the schema's union field stands for two slots
            continue
        plain = field.default in (None, 0, False)
        default = None if plain else str(field.default).lower()
        ours.append((field.name, _spelled(field.type), default))
    assert ours == _fields(text, table.name)


def test_tables_left_out_are_those_of_the_draft(text):
    named = set(re.findall(r"table (\w+)", text))
    draft = {schema.ATTRIBUTE_TYPE.name_of(schema.OP.numbers[n]) for n in schema.DRAFT_OPERATORS}
    assert named - _TABLES.keys() == draft
    assert set(_TABLES) <= named


def test_draft_dtypes_are_the_schemas_last(text):
    assert tuple(_enumerants(text, "DType"))[-len(schema.DRAFT_DTYPES) :] == schema.DRAFT_DTYPES
