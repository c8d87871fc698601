"""Table of the operators of "Variable Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.spec.enums import VarType
from tosajax.spec.model import (
    MAX_RANK,
    Argument,
    Form,
    Kind,
    Operator,
    Rank,
    result,
    rows,
    scalar,
    tensor,
    values,
)

VARIABLE = Operator(
    "VARIABLE",
    chapter="variable",
    section="2.17.1",
    number=72,
    is_function=False,
    arguments=(
        scalar("name", str),
        Argument("var_shape", Kind.ATTRIBUTE, Form.SHAPE, DType.SHAPE, "var_shape", Rank(1, 1)),
        scalar("type", VarType),
        values("initial_value", "in_t", "shape", Rank(0, MAX_RANK), default=None),
    ),
    types=rows(
        "in_t",
        ("EXT-VARIABLE and PRO-FP", "fp16", "FP16"),
        ("EXT-VARIABLE and PRO-FP", "fp32", "FP32"),
        ("EXT-VARIABLE and PRO-INT", "signed 8", "INT8"),
    ),
)

VARIABLE_WRITE = Operator(
    "VARIABLE_WRITE",
    chapter="variable",
    section="2.17.2",
    number=73,
    is_function=False,
    arguments=(
        tensor("input1", "in_t", "shape", Rank(0, MAX_RANK)),
        scalar("name", str),
    ),
    types=rows(
        "in_t",
        ("EXT-VARIABLE and PRO-FP", "fp16", "FP16"),
        ("EXT-VARIABLE and PRO-FP", "fp32", "FP32"),
        ("EXT-VARIABLE and PRO-INT", "signed 8", "INT8"),
    ),
)

VARIABLE_READ = Operator(
    "VARIABLE_READ",
    chapter="variable",
    section="2.17.3",
    number=74,
    is_function=False,
    arguments=(
        scalar("name", str),
        result("output1", "out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "out_t",
        ("EXT-VARIABLE and PRO-FP", "fp16", "FP16"),
        ("EXT-VARIABLE and PRO-FP", "fp32", "FP32"),
        ("EXT-VARIABLE and PRO-INT", "signed 8", "INT8"),
    ),
)

OPERATORS = (
    VARIABLE,
    VARIABLE_WRITE,
    VARIABLE_READ,
)
