"""The layout of old files against their schemas, as facts and as flatc reads them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_graphs import CASES, LATER, NOT_IN_FILES, legal, nested, to_flatbuffer, to_json

from tosajax.io import flatbuffer, json_form
from tosajax.io.pre_1_0.schema import ATTRIBUTES, DTYPE, LAYOUTS, RESIZE_MODE, Layout
from tosajax.io.schema import IDENTIFIER, Blob, Enumeration, Scalar, Table, Type, Union, Vector

# Enumerations, unions and tables of each version, with the names and types of their fields.
FACTS = json.loads(Path(__file__).with_name("data").joinpath("schemas.json").read_text())
VERSIONS = {f"{major}.{minor}": layout for (major, minor), layout in LAYOUTS.items()}
_NAMES = {
    Scalar.BOOL: "bool",
    Scalar.INT16: "int16",
    Scalar.INT32: "int32",
    Blob.TEXT: "string",
    Blob.OCTETS: "[ubyte]",
}


@pytest.fixture(params=VERSIONS)
def version(request) -> str:
    return request.param


def _tables(kind: Type) -> Iterator[Table]:
    """All tables that a type leads to."""
    match kind:
        case Vector():
            yield from _tables(kind.element)
        case Union():
            yield from kind.tables.values()
        case Table():
            yield kind
            for field in kind.fields:
                yield from _tables(field.type)


def _spelled(kind: Type) -> str:
    match kind:
        case Vector():
            return f"[{_spelled(kind.element)}]"
        case Union():
            return "Attribute"
        case Table() | Enumeration():
            return kind.name
        case _:
            return _NAMES[kind]


def _fields(table: Table) -> list[str]:
    fields = []
    for field in table.fields:
        if field.name == "attribute_type":  # the schema's union field stands for two slots
            continue
        stated = table.name == "Version"
        default = f"={str(field.default).lower()}" if stated else ""
        fields.append(f"{field.name}:{_spelled(field.type)}{default}")
        assert stated or not field.default
    return fields


def _plain(field: str) -> str:
    """A field of the facts without spaces and what is in brackets after the type."""
    return field.partition("(")[0].replace(" ", "")


def test_all_versions_are_known():
    assert VERSIONS.keys() == FACTS.keys()


def test_magic():
    for facts in FACTS.values():
        assert facts["file_identifier"].encode() == IDENTIFIER


def test_enumerations(version):
    layout, facts = VERSIONS[version], FACTS[version]["enums"]
    assert dict(layout.op.numbers) == facts["Op"]["values"]
    assert dict(layout.dtype.numbers) == facts["DType"]["values"]
    assert dict(RESIZE_MODE.numbers) == facts["ResizeMode"]["values"]
    for enumeration in (layout.op, layout.dtype, RESIZE_MODE, DTYPE):
        assert enumeration.storage is Scalar.UINT32
        assert facts[enumeration.name]["type"] == "uint32"


def test_union(version):
    layout: Layout = VERSIONS[version]
    names = FACTS[version]["unions"]["Attribute"]
    assert list(layout.attribute_type.numbers) == ["NONE", *names]
    union = next(
        field.type
        for table in _tables(layout.graph)
        for field in table.fields
        if isinstance(field.type, Union)
    )
    assert {number: table.name for number, table in union.tables.items()} == dict(
        enumerate(names, 1)
    )


def test_tables(version):
    ours = {table.name: _fields(table) for table in _tables(VERSIONS[version].graph)}
    facts = FACTS[version]["tables"]
    assert ours == {name: [*map(_plain, fields)] for name, fields in facts.items()}


def test_operators_with_attributes_are_operators():
    assert ATTRIBUTES.keys() <= LAYOUTS[0, 80].op.numbers.keys()
    assert {table.name for table in ATTRIBUTES.values()} == {*FACTS["0.80"]["unions"]["Attribute"]}


# flatc reads what we write, and writes what we read.


def _schema_text(facts: dict[str, Any]) -> str:
    lines = ["namespace tosa;"]
    for name, enumeration in facts["enums"].items():
        members = ", ".join(f"{k} = {v}" for k, v in enumeration["values"].items())
        lines.append(f"enum {name}:{enumeration['type']} {{ {members} }}")
    for name, members in facts["unions"].items():
        lines.append(f"union {name} {{ {', '.join(members)} }}")
    for name, fields in facts["tables"].items():
        lines.append(f"table {name} {{ {' '.join(f'{field};' for field in fields)} }}")
    lines.append(f'file_identifier "{facts["file_identifier"]}";')
    lines.append(f"root_type {facts['root_type']};")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def flatc(tosa_tools, tmp_path_factory) -> Callable[..., bytes]:
    """Turns the content of one form of a file into that of the other."""
    folder = tmp_path_factory.mktemp("flatc")
    program = tosa_tools("bin/flatc")
    for version, facts in FACTS.items():
        (folder / f"{version}.fbs").write_text(_schema_text(facts))

    def run(content: bytes, version: str, *, to_json: bool) -> bytes:
        given, made = ("bin", "json") if to_json else ("json", "bin")
        source = folder / f"file.{given}"
        source.write_bytes(content)
        schema = folder / f"{version}.fbs"
        form = ["--json", "--strict-json", "--raw-binary"] if to_json else ["--binary"]
        file = ["--", source] if to_json else [source]
        command = [program, *form, "-o", folder, schema, *file]
        subprocess.run(command, check=True, capture_output=True)
        return (folder / f"file.{made}").read_bytes()

    return run


def _file(version: str) -> tuple[dict[str, Any], tuple[int, int]]:
    """The nested form of a file with a region for each operator and type."""
    major, minor = map(int, version.split("."))
    root: dict[str, Any] = {}
    regions = []
    for op, row in CASES:
        later = op in LATER or "SHAPE" in row
        if op in NOT_IN_FILES or (version == "0.60" and later):
            continue
        root = nested(legal(op, row), (major, minor))
        regions += root["regions"]
    return root | {"regions": regions}, (major, minor)


def _bare(value: Any) -> Any:
    """The nested form with data as bytes, to compare."""
    if isinstance(value, dict):
        return {name: _bare(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_bare(v) for v in value]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def test_flatc_reads_what_we_write(flatc, version):
    root, numbers = _file(version)
    content = to_flatbuffer(root, numbers)
    layout = VERSIONS[version].graph
    text = flatc(content, version, to_json=True)
    ours = flatbuffer.decode(memoryview(content), layout)
    theirs = json_form.decode(json_form.parse(text), layout)
    assert len(ours["regions"]) > 200
    assert _bare(theirs) == _bare(ours)


def test_we_read_what_flatc_writes(flatc, version):
    root, numbers = _file(version)
    text = to_json(root, numbers)
    layout = VERSIONS[version].graph
    content = flatc(text, version, to_json=False)
    ours = json_form.decode(json_form.parse(text), layout)
    theirs = flatbuffer.decode(memoryview(content), layout)
    assert _bare(theirs) == _bare(ours)
