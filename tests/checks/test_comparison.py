"""Rules of comparison operators: broadcasting, both sides; shapes against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

BROADCASTING = ["EQUAL", "GREATER", "GREATER_EQUAL"]
LEGAL = {op: {"input1": (2, 3, 1), "input2": (2, 1, 4), "output": (2, 3, 4)} for op in BROADCASTING}

BOUNDARY = [
    (op, change)
    for op in BROADCASTING
    for change in (
        {"input1": (1, 3, 1), "output": (2, 3, 4)},
        {"input1": (2, 1, 4), "input2": (1, 3, 1), "output": (2, 3, 4)},
        {"input1": (2, 3, 4), "input2": (2, 3, 4), "output": (2, 3, 4)},
        {"input1": (1, 1, 1), "input2": (1, 1, 1), "output": (1, 1, 1)},
        {"input1": (), "input2": (), "output": ()},
    )
]
ILLEGAL = [
    (f"{op.lower()}.e1", change, message)
    for op in BROADCASTING
    for change, message in (
        ({"input2": (3, 4)}, "input2 has rank 2, expected 3"),
        ({"input1": (), "input2": (1,)}, "input2 has rank 1, expected 0"),
        (
            {"input2": (2, 2, 4)},
            "input2 has shape (2, 2, 4), expected one that broadcasts with (2, 3, 1)",
        ),
        ({"output": (2, 3, 1)}, "output has shape (2, 3, 1), expected (2, 3, 4)"),
        ({"output": (3, 4)}, "output has shape (3, 4), expected (2, 3, 4)"),
    )
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


@pytest.mark.parametrize(("label", "change", "message"), ILLEGAL, ids=[c[0] for c in ILLEGAL])
def test_illegal(findings, label, change, message):
    op = label.split(".")[0].upper()
    assert findings(op, LEGAL[op] | change) == [(label, message)]


@pytest.mark.parametrize("op", BROADCASTING)
def test_shape(derived, op):
    rng = np.random.default_rng(0)
    for _ in range(50):
        shape = rng.integers(1, 5, rng.integers(0, 6))
        one, other = (
            tuple(np.where(rng.random(shape.size) < 0.3, 1, shape).tolist()) for _ in "12"
        )
        change = {"input1": one, "input2": other}
        assert derived(op, LEGAL[op] | change) == np.broadcast_shapes(one, other)


@pytest.mark.parametrize("op", BROADCASTING)
def test_no_shape(derived, op):
    with pytest.raises(ValueError, match="input2 has shape"):
        derived(op, LEGAL[op] | {"input2": (2, 2, 4)})
