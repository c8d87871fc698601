"""ARGMAX: the largest integer is the largest value."""

from __future__ import annotations

import numpy as np
import pytest
from quant.convert.helpers import VARIANTS, Trial, against, floats, legal, operators, uniform

from tosajax import Builder, DType, Graph

SHAPE = (2, 6, 9)


def graph() -> Graph:
    """Indices as outputs, and as a choice of rows."""
    b = Builder()
    x = floats(b, "x", *SHAPE)
    outputs = [b.op("ARGMAX", x, axis=axis, name=f"axis {axis}") for axis in range(3)]
    best = b.op("ARGMAX", x, axis=2, name="best")
    outputs.append(b.op("GATHER", floats(b, "table", 2, 9, 3), best, name="rows"))
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    examples = uniform(0, *SHAPE), uniform(1, 2, 9, 3)
    return Trial(graph(), *examples, rules=VARIANTS[request.param], against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("axis", range(3))
def test_the_first_of_the_largest(trial, axis):
    """Half of all elements are at the ends of the range, so that many are equal."""
    np.testing.assert_array_equal(trial[f"axis {axis}"], trial["x"].argmax(axis=axis))
    assert trial.dtype(f"axis {axis}") is DType.INT32


def test_indices_choose_rows(trial):
    best = trial["x"].argmax(axis=2)
    np.testing.assert_array_equal(trial["rows"], trial["table"][np.arange(2)[:, None], best])


def test_nothing_is_rescaled(trial):
    assert set(operators(trial.frozen)) == {"ARGMAX", "GATHER"}
    assert "best" not in trial.model.owners
