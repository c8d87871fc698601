"""Table of the operators of "Elementwise Ternary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.spec.model import MAX_RANK, Operator, Rank, result, rows, tensor

SELECT = Operator(
    "SELECT",
    chapter="elementwise_ternary",
    section="2.7.1",
    number=45,
    instruction=44,
    is_elementwise=True,
    is_signless=True,
    arguments=(
        tensor("input1", DType.BOOL, "shape1", Rank(0, MAX_RANK)),
        tensor("input2", "in_out_t", "shape2", Rank(0, MAX_RANK)),
        tensor("input3", "in_out_t", "shape3", Rank(0, MAX_RANK)),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
        ("PRO-INT", "signed 16", "INT16"),
        ("PRO-INT", "signed 32", "INT32"),
        ("PRO-INT", "signed 8", "INT8"),
        ("EXT-BF16", "bf16", "BF16"),
    ),
)

OPERATORS = (SELECT,)
