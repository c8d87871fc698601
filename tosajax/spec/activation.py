"""Table of the operators of "Activation Functions" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import NanMode
from tosajax.spec.model import MAX_RANK, Accuracy, Operator, Rank, result, rows, scalar, tensor

_OF_ONE = (
    tensor("input", "in_out_t", "shape", Rank(0, MAX_RANK)),
    result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
)
_FLOATS = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("EXT-BF16", "bf16", "BF16"),
)

CLAMP = Operator(
    "CLAMP",
    chapter="activation",
    section="2.4.1",
    number=11,
    instruction=10,
    is_elementwise=True,
    arguments=(
        tensor("input", "in_out_t", "shape", Rank(0, MAX_RANK)),
        scalar("min_val", "in_out_t"),
        scalar("max_val", "in_out_t"),
        scalar("nan_mode", NanMode, default=NanMode.PROPAGATE),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT", "signed 8", "INT8"),
        ("EXT-BF16", "bf16", "BF16"),
        ("EXT-INT16", "signed 16", "INT16"),
    ),
    keeps_scale=True,
)

ERF = Operator(
    "ERF",
    chapter="activation",
    section="2.4.2",
    number=12,
    instruction=11,
    is_elementwise=True,
    accuracy=Accuracy("ULP", ulps=5.0),
    arguments=_OF_ONE,
    types=_FLOATS,
)

SIGMOID = Operator(
    "SIGMOID",
    chapter="activation",
    section="2.4.3",
    number=13,
    instruction=12,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
)

TANH = Operator(
    "TANH",
    chapter="activation",
    section="2.4.4",
    number=14,
    instruction=13,
    is_elementwise=True,
    accuracy=Accuracy("ABS_ERROR", special=True),
    arguments=_OF_ONE,
    types=_FLOATS,
)

OPERATORS = (
    CLAMP,
    ERF,
    SIGMOID,
    TANH,
)
