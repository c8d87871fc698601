"""Table of the operators of "Image Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import ResizeMode
from tosajax.spec.model import Accuracy, Operator, result, rows, scalar, shape, tensor

RESIZE = Operator(
    "RESIZE",
    chapter="image",
    section="2.12.1",
    number=64,
    instruction=63,
    is_homogeneous=True,
    accuracy=Accuracy("MAX_RELATIVE"),
    arguments=(
        tensor("input", "in_t", "[N, IH, IW, C]"),
        shape("scale", "4"),
        shape("offset", "2"),
        shape("border", "2"),
        scalar("mode", ResizeMode),
        result("output", "out_t", "[N, OH, OW, C]"),
    ),
    types=rows(
        "resize_t in_t out_t",
        ("PRO-FP", "fp16", "FP16 FP16 FP16"),
        ("PRO-FP", "fp32", "FP32 FP32 FP32"),
        ("PRO-INT", "signed 8, bilinear", "INT16 INT8 INT32"),
        ("PRO-INT", "signed 8, nearest", "INT16 INT8 INT8"),
        ("EXT-BF16", "bf16", "BF16 BF16 BF16"),
        ("EXT-INT16", "signed 16, bilinear", "INT16 INT16 INT48"),
        ("EXT-INT16", "signed 16, nearest", "INT16 INT16 INT16"),
    ),
)

OPERATORS = (RESIZE,)
