"""Table of the operators of "Elementwise Binary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.spec.enums import NanMode
from tosajax.spec.model import (
    MAX_RANK,
    Accuracy,
    Operator,
    Rank,
    constant,
    result,
    rows,
    scalar,
    tensor,
)

_OF_TWO = (
    tensor("input1", "in_out_t", "shape1", Rank(0, MAX_RANK)),
    tensor("input2", "in_out_t", "shape2", Rank(0, MAX_RANK)),
    result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
)
_OF_TWO_WITH_NAN = (
    tensor("input1", "in_out_t", "shape1", Rank(0, MAX_RANK)),
    tensor("input2", "in_out_t", "shape2", Rank(0, MAX_RANK)),
    scalar("nan_mode", NanMode, default=NanMode.PROPAGATE),
    result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
)
_NUMBERS_OF_BOTH_PROFILES = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("PRO-INT or PRO-FP", "signed 32", "INT32"),
    ("EXT-BF16", "bf16", "BF16"),
)
_INTEGERS = rows(
    "in_out_t",
    ("PRO-INT", "signed 16", "INT16"),
    ("PRO-INT", "signed 32", "INT32"),
    ("PRO-INT", "signed 8", "INT8"),
)
_BOOLEANS = rows(
    "in_out_t",
    ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
)
_INTEGERS_OF_BOTH_PROFILES = rows(
    "in_out_t",
    ("PRO-INT or PRO-FP", "signed 16", "INT16"),
    ("PRO-INT or PRO-FP", "signed 32", "INT32"),
    ("PRO-INT or PRO-FP", "signed 8", "INT8"),
)
_NUMBERS = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("PRO-INT", "signed 32", "INT32"),
    ("EXT-BF16", "bf16", "BF16"),
)

ADD = Operator(
    "ADD",
    chapter="elementwise_binary",
    section="2.5.1",
    number=15,
    instruction=14,
    is_elementwise=True,
    is_homogeneous=True,
    accuracy=Accuracy("ULP", ulps=0.5, suite_bf16=1.0),
    arguments=_OF_TWO,
    types=_NUMBERS_OF_BOTH_PROFILES,
)

ARITHMETIC_RIGHT_SHIFT = Operator(
    "ARITHMETIC_RIGHT_SHIFT",
    chapter="elementwise_binary",
    section="2.5.2",
    number=16,
    instruction=15,
    is_elementwise=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(0, MAX_RANK)),
        tensor("input2", "in_out_t", "shape2", Rank(0, MAX_RANK)),
        scalar("round", bool),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=_INTEGERS,
)

BITWISE_AND = Operator(
    "BITWISE_AND",
    chapter="elementwise_binary",
    section="2.5.3",
    number=17,
    instruction=16,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_INTEGERS,
)

BITWISE_OR = Operator(
    "BITWISE_OR",
    chapter="elementwise_binary",
    section="2.5.4",
    number=18,
    instruction=17,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_INTEGERS,
)

BITWISE_XOR = Operator(
    "BITWISE_XOR",
    chapter="elementwise_binary",
    section="2.5.5",
    number=19,
    instruction=18,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_INTEGERS,
)

INTDIV = Operator(
    "INTDIV",
    chapter="elementwise_binary",
    section="2.5.6",
    number=20,
    instruction=19,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=rows(
        "in_out_t",
        ("PRO-INT or PRO-FP", "signed 32", "INT32"),
    ),
)

LOGICAL_AND = Operator(
    "LOGICAL_AND",
    chapter="elementwise_binary",
    section="2.5.7",
    number=21,
    instruction=20,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_BOOLEANS,
)

LOGICAL_LEFT_SHIFT = Operator(
    "LOGICAL_LEFT_SHIFT",
    chapter="elementwise_binary",
    section="2.5.8",
    number=22,
    instruction=21,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_INTEGERS_OF_BOTH_PROFILES,
)

LOGICAL_RIGHT_SHIFT = Operator(
    "LOGICAL_RIGHT_SHIFT",
    chapter="elementwise_binary",
    section="2.5.9",
    number=23,
    instruction=22,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_INTEGERS_OF_BOTH_PROFILES,
)

LOGICAL_OR = Operator(
    "LOGICAL_OR",
    chapter="elementwise_binary",
    section="2.5.10",
    number=24,
    instruction=23,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_BOOLEANS,
)

LOGICAL_XOR = Operator(
    "LOGICAL_XOR",
    chapter="elementwise_binary",
    section="2.5.11",
    number=25,
    instruction=24,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_BOOLEANS,
)

MAXIMUM = Operator(
    "MAXIMUM",
    chapter="elementwise_binary",
    section="2.5.12",
    number=26,
    instruction=25,
    is_elementwise=True,
    is_homogeneous=True,
    arguments=_OF_TWO_WITH_NAN,
    types=_NUMBERS,
)

MINIMUM = Operator(
    "MINIMUM",
    chapter="elementwise_binary",
    section="2.5.13",
    number=27,
    instruction=26,
    is_elementwise=True,
    is_homogeneous=True,
    arguments=_OF_TWO_WITH_NAN,
    types=_NUMBERS,
)

MUL = Operator(
    "MUL",
    chapter="elementwise_binary",
    section="2.5.14",
    number=28,
    instruction=27,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=0.5, suite_bf16=1.0),
    arguments=(
        tensor("input1", "in_t", "shape1", Rank(0, MAX_RANK)),
        tensor("input2", "in_t", "shape2", Rank(0, MAX_RANK)),
        constant("shift", DType.INT8, "[1]", prepared=True),
        result("output", "out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_t out_t",
        ("PRO-FP", "fp16", "FP16 FP16"),
        ("PRO-FP", "fp32", "FP32 FP32"),
        ("PRO-INT", "signed 16", "INT16 INT32"),
        ("PRO-INT or PRO-FP", "signed 32", "INT32 INT32"),
        ("PRO-INT", "signed 8", "INT8 INT32"),
        ("EXT-BF16", "bf16", "BF16 BF16"),
    ),
)

POW = Operator(
    "POW",
    chapter="elementwise_binary",
    section="2.5.15",
    number=29,
    instruction=28,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR"),
    arguments=_OF_TWO,
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("EXT-BF16", "bf16", "BF16"),
    ),
    is_singular=True,
)

SUB = Operator(
    "SUB",
    chapter="elementwise_binary",
    section="2.5.16",
    number=30,
    instruction=29,
    is_elementwise=True,
    is_homogeneous=True,
    accuracy=Accuracy("ULP", ulps=0.5, suite_bf16=1.0),
    arguments=_OF_TWO,
    types=_NUMBERS_OF_BOTH_PROFILES,
)

TABLE = Operator(
    "TABLE",
    chapter="elementwise_binary",
    section="2.5.17",
    number=31,
    instruction=30,
    is_elementwise=True,
    arguments=(
        tensor("input1", "in_t", "shape", Rank(0, MAX_RANK)),
        constant("table", "table_t", "[TABLE_SIZE]", profiles="PRO-INT"),
        result("output", "out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_t table_t out_t TABLE_SIZE",
        ("PRO-INT", "signed 8", "INT8 INT8 INT8 256"),
        ("EXT-INT16", "signed 16", "INT16 INT16 INT32 513"),
    ),
)

OPERATORS = (
    ADD,
    ARITHMETIC_RIGHT_SHIFT,
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    INTDIV,
    LOGICAL_AND,
    LOGICAL_LEFT_SHIFT,
    LOGICAL_RIGHT_SHIFT,
    LOGICAL_OR,
    LOGICAL_XOR,
    MAXIMUM,
    MINIMUM,
    MUL,
    POW,
    SUB,
    TABLE,
)
