"""Table of the operators of "Data Nodes" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import MAX_RANK, Operator, Rank, result, rows, tensor, values

CONST = Operator(
    "CONST",
    chapter="data_nodes",
    section="2.14.1",
    number=67,
    is_signless=True,
    arguments=(
        values("values", "out_t", "shape", Rank(0, MAX_RANK)),
        result("output", "out_t", "shape", Rank(0, MAX_RANK), constant_in=("PRO-INT", "PRO-FP")),
    ),
    types=rows(
        "out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT or PRO-FP", "16-bit", "INT16"),
        ("PRO-INT or PRO-FP", "32-bit", "INT32"),
        ("PRO-INT or PRO-FP", "8-bit", "INT8"),
        ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
        ("EXT-BF16", "bf16", "BF16"),
        ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3"),
        ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2"),
        ("EXT-INT16", "48-bit", "INT48"),
        ("EXT-INT4", "4-bit", "INT4"),
    ),
)

IDENTITY = Operator(
    "IDENTITY",
    chapter="data_nodes",
    section="2.14.2",
    number=68,
    keeps_order=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape", Rank(0, MAX_RANK)),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT or PRO-FP", "16-bit", "INT16"),
        ("PRO-INT or PRO-FP", "32-bit", "INT32"),
        ("PRO-INT or PRO-FP", "8-bit", "INT8"),
        ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
        ("EXT-BF16", "bf16", "BF16"),
        ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3"),
        ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2"),
        ("EXT-INT16", "48-bit", "INT48"),
        ("EXT-INT4", "4-bit", "INT4"),
    ),
    is_homogeneous=True,
    keeps_scale=True,
)

OPERATORS = (
    CONST,
    IDENTITY,
)
