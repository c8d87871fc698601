"""GATHER moves rows; SCATTER gives both of its tensors one scale."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import data_layout_oracle as oracle
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_constant,
    assert_rounded,
    constant,
    floats,
    legal,
    uniform,
)

from tosajax import Builder, DType, Graph
from tosajax.quant import prepare

EMBEDDING = uniform(7, 1, 11, 4, low=-0.7, high=5)
TOKENS = np.array([[0, 10, 3, 3, 7]], np.int32)
PLACES = np.array([[4, 0, 2], [1, 5, 3]], np.int32)


def graph() -> Graph:
    """Rows of a constant and of a tensor; rows put into tensors of another scale and of one."""
    b = Builder()
    tokens = b.input("tokens", DType.INT32, (1, 5))
    x, y = floats(b, "x", 2, 6, 4), floats(b, "y", 2, 3, 4)
    places = b.input("places", DType.INT32, (2, 3))
    rows = b.op("GATHER", x, places, name="rows")
    fixed = constant(b, uniform(8, 2, 6, 4, high=8), "fixed")
    outputs = [
        b.op("GATHER", constant(b, EMBEDDING, "embedding"), tokens, name="embedded"),
        rows,
        b.op("SCATTER", x, places, y, name="different"),
        b.op("SCATTER", fixed, places, y, name="into a constant"),
        b.op("SCATTER", x, places, rows, name="same"),
    ]
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    examples = TOKENS, uniform(0, 2, 6, 4), uniform(1, 2, 3, 4, low=-0.5, high=2), PLACES
    return Trial(graph(), *examples, rules=VARIANTS[request.param], against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


def test_an_embedding_is_quantized_as_activations_are(trial):
    assert_constant(trial, "embedding")
    assert trial.model.owners["embedded"] == "embedding"
    assert trial.dtype("embedding") is trial.dtype("embedded") is trial.dtype("x")
    np.testing.assert_array_equal(trial["embedded"], oracle.gather(trial["embedding"], TOKENS))


def test_rows_move(trial):
    np.testing.assert_array_equal(trial["rows"], oracle.gather(trial["x"], PLACES))
    assert trial.model.owners["rows"] == "x"


@pytest.mark.parametrize(("name", "source"), [("different", "x"), ("into a constant", "fixed")])
def test_rows_of_another_scale_are_rounded_once(trial, name, source):
    expected = oracle.scatter(trial[source], PLACES, trial["y"])
    assert_rounded(trial, name, expected)


def test_rows_of_one_scale_are_put_as_they_are(trial):
    expected = oracle.scatter(trial["x"], PLACES, trial["rows"])
    np.testing.assert_array_equal(trial["same"], expected)
    assert trial.model.owners["same"] == "x"


def test_indices_stay_as_they_are():
    model = prepare(graph())
    dtypes = {t.name: t.dtype for t in model.graph.input_tensors}
    assert dtypes["tokens"] is dtypes["places"] is DType.INT32
    assert {"tokens", "places"}.isdisjoint(model.specs)
