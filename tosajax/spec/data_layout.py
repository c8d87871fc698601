"""Table of the operators of "Data Layout" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import (
    MAX_RANK,
    Operator,
    Rank,
    constant,
    integers,
    result,
    rows,
    scalar,
    shape,
    tensor,
    tensors,
)

_ALL = rows(
    "in_out_t",
    ("PRO-FP", "fp16", "FP16"),
    ("PRO-FP", "fp32", "FP32"),
    ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
    ("PRO-INT", "signed 16", "INT16"),
    ("PRO-INT", "signed 32", "INT32"),
    ("PRO-INT", "signed 8", "INT8"),
    ("EXT-BF16", "bf16", "BF16"),
    ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3"),
    ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2"),
)

CONCAT = Operator(
    "CONCAT",
    chapter="data_layout",
    section="2.10.1",
    number=55,
    instruction=54,
    keeps_scale=True,
    keeps_order=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensors("input1", "in_out_t", "shapes1", Rank(1, MAX_RANK)),
        scalar("axis", int),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=rows(
        "in_out_t",
        ("PRO-FP", "fp16", "FP16"),
        ("PRO-FP", "fp32", "FP32"),
        ("PRO-INT or PRO-FP", "Boolean", "BOOL"),
        ("PRO-INT", "signed 32", "INT32"),
        ("PRO-INT", "signed 8", "INT8"),
        ("EXT-BF16", "bf16", "BF16"),
        ("EXT-FP8E4M3", "fp8e4m3", "FP8E4M3"),
        ("EXT-FP8E5M2", "fp8e5m2", "FP8E5M2"),
        ("EXT-INT16", "signed 16", "INT16"),
    ),
)

PAD = Operator(
    "PAD",
    chapter="data_layout",
    section="2.10.2",
    number=56,
    instruction=55,
    keeps_scale=True,
    keeps_order=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(1, MAX_RANK)),
        shape("padding", "2*rank(shape1)"),
        constant("pad_const", "in_out_t", "[1]"),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=_ALL,
)

RESHAPE = Operator(
    "RESHAPE",
    chapter="data_layout",
    section="2.10.3",
    number=57,
    instruction=56,
    keeps_scale=True,
    keeps_order=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(0, MAX_RANK)),
        shape("shape", "rank(shape)"),
        result("output", "in_out_t", "shape", Rank(0, MAX_RANK)),
    ),
    types=_ALL,
)

REVERSE = Operator(
    "REVERSE",
    chapter="data_layout",
    section="2.10.4",
    number=58,
    instruction=57,
    keeps_scale=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape", Rank(1, MAX_RANK)),
        scalar("axis", int),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=_ALL,
)

SLICE = Operator(
    "SLICE",
    chapter="data_layout",
    section="2.10.5",
    number=59,
    instruction=58,
    keeps_scale=True,
    keeps_order=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(1, MAX_RANK)),
        shape("start", "rank(shape1)"),
        shape("size", "rank(shape1)"),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=_ALL,
)

TILE = Operator(
    "TILE",
    chapter="data_layout",
    section="2.10.6",
    number=60,
    instruction=59,
    keeps_scale=True,
    keeps_order=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(1, MAX_RANK)),
        shape("multiples", "rank(shape1)"),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=_ALL,
)

TRANSPOSE = Operator(
    "TRANSPOSE",
    chapter="data_layout",
    section="2.10.7",
    number=61,
    instruction=60,
    keeps_scale=True,
    moves=True,
    is_signless=True,
    arguments=(
        tensor("input1", "in_out_t", "shape1", Rank(1, MAX_RANK)),
        integers("perms", "rank(shape1)"),
        result("output", "in_out_t", "shape", Rank(1, MAX_RANK)),
    ),
    types=_ALL,
)

OPERATORS = (
    CONCAT,
    PAD,
    RESHAPE,
    REVERSE,
    SLICE,
    TILE,
    TRANSPOSE,
)
