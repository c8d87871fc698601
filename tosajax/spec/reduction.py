"""Table of the operators of "Reduction Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import NanMode
from tosajax.spec.model import MAX_RANK, Accuracy, Operator, Rank, result, rows, scalar, tensor

_ALONG_AXIS = (
    tensor("input", "in_out_t", "shape1", Rank(1, MAX_RANK)),
    scalar("axis", int),
    result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
)
_ALONG_AXIS_WITH_NAN = (
    tensor("input", "in_out_t", "shape1", Rank(1, MAX_RANK)),
    scalar("axis", int),
    scalar("nan_mode", NanMode, default=NanMode.PROPAGATE),
    result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
)
_BOOLEANS = rows(
    "in_out_t",
    ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
)
_NUMBERS = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("PRO-INT", "signed 16", "INT16"),
    ("PRO-INT", "signed 32", "INT32"),
    ("PRO-INT", "signed 8", "INT8"),
    ("EXT-BF16", "bf16", "BF16"),
)

REDUCE_ALL = Operator(
    "REDUCE_ALL",
    chapter="reduction",
    section="2.9.1",
    number=49,
    instruction=48,
    arguments=_ALONG_AXIS,
    types=_BOOLEANS,
)

REDUCE_ANY = Operator(
    "REDUCE_ANY",
    chapter="reduction",
    section="2.9.2",
    number=50,
    instruction=49,
    arguments=_ALONG_AXIS,
    types=_BOOLEANS,
)

REDUCE_MAX = Operator(
    "REDUCE_MAX",
    chapter="reduction",
    section="2.9.3",
    number=51,
    instruction=50,
    arguments=_ALONG_AXIS_WITH_NAN,
    types=_NUMBERS,
    keeps_scale=True,
)

REDUCE_MIN = Operator(
    "REDUCE_MIN",
    chapter="reduction",
    section="2.9.4",
    number=52,
    instruction=51,
    arguments=_ALONG_AXIS_WITH_NAN,
    types=_NUMBERS,
    keeps_scale=True,
)

REDUCE_PRODUCT = Operator(
    "REDUCE_PRODUCT",
    chapter="reduction",
    section="2.9.5",
    number=53,
    instruction=52,
    accuracy=Accuracy("REDUCE_PRODUCT"),
    arguments=_ALONG_AXIS,
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("EXT-BF16", "bf16", "BF16"),
    ),
)

REDUCE_SUM = Operator(
    "REDUCE_SUM",
    chapter="reduction",
    section="2.9.6",
    number=54,
    instruction=53,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=_ALONG_AXIS,
    types=rows(
        "in_out_t acc_t",
        ("PRO-FP", "fp16", "FP16 FP16"),
        ("PRO-FP", "fp32", "FP32 FP32"),
        ("PRO-INT", "signed 32", "INT32 INT32"),
        ("EXT-BF16", "bf16", "BF16 FP32"),
    ),
)

OPERATORS = (
    REDUCE_ALL,
    REDUCE_ANY,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PRODUCT,
    REDUCE_SUM,
)
