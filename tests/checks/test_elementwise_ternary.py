"""Rules of SELECT: broadcasting of three inputs, both sides; shapes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

LEGAL = {
    "SELECT": {
        "input1": (2, 1, 1),
        "input2": (1, 3, 1),
        "input3": (1, 1, 4),
        "output": (2, 3, 4),
    }
}
BOUNDARY = [
    ("SELECT", {"input1": (2, 3, 4), "input2": (2, 3, 4), "input3": (2, 3, 4)}),
    ("SELECT", {"input1": (1, 1, 1), "input2": (2, 3, 4), "input3": (1, 1, 1)}),
    ("SELECT", {"input1": (), "input2": (), "input3": (), "output": ()}),
]
ILLEGAL = [
    ("select.e1", {"input1": (1, 1)}, "input2 has rank 3, expected 2"),
    ("select.e1", {"input2": (3, 1)}, "input2 has rank 2, expected 3"),
    ("select.e1", {"input3": (4,)}, "input3 has rank 1, expected 3"),
    (
        "select.e1",
        {"input2": (3, 3, 1)},
        "input2 has shape (3, 3, 1), expected one that broadcasts with (2, 1, 1)",
    ),
    # It agrees with input1, and not with the broadcast shape of the others.
    (
        "select.e1",
        {"input3": (2, 2, 4)},
        "input3 has shape (2, 2, 4), expected one that broadcasts with (2, 3, 1)",
    ),
    ("select.e1", {"output": (2, 3, 1)}, "output has shape (2, 3, 1), expected (2, 3, 4)"),
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
    for _ in range(100):
        shape = rng.integers(1, 5, rng.integers(0, 6))
        shapes = [tuple(np.where(rng.random(shape.size) < 0.4, 1, shape).tolist()) for _ in "123"]
        change = {f"input{i}": dims for i, dims in enumerate(shapes, 1)}
        assert derived("SELECT", change) == np.broadcast_shapes(*shapes)
