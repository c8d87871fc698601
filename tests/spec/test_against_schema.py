"""The operator table against the file schema and the serializer's operator list of tosa-tools.

The schema (tosa.fbs) gives the operators, their order, their attributes and the enumerations; the
serializer's list (op.def) gives what each input is. Both also describe the 1.1 draft.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tosajax.dtypes import DType
from tosajax.spec import OPERATORS, AccType, Argument, Form, NanMode, ResizeMode, RoundingMode
from tosajax.versions import V1_0

OPERATOR_COUNT = 75  # those after it in the schema came with 1.1
DTYPE_COUNT = 12

# Types of attributes in the schema.
SCHEMA_TYPES: Mapping[object, str] = {
    bool: "bool",
    int: "int32",
    str: "string",
    "tosa_graph_t": "string",  # the name of a region
    AccType: "DType",
    NanMode: "NanPropagationMode",
    ResizeMode: "ResizeMode",
    RoundingMode: "RoundingMode",
}
OCTETS = "[ubyte]"
# Attributes that files hold in another way; None where they are fields of a tensor, not of the
# attribute table.
HELD_OTHERWISE: Mapping[tuple[str, str], str | None] = {
    ("CLAMP", "min_val"): OCTETS,  # one element of the input's type
    ("CLAMP", "max_val"): OCTETS,
    ("CUSTOM", "implementation_attrs"): OCTETS,  # the specification has a string
    ("CONST", "values"): None,
    ("CONST_SHAPE", "values"): None,
    ("VARIABLE", "name"): None,
    ("VARIABLE", "var_shape"): None,
    ("VARIABLE", "type"): None,
    ("VARIABLE", "initial_value"): None,
    ("VARIABLE_WRITE", "name"): None,
    ("VARIABLE_READ", "name"): None,
}
# Members that the schema names otherwise.
RENAMED = {"NEAREST": "NEAREST_NEIGHBOR"}
ATTRIBUTE_FORMS = {Form.SCALAR: "{}", Form.LIST: "[{}]", Form.GRAPH: "{}"}
INPUT_FORMS = {
    "TENSOR": Form.TENSOR,
    "TENSOR_LIST": Form.TENSOR_LIST,
    "SHAPE": Form.SHAPE,
}


class Schema(NamedTuple):
    enums: dict[str, dict[str, int]]
    unions: dict[str, list[str]]
    tables: dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def schema(arm_file) -> Schema:
    text = re.sub(r"//.*", "", arm_file("bin/tosa.fbs").read_text())
    return Schema(
        {
            name: _members(body)
            for name, body in re.findall(r"enum (\w+):uint32 {(.*?)}", text, re.S)
        },
        {name: _names(body) for name, body in re.findall(r"union (\w+) {(.*?)}", text, re.S)},
        {
            name: dict(re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)[^;]*;", body))
            for name, body in re.findall(r"table (\w+) {(.*?)}", text, re.S)
        },
    )


@pytest.fixture(scope="module")
def input_forms(arm_file) -> dict[str, list[str]]:
    text = arm_file("tosa_serialization_lib/op.def").read_text()
    lists = re.findall(r"^DEF_OP\((\w+), \w+(?:, )?(.*)\)$", text, re.M)
    return {name: _names(inputs) for name, inputs in lists}


def test_operators_and_their_order(schema):
    numbers = schema.enums["Op"]
    assert list(numbers.values()) == list(range(len(numbers)))
    of_1_0 = [name for name, operator in OPERATORS.items() if operator.since == V1_0]
    by_section = sorted(of_1_0, key=lambda name: _section(OPERATORS[name].section))
    assert by_section == list(numbers)[1 : OPERATOR_COUNT + 1]
    assert all(numbers[name] == operator.number for name, operator in OPERATORS.items())


def test_each_operator_has_its_attribute_table(schema):
    tables = schema.unions["Attribute"]
    operators = list(schema.enums["Op"])[1:]
    assert len(tables) == len(operators)
    for operator, table in zip(operators, tables, strict=True):
        assert table.removesuffix("Attribute").upper() == operator.replace("_", "")


@pytest.mark.parametrize("name", OPERATORS)
def test_attributes(schema, name):
    table = schema.unions["Attribute"][schema.enums["Op"][name] - 1]
    ours = {a.name: _schema_type(name, a) for a in OPERATORS[name].attributes}
    assert {n: kind for n, kind in ours.items() if kind is not None} == schema.tables[table]


@pytest.mark.parametrize("name", OPERATORS)
def test_inputs(input_forms, name):
    assert [a.form for a in OPERATORS[name].inputs] == [INPUT_FORMS[i] for i in input_forms[name]]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("ResizeMode", ResizeMode),
        ("NanPropagationMode", NanMode),
        ("RoundingMode", RoundingMode),
    ],
    ids=["resize", "nan", "rounding"],
)
def test_modes(schema, name: str, ours: type[enum.IntEnum]):
    members = {RENAMED.get(member, member): n for member, n in schema.enums[name].items()}
    assert {"UNKNOWN": 0} | {member.name: member.value for member in ours} == members


def test_element_types(schema):
    assert ["UNKNOWN", *DType.__members__] == list(schema.enums["DType"])[: DTYPE_COUNT + 1]


def test_accumulator_types_are_element_types(schema):
    assert set(AccType.__members__) <= set(schema.enums["DType"])
    assert all(member.dtype.name == member.name for member in AccType)


def test_exceptions_are_of_the_table():
    for operator, attribute in HELD_OTHERWISE:
        assert attribute in [a.name for a in OPERATORS[operator].attributes]


def _schema_type(operator: str, attribute: Argument) -> str | None:
    if (operator, attribute.name) in HELD_OTHERWISE:
        return HELD_OTHERWISE[operator, attribute.name]
    return ATTRIBUTE_FORMS[attribute.form].format(SCHEMA_TYPES[attribute.dtype])


def _members(body: str) -> dict[str, int]:
    members: dict[str, int] = {}
    for part in _names(body):
        name, _, number = (word.strip() for word in part.partition("="))
        members[name] = int(number) if number else max(members.values(), default=-1) + 1
    return members


def _names(body: str) -> list[str]:
    return [part.strip() for part in body.split(",") if part.strip()]


def _section(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.split("."))
