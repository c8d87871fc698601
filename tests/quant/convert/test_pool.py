"""Pooling, in the unit of its input."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import pool_oracle
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    clamp,
    floats,
    legal,
    operators,
    uniform,
    zeros,
)

from tosajax import Builder, DType, Graph

SHAPE = (1, 5, 6, 3)
# Three rows and two columns, some of them outside.
WINDOW = {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 2, 1, 1)}


def graph() -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    mean = b.op("AVG_POOL2D", x, *zeros(b), acc_type=DType.FP32, name="mean", **WINDOW)
    largest = b.op("MAX_POOL2D", x, name="largest", **WINDOW)
    before = b.op("AVG_POOL2D", x, *zeros(b), acc_type=DType.FP32, name="before", **WINDOW)
    return legal(b.graph([mean, largest, clamp(b, before, -1, 0.25, "clamped")]))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), uniform(0, *SHAPE), rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


def test_the_mean_is_rounded_once(trial):
    """What is outside the image does not count."""
    expected = pool_oracle.avg_pool_float(trial["x"], **WINDOW)
    assert_rounded(trial, "mean", expected)
    assert_rounded(trial, "clamped", np.clip(trial["before"], -1, 0.25))


def test_the_largest_is_moved(trial):
    expected = pool_oracle.max_pool(trial["x"], **WINDOW)
    np.testing.assert_array_equal(trial["largest"], expected)


def test_the_scale_is_that_of_the_input(trial):
    names = ("x", "mean", "largest", "before", "clamped")
    assert {trial.model.owners[name] for name in names} == {"x"}
    assert "RESCALE" not in operators(trial.frozen)
