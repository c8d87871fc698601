"""Rules of GATHER and SCATTER: shapes against NumPy; no label is theirs."""

from __future__ import annotations

import numpy as np
import pytest

LEGAL = {
    "GATHER": {"values": (2, 5, 3), "indices": (2, 4), "output": (2, 4, 3)},
    "SCATTER": {
        "values_in": (2, 5, 3),
        "indices": (2, 4),
        "input": (2, 4, 3),
        "values_out": (2, 5, 3),
    },
}
BOUNDARY = [
    ("GATHER", {"indices": (2, 9), "output": (2, 9, 3)}),
    ("SCATTER", {"indices": (2, 5), "input": (2, 5, 3)}),
]


@pytest.mark.parametrize(("op", "change"), BOUNDARY)
def test_boundary(findings, op, change):
    assert findings(op, LEGAL[op] | change) == []


def test_shape(derived):
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, k, w, c = rng.integers(1, 6, 4).tolist()
        values, indices = np.zeros((n, k, c)), np.zeros((n, w), np.int64)
        wanted = np.take_along_axis(values, indices[..., None], axis=1).shape
        assert derived("GATHER", {"values": (n, k, c), "indices": (n, w)}) == wanted
        change = {"values_in": (n, k, c), "indices": (n, w), "input": (n, w, c)}
        assert derived("SCATTER", change) == values.shape
