"""Table of the operators of "Tensor Operators", convolutions (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.enums import AccType
from tosajax.spec.model import Accuracy, Operator, constant, integers, result, rows, scalar, tensor

_PRODUCTS = rows(
    "in_t weight_t out_t acc_t",
    ("PRO-FP", "fp16 with fp16 accumulate", "FP16 FP16 FP16 FP16"),
    ("PRO-FP", "fp16 with fp32 accumulate", "FP16 FP16 FP16 FP32"),
    ("PRO-FP", "fp32 with fp32 accumulate", "FP32 FP32 FP32 FP32"),
    ("PRO-INT", "signed 8x8 with int32 accumulate", "INT8 INT8 INT32 INT32"),
    ("EXT-BF16", "bf16 with fp32 accumulate", "BF16 BF16 BF16 FP32"),
    ("EXT-FP8E4M3", "fp8e4m3 with fp16 accumulate", "FP8E4M3 FP8E4M3 FP16 FP16"),
    ("EXT-FP8E5M2", "fp8e5m2 with fp16 accumulate", "FP8E5M2 FP8E5M2 FP16 FP16"),
    ("EXT-INT16", "signed 16x8 with int48 accumulate", "INT16 INT8 INT48 INT48"),
    ("EXT-INT4", "signed 8x4 with int32 accumulate", "INT8 INT4 INT32 INT32"),
)

CONV2D = Operator(
    "CONV2D",
    chapter="conv",
    section="2.3.3",
    number=3,
    instruction=2,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input", "in_t", "[N, IH, IW, IC]"),
        tensor("weight", "weight_t", "[OC, KH, KW, IC]", prepared=True),
        tensor("bias", "out_t", "[BC]"),
        constant("input_zp", "in_t", "[1]", prepared=True),
        constant("weight_zp", "weight_t", "[1]", prepared=True),
        integers("pad", "4"),
        integers("stride", "2"),
        integers("dilation", "2"),
        scalar("acc_type", AccType),
        scalar("local_bound", bool, default=False),
        result("output", "out_t", "[N, OH, OW, OC]"),
    ),
    types=_PRODUCTS,
)

CONV3D = Operator(
    "CONV3D",
    chapter="conv",
    section="2.3.4",
    number=4,
    instruction=3,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input", "in_t", "[N, ID, IH, IW, IC]"),
        tensor("weight", "weight_t", "[OC, KD, KH, KW, IC]", prepared=True),
        tensor("bias", "out_t", "[BC]"),
        constant("input_zp", "in_t", "[1]", prepared=True),
        constant("weight_zp", "weight_t", "[1]", prepared=True),
        integers("pad", "6"),
        integers("stride", "3"),
        integers("dilation", "3"),
        scalar("acc_type", AccType),
        scalar("local_bound", bool, default=False),
        result("output", "out_t", "[N, OD, OH, OW, OC]"),
    ),
    types=_PRODUCTS,
)

DEPTHWISE_CONV2D = Operator(
    "DEPTHWISE_CONV2D",
    chapter="conv",
    section="2.3.5",
    number=5,
    instruction=4,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input", "in_t", "[N, IH, IW, C]"),
        tensor("weight", "weight_t", "[KH, KW, C, M]", prepared=True),
        tensor("bias", "out_t", "[BC]"),
        constant("input_zp", "in_t", "[1]", prepared=True),
        constant("weight_zp", "weight_t", "[1]", prepared=True),
        integers("pad", "4"),
        integers("stride", "2"),
        integers("dilation", "2"),
        scalar("acc_type", AccType),
        scalar("local_bound", bool, default=False),
        result("output", "out_t", "[N, OH, OW, C*M]"),
    ),
    types=_PRODUCTS,
)

TRANSPOSE_CONV2D = Operator(
    "TRANSPOSE_CONV2D",
    chapter="conv",
    section="2.3.10",
    number=10,
    instruction=9,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("input", "in_t", "[N, IH, IW, IC]"),
        tensor("weight", "weight_t", "[OC, KH, KW, IC]", prepared=True),
        tensor("bias", "out_t", "[BC]"),
        constant("input_zp", "in_t", "[1]", prepared=True),
        constant("weight_zp", "weight_t", "[1]", prepared=True),
        integers("out_pad", "4"),
        integers("stride", "2"),
        scalar("acc_type", AccType),
        scalar("local_bound", bool, default=False),
        result("output", "out_t", "[N, OH, OW, OC]"),
    ),
    types=_PRODUCTS,
)

OPERATORS = (
    CONV2D,
    CONV3D,
    DEPTHWISE_CONV2D,
    TRANSPOSE_CONV2D,
)
