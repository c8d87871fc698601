"""The schemas of files of TOSA 0.60, 0.80 and 0.90, as tables of `tosajax.io.schema`.

The file identifier is the same as in 1.0, but the numbers of operators and types differ. Later
versions added operators at the end of their enumeration, and fields at the end of their tables.
Source: the schemas of the three versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from tosajax.io import schema
from tosajax.io.schema import Blob, Enumeration, Field, Scalar, Table, Type, Union, Vector


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


# Enumerations.

_DTYPES = "UNKNOWN BOOL UINT8 INT4 INT8 INT16 INT32 INT48 FP32 UINT16 FP16 BF16"
DTYPE = Enumeration("DType", _numbered(f"{_DTYPES} SHAPE".split()))
RESIZE_MODE = Enumeration("ResizeMode", _numbered(("UNKNOWN", "NEAREST", "BILINEAR")))

# RESERVED is an unused number.
_OPERATORS = (
    "UNKNOWN ARGMAX AVG_POOL2D CONV2D CONV3D DEPTHWISE_CONV2D FULLY_CONNECTED MATMUL MAX_POOL2D "
    "TRANSPOSE_CONV2D CLAMP RESERVED SIGMOID TANH ADD ARITHMETIC_RIGHT_SHIFT BITWISE_AND "
    "BITWISE_OR BITWISE_XOR INTDIV LOGICAL_AND LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT LOGICAL_OR "
    "LOGICAL_XOR MAXIMUM MINIMUM MUL POW SUB TABLE ABS BITWISE_NOT CEIL CLZ EXP FLOOR LOG "
    "LOGICAL_NOT NEGATE RECIPROCAL RSQRT SELECT EQUAL GREATER GREATER_EQUAL REDUCE_ANY REDUCE_ALL "
    "REDUCE_MAX REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM CONCAT PAD RESHAPE REVERSE SLICE TILE "
    "TRANSPOSE GATHER SCATTER RESIZE CAST RESCALE CONST IDENTITY CUSTOM COND_IF WHILE_LOOP FFT2D "
    "RFFT2D"
)
_OPERATORS_0_80 = f"{_OPERATORS} ERF DIM"
_OPERATORS_0_90 = (
    f"{_OPERATORS_0_80} CONST_SHAPE CONCAT_SHAPE ADD_SHAPE SUB_SHAPE MUL_SHAPE DIV_SHAPE"
)


# Attributes. Several operators share a table.


def _table(title: str, /, **fields: Type) -> Table:
    """Makes a table; the default of booleans is false, of numbers 0, of other fields None."""
    return Table(title, tuple(Field(name, kind, _default(kind)) for name, kind in fields.items()))


def _default(kind: Type) -> int | bool | None:
    if kind is Scalar.BOOL:
        return False
    return 0 if isinstance(kind, Scalar | Enumeration) else None


_INT, _BOOL, _TEXT, _OCTETS = Scalar.INT32, Scalar.BOOL, Blob.TEXT, Blob.OCTETS
_INTS, _SHORTS = Vector(Scalar.INT32), Vector(Scalar.INT16)

_POOL = _table(
    "PoolAttribute",
    pad=_INTS,
    kernel=_INTS,
    stride=_INTS,
    input_zp=_INT,
    output_zp=_INT,
    accum_dtype=DTYPE,
)
_CONV = _table(
    "ConvAttribute",
    pad=_INTS,
    stride=_INTS,
    dilation=_INTS,
    input_zp=_INT,
    weight_zp=_INT,
    local_bound=_BOOL,
)
_TRANSPOSE_CONV = _table(
    "TransposeConvAttribute",
    out_pad=_INTS,
    stride=_INTS,
    output_shape=_INTS,
    input_zp=_INT,
    weight_zp=_INT,
    local_bound=_BOOL,
)
_PAD = _table("PadAttribute", padding=_INTS, pad_const_int=_INT, pad_const_fp=_OCTETS)
_RESIZE = _table("ResizeAttribute", scale=_SHORTS, offset=_SHORTS, border=_SHORTS, mode=RESIZE_MODE)
_CLAMP = _table("ClampAttribute", min_int=_INT, max_int=_INT, min_fp=_OCTETS, max_fp=_OCTETS)
_RESCALE = _table(
    "RescaleAttribute",
    input_zp=_INT,
    output_zp=_INT,
    multiplier=_INTS,
    shift=_INTS,
    scale32=_BOOL,
    double_round=_BOOL,
    per_channel=_BOOL,
    input_unsigned=_BOOL,
    output_unsigned=_BOOL,
)
_CUSTOM = _table(
    "CustomAttribute", operator_name=_TEXT, domain_name=_TEXT, implementation_attrs=_OCTETS
)
_ON_AXIS = (
    "ARGMAX REDUCE_ANY REDUCE_ALL REDUCE_MAX REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM CONCAT REVERSE "
    "DIM"
)
# Attribute tables in the order of their numbers, which start at 1, each with its operators.
_ATTRIBUTES = (
    (_POOL, "AVG_POOL2D MAX_POOL2D"),
    (_CONV, "CONV2D CONV3D DEPTHWISE_CONV2D"),
    (_TRANSPOSE_CONV, "TRANSPOSE_CONV2D"),
    (_PAD, "PAD"),
    (_table("AxisAttribute", axis=_INT), _ON_AXIS),
    (_table("ReshapeAttribute", new_shape=_INTS), "RESHAPE"),
    (_table("SliceAttribute", start=_INTS, size=_INTS), "SLICE"),
    (_table("TileAttribute", multiples=_INTS), "TILE"),
    (_RESIZE, "RESIZE"),
    (_CLAMP, "CLAMP"),
    (_RESCALE, "RESCALE"),
    (_table("MulAttribute", shift=_INT), "MUL"),
    (_table("ArithmeticRightShiftAttribute", round=_BOOL), "ARITHMETIC_RIGHT_SHIFT"),
    (_table("CondIfAttribute", then_branch=_TEXT, else_branch=_TEXT), "COND_IF"),
    (_table("WhileLoopAttribute", cond_branch=_TEXT, body_branch=_TEXT), "WHILE_LOOP"),
    (_table("TransposeAttribute", perms=_INTS), "TRANSPOSE"),
    (_table("TableAttribute", table=_SHORTS), "TABLE"),
    (_table("MatMulAttribute", a_zp=_INT, b_zp=_INT), "MATMUL"),
    (_table("FullyConnectedAttribute", input_zp=_INT, weight_zp=_INT), "FULLY_CONNECTED"),
    (_table("NegateAttribute", input1_zp=_INT, output_zp=_INT), "NEGATE"),
    (_CUSTOM, "CUSTOM"),
    (_table("FFTAttribute", inverse=_BOOL, local_bound=_BOOL), "FFT2D"),
    (_table("RFFTAttribute", local_bound=_BOOL), "RFFT2D"),
)
ATTRIBUTES = {op: table for table, ops in _ATTRIBUTES for op in ops.split()}

# Tables and fields that 0.60 does not have, and fields with different names there.
_LATER_TABLES = ("RFFTAttribute",)
_LATER_FIELDS = (
    "local_bound",
    "input_unsigned",
    "output_unsigned",
    "variable",
    "is_unranked",
    "variable_name",
)
RENAMED = {"identifier": "operator_name", "config": "domain_name"}
_EARLIER_NAMES = {name: earlier for earlier, name in RENAMED.items()}


def _in_0_60(table: Table) -> Table:
    fields = (field for field in table.fields if field.name not in _LATER_FIELDS)
    names = _EARLIER_NAMES
    return Table(
        table.name,
        tuple(dataclasses.replace(f, name=names.get(f.name, f.name)) for f in fields),
    )


# The graph.

_TENSOR = _table(
    "TosaTensor",
    name=_TEXT,
    shape=_INTS,
    type=DTYPE,
    data=_OCTETS,
    variable=_BOOL,
    is_unranked=_BOOL,
    variable_name=_TEXT,
)


class Layout(NamedTuple):
    """The schema of one version.

    Args:
      graph: the root table.
      op: the numbers of operators.
      dtype: the numbers of element types.
      attribute_type: the numbers of attribute tables.
    """

    graph: Table
    op: Enumeration
    dtype: Enumeration
    attribute_type: Enumeration


def _layout(
    operators: str,
    dtype: Enumeration = DTYPE,
    attributes: Iterable[Table] = tuple(table for table, _ in _ATTRIBUTES),
    tensor: Table = _TENSOR,
    version: Table = schema.VERSION,
) -> Layout:
    tables = dict(enumerate(attributes, 1))
    names = ("NONE", *(table.name for table in tables.values()))
    op = Enumeration("Op", _numbered(operators.split()))
    attribute_type = Enumeration("Attribute", _numbered(names), Scalar.UINT8)
    operator = _table(
        "TosaOperator",
        op=op,
        attribute_type=attribute_type,
        attribute=Union("attribute_type", tables),
        inputs=Vector(_TEXT),
        outputs=Vector(_TEXT),
    )
    block = _table(
        "TosaBasicBlock",
        name=_TEXT,
        operators=Vector(operator),
        tensors=Vector(tensor),
        inputs=Vector(_TEXT),
        outputs=Vector(_TEXT),
    )
    region = _table("TosaRegion", name=_TEXT, blocks=Vector(block))
    graph = _table("TosaGraph", version=version, regions=Vector(region))
    return Layout(graph, op, dtype, attribute_type)


def _layout_of_0_60() -> Layout:
    dtype = Enumeration("DType", _numbered(_DTYPES.split()))
    attributes = [table for table, _ in _ATTRIBUTES if table.name not in _LATER_TABLES]
    defaults = (0, 60, 0, False)
    version = Table(
        "Version",
        tuple(
            dataclasses.replace(field, default=default)
            for field, default in zip(schema.VERSION.fields, defaults, strict=True)
        ),
    )
    return _layout(_OPERATORS, dtype, map(_in_0_60, attributes), _in_0_60(_TENSOR), version)


# The schemas, by major and minor version.
LAYOUTS = {
    (0, 60): _layout_of_0_60(),
    (0, 80): _layout(_OPERATORS_0_80),
    (0, 90): _layout(_OPERATORS_0_90),
}

# The operators of all these versions, and the operators for variables, which files do not have.
OPERATORS = frozenset([*_OPERATORS_0_90.split(), "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"]) - {
    "UNKNOWN",
    "RESERVED",
}
