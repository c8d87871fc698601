"""Table of the operators of "Tensor Operators", MATMUL (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import Accuracy, Operator, constant, result, rows, tensor

MATMUL = Operator(
    "MATMUL",
    chapter="products",
    section="2.3.7",
    number=7,
    instruction=6,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("a", "in_t", "[N, H, C]"),
        tensor("b", "in_t", "[N, C, W]", prepared=True),
        constant("a_zp", "in_t", "[1]", prepared=True),
        constant("b_zp", "in_t", "[1]", prepared=True),
        result("output", "out_t", "[N, H, W]"),
    ),
    types=rows(
        "in_t out_t",
        ("PRO-FP", "fp16 with fp16 accumulate", "FP16 FP16"),
        ("PRO-FP", "fp16 with fp32 accumulate", "FP16 FP32"),
        ("PRO-FP", "fp32 with fp32 accumulate", "FP32 FP32"),
        ("PRO-INT", "signed 8x8 with int32 accumulate", "INT8 INT32"),
        ("EXT-BF16", "bf16 with fp32 accumulate", "BF16 FP32"),
        ("EXT-FP8E4M3", "fp8e4m3 with fp16 accumulate", "FP8E4M3 FP16"),
        ("EXT-FP8E5M2", "fp8e5m2 with fp16 accumulate", "FP8E5M2 FP16"),
        ("EXT-INT16", "signed 16x16 with int48 accumulate", "INT16 INT48"),
    ),
)

OPERATORS = (MATMUL,)
