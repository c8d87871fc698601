"""Rules of activation functions: the labels of CLAMP; shapes stay as they are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

SHAPE = {"input": (2, 3), "output": (2, 3)}
LEGAL = {
    "CLAMP": SHAPE | {"types": "signed 8", "min_val": np.int8(-5), "max_val": np.int8(7)},
    "ERF": SHAPE,
    "SIGMOID": SHAPE,
    "TANH": SHAPE,
}
FP32 = {"types": "fp32", "min_val": np.float32(-1), "max_val": np.float32(1)}
BF16 = {"types": "bf16", "min_val": ml_dtypes.bfloat16(-1), "max_val": ml_dtypes.bfloat16(1)}
BOUNDARY = [
    ("CLAMP", {"max_val": np.int8(-5)}),
    ("CLAMP", {"min_val": -128, "max_val": 127}),
    ("CLAMP", {"types": "signed 16", "min_val": -(1 << 15), "max_val": (1 << 15) - 1}),
    ("CLAMP", FP32),
    ("CLAMP", FP32 | {"min_val": np.float32(-np.inf), "max_val": np.float32(np.inf)}),
    ("CLAMP", FP32 | {"min_val": np.float32(0.0), "max_val": np.float32(-0.0)}),
    ("CLAMP", BF16),
    *((op, {"input": (), "output": ()}) for op in LEGAL),
]
ILLEGAL = [
    ("clamp.e1", {"max_val": np.int8(-6)}, "max_val is -6, expected at least min_val -5"),
    (
        "clamp.e1",
        FP32 | {"max_val": np.float32(-1.5)},
        "max_val is -1.5, expected at least min_val -1.0",
    ),
    ("clamp.e2", FP32 | {"min_val": np.float32(np.nan)}, "min_val is NaN, expected a number"),
    ("clamp.e2", FP32 | {"max_val": np.float32(np.nan)}, "max_val is NaN, expected a number"),
    (
        "clamp.e2",
        BF16 | {"max_val": ml_dtypes.bfloat16(np.nan)},
        "max_val is NaN, expected a number",
    ),
]


@pytest.mark.parametrize("bound", [-129, 128, 1.0, 0.5, np.float32(1), np.inf, np.int16(500)])
@pytest.mark.parametrize("name", ["min_val", "max_val"])
def test_bounds_of_integers(findings, name, bound):
    message = f"{name} is {bound}, expected an integer in [-128, 127] for INT8"
    assert findings("CLAMP", LEGAL["CLAMP"] | {name: bound}) == [("clamp.attributes", message)]


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
    assert derived(op, LEGAL[op] | {"input": shape}) == shape
