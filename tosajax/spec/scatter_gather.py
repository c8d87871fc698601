"""Table of the operators of "Scatter/Gather Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import Operator, result, rows, tensor

_NUMBERS = rows(
    "index_t in_out_t",
    ("PRO-FP", "fp16", "INT32 FP16"),
    ("PRO-FP", "fp32", "INT32 FP32"),
    ("PRO-INT", "signed 16", "INT32 INT16"),
    ("PRO-INT", "signed 32", "INT32 INT32"),
    ("PRO-INT", "signed 8", "INT32 INT8"),
    ("EXT-BF16", "bf16", "INT32 BF16"),
    ("EXT-FP8E4M3", "fp8e4m3", "INT32 FP8E4M3"),
    ("EXT-FP8E5M2", "fp8e5m2", "INT32 FP8E5M2"),
)

GATHER = Operator(
    "GATHER",
    chapter="scatter_gather",
    section="2.11.1",
    number=62,
    instruction=61,
    keeps_scale=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("values", "in_out_t", "[N, K, C]"),
        tensor("indices", "index_t", "[N, W]"),
        result("output", "in_out_t", "[N, W, C]"),
    ),
    types=_NUMBERS,
)

SCATTER = Operator(
    "SCATTER",
    chapter="scatter_gather",
    section="2.11.2",
    number=63,
    instruction=62,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("values_in", "in_out_t", "[N, K, C]"),
        tensor("indices", "index_t", "[N, W]"),
        tensor("input", "in_out_t", "[N, W, C]"),
        result("values_out", "in_out_t", "[N, K, C]"),
    ),
    types=_NUMBERS,
)

OPERATORS = (
    GATHER,
    SCATTER,
)
