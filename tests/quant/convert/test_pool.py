"""Pooling: means in a unit of their own, extremes in that of their input."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from oracle import pool_oracle
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    operators,
    times,
    uniform,
    zeros,
)

from tosajax import Builder, DType, Graph, Tensor
from tosajax.quant import QSpec, calibrate, prepare, rule
from tosajax.quant.error_report import sqnr

SHAPE = (1, 5, 6, 3)
# Three rows and two columns, some of them outside.
WINDOW = {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 2, 1, 1)}


# All of the image; once with padding, of which nothing counts.
WHOLE = {"kernel": (5, 6), "stride": (1, 1), "pad": (0, 0, 0, 0)}
MORE = {"kernel": (6, 7), "stride": (1, 1), "pad": (1, 0, 0, 1)}
INSIDE = {"kernel": (2, 2), "stride": (1, 2), "pad": (0, 0, 0, 0)}
MEANS = {"mean": WINDOW, "whole": WHOLE, "more": MORE, "inside": INSIDE}


def pooled(b: Builder, x: Tensor, name: str, window: dict[str, Any]) -> Tensor:
    return b.op("AVG_POOL2D", x, *zeros(b), acc_type=DType.FP32, name=name, **window)


def graph() -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    means = [pooled(b, x, name, window) for name, window in MEANS.items()]
    largest = b.op("MAX_POOL2D", x, name="largest", **WINDOW)
    clamped = clamp(b, pooled(b, x, "before", WINDOW), -1, 0.25, "clamped")
    doubled = times(b, pooled(b, x, "single", WHOLE), constant(b, [[[[2.0]]]]), "doubled")
    return legal(b.graph([*means, largest, clamped, doubled]))


@pytest.fixture(scope="module", params=VARIANTS)
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), uniform(0, *SHAPE), rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


def test_means_are_rounded_once(trial):
    """Elements outside the image do not count."""
    for name, window in MEANS.items():
        assert_rounded(trial, name, pool_oracle.avg_pool_float(trial["x"], **window))
    expected = pool_oracle.avg_pool_float(trial["x"], **WINDOW)
    assert_rounded(trial, "clamped", np.clip(expected, -1, 0.25))
    assert_rounded(trial, "doubled", 2 * trial["x"].mean(axis=(1, 2), keepdims=True))


def test_the_largest_is_moved(trial):
    expected = pool_oracle.max_pool(trial["x"], **WINDOW)
    np.testing.assert_array_equal(trial["largest"], expected)


def test_means_have_scales_of_their_own(trial):
    """They spread less than their elements, and use all integers."""
    owners = trial.model.owners
    assert owners["largest"] == "x"
    assert all(owners[name] == name for name in (*MEANS, "clamped", "doubled"))
    assert "single" not in owners
    assert trial.step("whole") < trial.step("x") / 2 or trial.dtype("whole") != trial.dtype("x")
    assert "AVG_POOL2D" not in operators(trial.frozen)


def test_means_in_the_unit_of_their_input_where_asked_for():
    b = Builder()
    mean = pooled(b, floats(b, "x", *SHAPE), "mean", WINDOW)
    graph = b.graph([mean, clamp(b, mean, -1, 0.25, "clamped")])
    trial = Trial(legal(graph), uniform(0, *SHAPE), own_pool_scales=False)
    assert trial.report, str(trial.report)
    assert_rounded(trial, "mean", pool_oracle.avg_pool_float(trial["x"], **WINDOW))
    assert_rounded(trial, "clamped", np.clip(trial["mean"], -1, 0.25))
    assert {trial.model.owners[name] for name in ("x", "mean", "clamped")} == {"x"}
    assert operators(trial.frozen) == ["AVG_POOL2D", "CLAMP"]


@pytest.mark.parametrize(("kind", "rows"), [("i8", 2048), ("i16", 8)])
def test_sums_that_int32_may_not_hold_stay_in_the_unit_of_the_input(kind, rows):
    """2**23 elements of INT8 fit, and 2**15 of INT16."""

    def owners(rows: int) -> dict[str, str]:
        b = Builder()
        whole = {"kernel": (rows, 4096), "stride": (1, 1), "pad": (0, 0, 0, 0)}
        mean = pooled(b, floats(b, "x", 1, rows, 4096, 1), "mean", whole)
        return dict(prepare(b.graph([mean]), VARIANTS[kind]).owners)

    assert owners(rows)["mean"] == "mean"
    assert owners(rows + 1)["mean"] == "x"


@pytest.mark.parametrize("bits", [8, 4])
def test_the_signal_of_a_mean(bits):
    """In the unit of its elements, a mean would use few of the levels."""
    b = Builder()
    x = floats(b, "x", 1, 8, 8, 16)
    whole = {"kernel": (8, 8), "stride": (8, 8), "pad": (0, 0, 0, 0)}
    graph = legal(b.graph([pooled(b, x, "mean", whole)]))
    images = np.maximum(np.random.default_rng(0).normal(0, 1, (16, 8, 8, 16)), 0)
    rules = [rule(".*", act=QSpec(bits=bits, symmetric=False))]
    images = images.astype(np.float32)
    found = []
    for own in (False, True):
        model = prepare(graph, rules, own_pool_scales=own)
        params = calibrate(model, [images])
        run = jax.jit(model.apply, static_argnames="mode")
        (mean,), (wanted,) = (run(params, images, mode=m) for m in ("exact", "float"))
        found.append(sqnr(wanted, mean))
    assert found[1] > found[0] + 5
