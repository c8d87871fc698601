"""Table of the operators of "Tensor Operators", ARGMAX (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import NanMode
from tosajax.spec.model import MAX_RANK, Operator, Rank, result, rows, scalar, tensor

ARGMAX = Operator(
    "ARGMAX",
    chapter="indices",
    section="2.3.1",
    number=1,
    instruction=0,
    arguments=(
        tensor("input", "in_t", "shape1", Rank(1, MAX_RANK)),
        scalar("axis", int),
        scalar("nan_mode", NanMode, default=NanMode.PROPAGATE),
        result("output", "out_t", "shape", Rank(0, MAX_RANK - 1)),
    ),
    types=rows(
        "in_t out_t",
        ("PRO-FP", "fp16", "FP16 INT32"),
        ("PRO-FP", "fp32", "FP32 INT32"),
        ("PRO-INT", "signed 8", "INT8 INT32"),
        ("EXT-BF16", "bf16", "BF16 INT32"),
        ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3 INT32"),
        ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2 INT32"),
        ("EXT-INT16", "signed 16", "INT16 INT32"),
    ),
)

OPERATORS = (ARGMAX,)
