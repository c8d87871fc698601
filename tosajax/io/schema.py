"""The schema of TOSA interchange files, for both the binary and the JSON form.

A table is an ordered list of fields; the order is the binary layout. Operators, attributes,
enumerations and element types are derived from the operator table. This module states only facts of
files: the order of fields, and names that differ in JSON.
Source: the schema of TOSA 1.0 and of the draft of 1.1; `tests/io/test_io_schema.py` compares them
with this module.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Mapping

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.spec import Argument, Form, Operator


class Scalar(enum.Enum):
    """The type of a number stored in its table; the value is its `struct` format."""

    BOOL = "?"
    UINT8 = "B"
    INT16 = "h"
    INT32 = "i"
    UINT32 = "I"
    UINT64 = "Q"
    INT64 = "q"
    FLOAT32 = "f"
    FLOAT64 = "d"


class Blob(enum.Enum):
    """Bytes stored outside their table: UTF-8 text, or data aligned to 8 bytes."""

    TEXT = "text"
    OCTETS = "octets"


@dataclasses.dataclass(frozen=True)
class Enumeration:
    """Names of numbers; flatbuffers store the number, JSON the name."""

    name: str
    numbers: Mapping[str, int]
    storage: Scalar = Scalar.UINT32

    def name_of(self, number: int) -> str | None:
        return self._names.get(number)

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {number: name for name, number in self.numbers.items()}


@dataclasses.dataclass(frozen=True)
class Table:
    """Fields in the order of their slots."""

    name: str
    fields: tuple[Field, ...]


@dataclasses.dataclass(frozen=True)
class Vector:
    """A list of numbers, strings or tables; the writer supports only int32 numbers."""

    element: Scalar | Blob | Table


@dataclasses.dataclass(frozen=True)
class Union:
    """One of several tables, selected by the number in the field `selector`.

    A number that is not in `tables` belongs to a later version; its fields are not read.
    """

    selector: str
    tables: Mapping[int, Table]


Type = Scalar | Blob | Enumeration | Vector | Table | Union


@dataclasses.dataclass(frozen=True)
class Field:
    """One slot of a table, and its value if a file omits it."""

    name: str
    type: Type
    default: int | bool | None = None


def _field(name: str, kind: Type) -> Field:
    """Makes a field; the default of booleans is false, of numbers 0, of other fields None."""
    if kind is Scalar.BOOL:
        return Field(name, kind, False)
    return Field(name, kind, 0 if isinstance(kind, Scalar | Enumeration) else None)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


# Additions in the draft of 1.1, by name and number only, for errors about files that use them.
DRAFT_DTYPES = ("FP6E2M3", "FP6E3M2", "FP4E2M1", "FP8UE8M0", "INT64", "MXINT8")
DRAFT_OPERATORS = {
    "MATMUL_T_BLOCK_SCALED": 76,
    "CAST_FROM_BLOCK_SCALED": 77,
    "CAST_TO_BLOCK_SCALED": 78,
    "DIM": 79,
    "CONCAT_SHAPE": 80,
    "ADD_SHAPE": 81,
    "SUB_SHAPE": 82,
    "MUL_SHAPE": 83,
    "SLICE_SHAPE": 84,
    "EXP2_SHAPE": 85,
    "LOG2_CEIL_SHAPE": 86,
    "LOG2_FLOOR_SHAPE": 87,
    "MAX_SHAPE": 88,
    "MIN_SHAPE": 89,
    "MOD_SHAPE": 90,
    "DIV_CEIL_SHAPE": 91,
    "DIV_FLOOR_SHAPE": 92,
    "ASSERT_EQUAL_SHAPE": 93,
    "CONV2D_BLOCK_SCALED": 94,
    "MAX_POOL2D_ADAPTIVE": 95,
    "AVG_POOL2D_ADAPTIVE": 96,
    "RESHAPE_BLOCK_SCALED": 97,
    "ROW_GATHER_BLOCK_SCALED": 98,
    "ROW_GATHER": 99,
}
# Compatibility features, by bit number.
FEATURES = {1: "MXFP"}


_RENAMED = {"NEAREST_NEIGHBOR": "NEAREST"}


def _enumeration(name: str, members: type[enum.IntEnum]) -> Enumeration:
    numbers = {_RENAMED.get(m.name, m.name): m.value for m in members}
    return Enumeration(name, {"UNKNOWN": 0, **numbers})


_OPERATORS = {operator.name: operator.number for operator in spec.OPERATORS.values()}
OP = Enumeration("Op", {"UNKNOWN": 0, **_OPERATORS, **DRAFT_OPERATORS})
DTYPE = Enumeration("DType", _numbered(("UNKNOWN", *(d.name for d in DType), *DRAFT_DTYPES)))
RESIZE_MODE = _enumeration("ResizeMode", spec.ResizeMode)
NAN_MODE = _enumeration("NanPropagationMode", spec.NanMode)
ROUNDING_MODE = _enumeration("RoundingMode", spec.RoundingMode)
BLOCK_SHAPE = Enumeration("BlockShape", {"UNKNOWN": 0, "BLOCK_SHAPE_32": 32})

_ENUMERATIONS: dict[type, Enumeration] = {
    spec.ResizeMode: RESIZE_MODE,
    spec.NanMode: NAN_MODE,
    spec.RoundingMode: ROUNDING_MODE,
    spec.AccType: DTYPE,
}


# Attributes: one table for each operator, numbered as the operator.

_WORDS = {
    "ARGMAX": "ArgMax",
    "FFT2D": "FFT2d",
    "INTDIV": "IntDiv",
    "MATMUL": "MatMul",
    "RFFT2D": "RFFT2d",
}


def _attribute_table_name(operator: str) -> str:
    return "".join(_WORDS.get(w, w.capitalize()) for w in operator.split("_")) + "Attribute"


def attribute_type(argument: Argument) -> Type:
    """The type of the field for an attribute."""
    if argument.form is Form.LIST:
        return Vector(Scalar.INT32)
    if argument.form is Form.GRAPH:
        return Blob.TEXT
    if argument.name == "implementation_attrs" or not isinstance(argument.dtype, type):
        return Blob.OCTETS  # arbitrary bytes, or one element of the operator's type
    plain: dict[type, Type] = {int: Scalar.INT32, bool: Scalar.BOOL, str: Blob.TEXT}
    return (plain | _ENUMERATIONS)[argument.dtype]


def file_attributes(operator: Operator) -> tuple[Argument, ...]:
    """The attributes in an operator's attribute table, in the file's order; acc_type is last.

    Values of constants, and all attributes of operators on variables, are stored with tensors.
    """
    if operator.chapter == "variable":
        return ()
    stored = (a for a in operator.attributes if a.form is not Form.VALUES)
    return tuple(sorted(stored, key=lambda argument: argument.name == "acc_type"))


def _attribute_table(operator: Operator) -> Table:
    fields = (_field(a.name, attribute_type(a)) for a in file_attributes(operator))
    return Table(_attribute_table_name(operator.name), tuple(fields))


_TABLES = {
    _attribute_table_name(name): OP.numbers[name] for name in (*_OPERATORS, *DRAFT_OPERATORS)
}
ATTRIBUTE_TYPE = Enumeration("Attribute", {"NONE": 0, **_TABLES}, Scalar.UINT8)
ATTRIBUTE = Union(
    "attribute_type",
    {operator.number: _attribute_table(operator) for operator in spec.OPERATORS.values()},
)


# The graph.

VERSION = Table(
    "Version",
    (
        Field("_major", Scalar.INT32, -1),
        Field("_minor", Scalar.INT32, -1),
        Field("_patch", Scalar.INT32, -1),
        Field("_draft", Scalar.BOOL, True),
    ),
)
SOFTWARE_VERSION = Table(
    "SoftwareVersion",
    (
        Field("_major", Scalar.INT32, -1),
        Field("_minor", Scalar.INT32, -1),
        Field("_micro", Scalar.INT32, -1),
        _field("_modifier", Blob.TEXT),
    ),
)
COMPATIBILITY = Table(
    "SerializationCompatibility",
    (
        _field("min_reader_version", SOFTWARE_VERSION),
        _field("features", Scalar.UINT64),
    ),
)
TENSOR = Table(
    "TosaTensor",
    (
        _field("name", Blob.TEXT),
        _field("shape", Vector(Scalar.INT32)),
        _field("type", DTYPE),
        _field("data", Blob.OCTETS),
        _field("variable", Scalar.BOOL),
        _field("is_unranked", Scalar.BOOL),
        _field("variable_name", Blob.TEXT),
        _field("offset", Scalar.UINT64),
        _field("size", Scalar.UINT64),
        _field("scale_type", DTYPE),
        _field("scale_data", Blob.OCTETS),
        _field("block_shape", BLOCK_SHAPE),
        _field("scale_offset", Scalar.UINT64),
        _field("scale_size", Scalar.UINT64),
    ),
)
SHAPE = Table(
    "TosaShape",
    (
        _field("name", Blob.TEXT),
        _field("rank", Scalar.UINT32),
        _field("data", Blob.OCTETS),
    ),
)
LOCATION = Table("OpLocation", (_field("text", Blob.TEXT),))
OPERATOR = Table(
    "TosaOperator",
    (
        _field("op", OP),
        _field("attribute_type", ATTRIBUTE_TYPE),
        _field("attribute", ATTRIBUTE),
        _field("inputs", Vector(Blob.TEXT)),
        _field("outputs", Vector(Blob.TEXT)),
        _field("location", LOCATION),
    ),
)
BLOCK = Table(
    "TosaBasicBlock",
    (
        _field("name", Blob.TEXT),
        _field("operators", Vector(OPERATOR)),
        _field("tensors", Vector(TENSOR)),
        _field("inputs", Vector(Blob.TEXT)),
        _field("outputs", Vector(Blob.TEXT)),
        _field("shapes", Vector(SHAPE)),
    ),
)
REGION = Table(
    "TosaRegion",
    (
        _field("name", Blob.TEXT),
        _field("blocks", Vector(BLOCK)),
    ),
)
GRAPH = Table(
    "TosaGraph",
    (
        _field("version", VERSION),
        _field("regions", Vector(REGION)),
        _field("software_version", SOFTWARE_VERSION),
        _field("compatibility", COMPATIBILITY),
    ),
)

IDENTIFIER = b"TOSA"
