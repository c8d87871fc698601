"""Rules of MATMUL: its label, and the shape against NumPy."""

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
    }
}
BOUNDARY = [("MATMUL", {"a_zp": ZERO - 128, "b_zp": ZERO + 127})]
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
