"""Table of the operators of "Comparison Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import MAX_RANK, Operator, Rank, result, rows, tensor

_OF_TWO = (
    tensor("input1", "in_t", "shape1", Rank(0, MAX_RANK)),
    tensor("input2", "in_t", "shape2", Rank(0, MAX_RANK)),
    result("output", "out_t", "shape", Rank(0, MAX_RANK)),
)
_NUMBERS_TO_BOOL = rows(
    "in_t out_t",
    ("PRO-FP", "fp16", "FP16 BOOL"),
    ("PRO-FP", "fp32", "FP32 BOOL"),
    ("PRO-INT", "signed 32", "INT32 BOOL"),
    ("EXT-BF16", "bf16", "BF16 BOOL"),
)

EQUAL = Operator(
    "EQUAL",
    chapter="comparison",
    section="2.8.1",
    number=46,
    instruction=45,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_NUMBERS_TO_BOOL,
)

GREATER = Operator(
    "GREATER",
    chapter="comparison",
    section="2.8.2",
    number=47,
    instruction=46,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_NUMBERS_TO_BOOL,
)

GREATER_EQUAL = Operator(
    "GREATER_EQUAL",
    chapter="comparison",
    section="2.8.3",
    number=48,
    instruction=47,
    is_elementwise=True,
    arguments=_OF_TWO,
    types=_NUMBERS_TO_BOOL,
)

OPERATORS = (
    EQUAL,
    GREATER,
    GREATER_EQUAL,
)
