"""Table of the operators of "Tensor Operators", pooling (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import AccType, NanMode
from tosajax.spec.model import Accuracy, Operator, constant, integers, result, rows, scalar, tensor

AVG_POOL2D = Operator(
    "AVG_POOL2D",
    chapter="pool",
    section="2.3.2",
    number=2,
    instruction=1,
    is_homogeneous=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input", "in_out_t", "[N, IH, IW, C]"),
        constant("input_zp", "in_out_t", "[1]", prepared=True),
        constant("output_zp", "in_out_t", "[1]", prepared=True),
        integers("kernel", "2"),
        integers("stride", "2"),
        integers("pad", "4"),
        scalar("acc_type", AccType),
        result("output", "in_out_t", "[N, OH, OW, C]"),
    ),
    types=rows(
        "in_out_t acc_t",
        ("PRO-FP", "fp16 with fp16 accumulate", "FP16 FP16"),
        ("PRO-FP", "fp16 with fp32 accumulate", "FP16 FP32"),
        ("PRO-FP", "fp32 with fp32 accumulate", "FP32 FP32"),
        ("PRO-INT", "signed 8 with int32 accumulate", "INT8 INT32"),
        ("EXT-BF16", "bf16 with fp32 accumulate", "BF16 FP32"),
        ("EXT-FP8E4M3", "fp8e4m3 with fp16 accumulate", "FP8E4M3 FP16"),
        ("EXT-FP8E5M2", "fp8e5m2 with fp16 accumulate", "FP8E5M2 FP16"),
        ("EXT-INT16", "signed 16 with int32 accumulate", "INT16 INT32"),
    ),
)

MAX_POOL2D = Operator(
    "MAX_POOL2D",
    chapter="pool",
    section="2.3.8",
    number=8,
    instruction=7,
    is_homogeneous=True,
    arguments=(
        tensor("input", "in_out_t", "[N, IH, IW, C]"),
        integers("kernel", "2"),
        integers("stride", "2"),
        integers("pad", "4"),
        scalar("nan_mode", NanMode, default=NanMode.PROPAGATE),
        result("output", "in_out_t", "[N, OH, OW, C]"),
    ),
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT", "signed 8", "INT8"),
        ("EXT-BF16", "bf16", "BF16"),
        ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3"),
        ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2"),
        ("EXT-INT16", "signed 16", "INT16"),
    ),
    keeps_scale=True,
)

OPERATORS = (
    AVG_POOL2D,
    MAX_POOL2D,
)
