"""Rules of MATMUL and MATMUL_T: their labels, and the shapes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

ZERO = np.zeros(1)
LEGAL = {
    "MATMUL": {
        "types": "signed 8x8 with int32 accumulate",
        "a": (2, 3, 4),
        "b": (2, 4, 5),
        "a_zp": ZERO,
        "b_zp": ZERO,
        "output": (2, 3, 5),
    },
    "MATMUL_T": {
        "types": "signed 8x8 with int32 accumulate",
        "a": (2, 3, 4),
        "b": (2, 5, 4),
        "a_zp": ZERO,
        "b_zp": ZERO,
        "output": (2, 3, 5),
    },
}
BOUNDARY = [
    ("MATMUL", {"a_zp": ZERO - 128, "b_zp": ZERO + 127}),
    ("MATMUL_T", {"a_zp": ZERO - 128, "b_zp": ZERO + 127}),
    ("MATMUL_T", {"b": (1, 5, 4)}),
    ("MATMUL_T", {"a": (1, 3, 4), "b": (1, 5, 4), "output": (1, 3, 5)}),
]
ILLEGAL = [
    (
        "matmul.e1",
        {"types": "signed 16x16 with int48 accumulate", "a_zp": ZERO + 1},
        "a_zp is 1, expected 0 for INT16",
    ),
    (
        "matmul.e1",
        {"types": "fp32 with fp32 accumulate", "b_zp": ZERO - 1},
        "b_zp is -1.0, expected 0 for FP32",
    ),
    (
        "matmul.e1",
        {"types": "fp8e5m2 with fp16 accumulate", "b_zp": ZERO + 1},
        "b_zp is 1, expected 0 for FP8E5M2",
    ),
    (
        "matmul_t.e1",
        {"types": "signed 16x16 with int48 accumulate", "a_zp": ZERO + 1},
        "a_zp is 1, expected 0 for INT16",
    ),
    (
        "matmul_t.e1",
        {"types": "bf16 by fp8e5m2 to fp32", "b_zp": ZERO + 1},
        "b_zp is 1, expected 0 for FP8E5M2",
    ),
    (
        "matmul_t.e2",
        {"a": (3, 3, 4), "output": (3, 3, 5)},
        "b has 2 batches, expected 1 or 3, the batches of a",
    ),
    (
        "matmul_t.e2",
        {"a": (1, 3, 4), "output": (1, 3, 5)},
        "b has 2 batches, expected 1",
    ),
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


def test_shape(derived):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, rows, inner, columns = rng.integers(1, 6, 4).tolist()
        a, b = (n, rows, inner), (n, inner, columns)
        wanted = np.matmul(np.zeros(a), np.zeros(b)).shape
        assert derived("MATMUL", LEGAL["MATMUL"] | {"a": a, "b": b}) == wanted
        for d in (n, 1):
            operands = {"a": a, "b": (d, columns, inner)}
            assert derived("MATMUL_T", LEGAL["MATMUL_T"] | operands) == wanted
