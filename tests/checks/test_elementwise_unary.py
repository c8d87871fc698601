"""Rules of elementwise unary operators: the labels of NEGATE; shapes stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax import spec

ZERO = np.zeros(1)
LEGAL: dict[str, dict] = {
    op.name: {"input1": (2, 3), "output": (2, 3)}
    for op in spec.OPERATORS.values()
    if op.chapter == "elementwise_unary"
}
LEGAL["NEGATE"] |= {"types": "signed 8", "input1_zp": ZERO, "output_zp": ZERO}
BOUNDARY = [
    ("NEGATE", {"input1_zp": ZERO - 128, "output_zp": ZERO + 127}),
    *((op, {"input1": (), "output": ()}) for op in LEGAL),
]
ILLEGAL = [
    (
        "negate.e1",
        {"types": "signed 16", "input1_zp": ZERO + 1},
        "input1_zp is 1, expected 0 for INT16",
    ),
    (
        "negate.e1",
        {"types": "signed 32", "input1_zp": ZERO - 1},
        "input1_zp is -1, expected 0 for INT32",
    ),
    (
        "negate.e2",
        {"types": "fp16", "output_zp": ZERO + 0.5},
        "output_zp is 0.5, expected 0 for FP16",
    ),
    (
        "negate.e2",
        {"types": "signed 16", "output_zp": ZERO - 1},
        "output_zp is -1, expected 0 for INT16",
    ),
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize("op", LEGAL)
@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 3, 4)], ids=str)
def test_shape(derived, op, shape):
    assert derived(op, LEGAL[op] | {"input1": shape}) == shape
