"""Rules of reductions: every label, both sides of every bound, shapes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax import spec

LEGAL = {
    op.name: {"input": (2, 3, 4), "axis": 1, "output": (2, 1, 4)}
    for op in spec.OPERATORS.values()
    if op.chapter == "reduction"
}
BOUNDARY = [
    (op, change)
    for op in LEGAL
    for change in (
        {"axis": 0, "output": (1, 3, 4)},
        {"axis": 2, "output": (2, 3, 1)},
        {"input": (5,), "axis": 0, "output": (1,)},
    )
]
ILLEGAL = [
    (f"{op.lower()}.{rule}", change, message)
    for op in LEGAL
    for rule, change, message in (
        ("e1", {"axis": -1}, "axis is -1, expected 0 to 2 for rank 3"),
        ("e1", {"axis": 3}, "axis is 3, expected 0 to 2 for rank 3"),
        ("e2", {"output": (2, 2, 4)}, "output has 2 elements along axis 1, expected 1"),
        ("e2", {"output": (2, 3, 4)}, "output has 3 elements along axis 1, expected 1"),
        ("arguments", {"output": (2, 1)}, "output has shape (2, 1), expected (2, 1, 4)"),
        ("arguments", {"output": (2,)}, "output has shape (2,), expected (2, 1, 4)"),
        ("arguments", {"output": (2, 1, 3)}, "output has shape (2, 1, 3), expected (2, 1, 4)"),
    )
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize("op", LEGAL)
def test_shape(derived, op):
    rng = np.random.default_rng(0)
    for _ in range(30):
        shape = tuple(rng.integers(1, 5, rng.integers(1, 6)).tolist())
        axis = int(rng.integers(len(shape)))
        wanted = np.zeros(shape).sum(axis=axis, keepdims=True).shape
        assert derived(op, {"input": shape, "axis": axis}) == wanted
