"""Table of the operators of "Elementwise Unary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import MAX_RANK, Accuracy, Operator, Rank, constant, result, rows, tensor

_OF_ONE = (
    tensor("input1", "in_out_t", "shape", Rank(0, MAX_RANK)),
    result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
)
_FLOATS = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("EXT-BF16", "bf16", "BF16"),
)

ABS = Operator(
    "ABS",
    chapter="elementwise_unary",
    section="2.6.1",
    number=32,
    instruction=31,
    is_elementwise=True,
    is_homogeneous=True,
    arguments=_OF_ONE,
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT", "signed 32", "INT32"),
        ("EXT-BF16", "bf16", "BF16"),
    ),
)

BITWISE_NOT = Operator(
    "BITWISE_NOT",
    chapter="elementwise_unary",
    section="2.6.2",
    number=33,
    instruction=32,
    is_elementwise=True,
    arguments=_OF_ONE,
    types=rows(
        "in_out_t",
        ("PRO-INT", "signed 16", "INT16"),
        ("PRO-INT", "signed 32", "INT32"),
        ("PRO-INT", "signed 8", "INT8"),
    ),
)

CEIL = Operator(
    "CEIL",
    chapter="elementwise_unary",
    section="2.6.3",
    number=34,
    instruction=33,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=0.5),
    arguments=_OF_ONE,
    types=_FLOATS,
)

CLZ = Operator(
    "CLZ",
    chapter="elementwise_unary",
    section="2.6.4",
    number=35,
    instruction=34,
    is_elementwise=True,
    arguments=_OF_ONE,
    types=rows(
        "in_out_t",
        ("PRO-INT", "signed 32", "INT32"),
    ),
)

COS = Operator(
    "COS",
    chapter="elementwise_unary",
    section="2.6.5",
    number=36,
    instruction=35,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
)

EXP = Operator(
    "EXP",
    chapter="elementwise_unary",
    section="2.6.6",
    number=37,
    instruction=36,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
)

FLOOR = Operator(
    "FLOOR",
    chapter="elementwise_unary",
    section="2.6.7",
    number=38,
    instruction=37,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=0.5),
    arguments=_OF_ONE,
    types=_FLOATS,
)

LOG = Operator(
    "LOG",
    chapter="elementwise_unary",
    section="2.6.8",
    number=39,
    instruction=38,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
    is_singular=True,
)

LOGICAL_NOT = Operator(
    "LOGICAL_NOT",
    chapter="elementwise_unary",
    section="2.6.9",
    number=40,
    instruction=39,
    is_elementwise=True,
    arguments=_OF_ONE,
    types=rows(
        "in_out_t",
        ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
    ),
)

NEGATE = Operator(
    "NEGATE",
    chapter="elementwise_unary",
    section="2.6.10",
    number=41,
    instruction=40,
    is_elementwise=True,
    is_homogeneous=True,
    arguments=(
        tensor("input1", "in_out_t", "shape", Rank(0, MAX_RANK)),
        constant("input1_zp", "in_out_t", "[1]"),
        constant("output_zp", "in_out_t", "[1]", prepared=True),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_out_t acc_t",
        ("PRO-FP", "fp16", "FP16 FP16"),
        ("PRO-FP", "fp32", "FP32 FP32"),
        ("PRO-INT", "signed 16", "INT16 INT32"),
        ("PRO-INT", "signed 32", "INT32 INT32"),
        ("PRO-INT", "signed 8", "INT8 INT32"),
        ("EXT-BF16", "bf16", "BF16 BF16"),
    ),
)

RECIPROCAL = Operator(
    "RECIPROCAL",
    chapter="elementwise_unary",
    section="2.6.11",
    number=42,
    instruction=41,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=1.0),
    arguments=_OF_ONE,
    types=_FLOATS,
    is_singular=True,
)

RSQRT = Operator(
    "RSQRT",
    chapter="elementwise_unary",
    section="2.6.12",
    number=43,
    instruction=42,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=2.0),
    arguments=_OF_ONE,
    types=_FLOATS,
    is_singular=True,
)

SIN = Operator(
    "SIN",
    chapter="elementwise_unary",
    section="2.6.13",
    number=44,
    instruction=43,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
)

OPERATORS = (
    ABS,
    BITWISE_NOT,
    CEIL,
    CLZ,
    COS,
    EXP,
    FLOOR,
    LOG,
    LOGICAL_NOT,
    NEGATE,
    RECIPROCAL,
    RSQRT,
    SIN,
)
