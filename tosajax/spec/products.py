"""Table of the operators of "Tensor Operators", MATMUL (TOSA 1.0.1) and MATMUL_T (1.1 draft)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tosajax.spec.model import Accuracy, Operator, constant, result, rows, tensor
from tosajax.versions import V1_1

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

# What a target needs for each float type, but those of blocks, which tosajax does not have yet.
_FLOATS = {
    "FP32": "PRO-FP",
    "FP16": "PRO-FP",
    "BF16": "EXT-BF16",
    "FP8E4M3": "EXT-FP8E4M3",
    "FP8E5M2": "EXT-FP8E5M2",
}


def _float_rows() -> Iterator[tuple[str, str, str]]:
    """Any float type by any other: to fp32, and where neither is fp32 to a type of 16 bits."""
    for a, b in itertools.product(_FLOATS, repeat=2):
        narrow = "FP16" if a == b == "FP16" else "BF16"
        for out in ("FP32",) if "FP32" in (a, b) else ("FP32", narrow):
            extensions = {_FLOATS[name] for name in (a, b, out)} - {"PRO-FP"}
            needs = " and ".join(sorted(extensions)) or "PRO-FP"
            yield needs, f"{a} by {b} to {out}".lower(), f"{a} {b} {out}"


MATMUL_T = Operator(
    "MATMUL_T",
    chapter="products",
    section="2.3.8",
    number=100,
    since=V1_1,
    is_product=True,
    accuracy=Accuracy("DOT_PRODUCT"),
    arguments=(
        tensor("a", "a_t", "[N, H, C]"),
        tensor("b", "b_t", "[D, W, C]", prepared=True),
        constant("a_zp", "a_t", "[1]", prepared=True),
        constant("b_zp", "b_t", "[1]", prepared=True),
        result("output", "out_t", "[N, H, W]"),
    ),
    types=rows(
        "a_t b_t out_t",
        ("PRO-INT", "signed 8x8 with int32 accumulate", "INT8 INT8 INT32"),
        ("EXT-INT16", "signed 16x16 with int48 accumulate", "INT16 INT16 INT48"),
        *_float_rows(),
    ),
)

OPERATORS = (MATMUL, MATMUL_T)
