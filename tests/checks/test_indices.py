"""Rules of ARGMAX: every label, both sides of every bound, the shape against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

LEGAL = {"ARGMAX": {"input": (2, 3, 4), "axis": 1, "output": (2, 4)}}
BOUNDARY = [
    ("ARGMAX", {"axis": 0, "output": (3, 4)}),
    ("ARGMAX", {"axis": 2, "output": (2, 3)}),
    ("ARGMAX", {"input": (5,), "axis": 0, "output": ()}),
]
ILLEGAL = [
    ("argmax.e1", {"axis": -1}, "axis is -1, expected 0 to 2 for rank 3"),
    ("argmax.e1", {"axis": 3}, "axis is 3, expected 0 to 2 for rank 3"),
    ("argmax.e2", {"output": (2, 3)}, "output has shape (2, 3), expected (2, 4)"),
    ("argmax.e2", {"output": (2, 1, 4)}, "output has shape (2, 1, 4), expected (2, 4)"),
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
        shape = tuple(rng.integers(1, 5, rng.integers(1, 6)).tolist())
        axis = int(rng.integers(len(shape)))
        wanted = np.argmax(np.zeros(shape), axis=axis).shape
        assert derived("ARGMAX", {"input": shape, "axis": axis}) == wanted
