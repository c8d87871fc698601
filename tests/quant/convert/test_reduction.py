"""Reductions: sums go on in int32 as long as they can, extremes are moved."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    producer,
    times,
    uniform,
)

from tosajax import Builder, Graph, Tensor, UnsupportedError
from tosajax.quant import prepare
from tosajax.quant.model.recipes import Shift

SHAPE = (3, 4, 5)


def mean(b: Builder, x: Tensor, factor: float, name: str) -> Tensor:
    """The sum over two axes, times a factor."""
    columns = b.op("REDUCE_SUM", x, axis=2, name=f"{name}/columns")
    both = b.op("REDUCE_SUM", columns, axis=1, name=f"{name}/both")
    return times(b, constant(b, [[[factor]]]), both, name)


def graph() -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    outputs = [
        b.op("REDUCE_SUM", x, axis=1, name="sum"),
        mean(b, x, 1 / 20, "mean"),
        clamp(b, mean(b, x, 1 / 20, "before"), -1.5, 0.25, "clamped"),
        mean(b, x, -1 / 20, "negative"),
        times(b, mean(b, x, 1 / 20, "inner"), constant(b, [[[3.0]]]), "twice"),
        b.op("REDUCE_MAX", x, axis=2, name="max"),
        b.op("REDUCE_MIN", x, axis=0, name="min"),
    ]
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=["i8", "i8-of-4-bits", "i16"])
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), uniform(0, *SHAPE), rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


def test_sums(trial):
    assert_rounded(trial, "sum", trial["x"].sum(axis=1, keepdims=True))


def test_means_are_rounded_once(trial):
    """For any number of sums and factors."""
    expected = trial["x"].mean(axis=(1, 2), keepdims=True)
    assert_rounded(trial, "mean", expected)
    assert_rounded(trial, "clamped", np.clip(expected, -1.5, 0.25))
    assert_rounded(trial, "twice", 3 * expected)
    between = {"mean/columns", "mean/both", "before", "inner", "inner/both"}
    assert between.isdisjoint(trial.model.owners)


def test_a_negative_factor_ends_the_sum(trial):
    """Multipliers of RESCALE are positive."""
    total = trial["x"].sum(axis=(1, 2), keepdims=True)
    assert_rounded(trial, "negative/both", total)
    factor = next(n for n in trial.model.weights)
    np.testing.assert_allclose(trial[factor], -1 / 20, rtol=0.005)
    assert_rounded(trial, "negative", trial["negative/both"] * trial[factor])


def test_extremes_are_moved(trial):
    x = trial["x"]
    np.testing.assert_array_equal(trial["max"], x.max(axis=2, keepdims=True))
    np.testing.assert_array_equal(trial["min"], x.min(axis=0, keepdims=True))
    assert producer(trial.frozen, "max") == "REDUCE_MAX"


def test_a_sum_that_is_an_output_is_a_tensor_of_its_own():
    b = Builder()
    total = b.op("REDUCE_SUM", floats(b, "x", *SHAPE), axis=2, name="total")
    graph = b.graph([total, b.op("REDUCE_SUM", total, axis=1, name="all")])
    trial = Trial(legal(graph), uniform(0, *SHAPE))
    assert trial.report, str(trial.report)
    assert_rounded(trial, "total", trial["x"].sum(axis=2, keepdims=True))
    assert_rounded(trial, "all", trial["total"].sum(axis=1, keepdims=True))


@pytest.mark.parametrize("order", [1, -1])
def test_a_mean_that_is_read_beside_a_function_of_it(order):
    """As in a layer norm whose variance is also an output."""
    b = Builder()
    total = b.op("REDUCE_SUM", floats(b, "x", *SHAPE), axis=2, name="total")
    average = times(b, total, constant(b, [[[0.2]]]), "mean")
    outputs = [average, b.op("EXP", average, name="exp")][::order]
    trial = Trial(legal(b.graph(outputs)), uniform(0, *SHAPE))
    assert trial.report, str(trial.report)
    expected = trial["x"].mean(axis=2, keepdims=True)
    assert_rounded(trial, "mean", expected, extra=trial.step("mean"))
    assert_rounded(trial, "exp", np.exp(expected), extra=math.e * trial.step("mean"))


# An element has one bit more than its type, as its zero point may be at the other end.


@pytest.mark.parametrize(("kind", "count"), [("i8", 2**23), ("i16", 2**15)])
def test_sums_that_may_overflow_lose_low_bits(kind, count):
    def shifts(size: int) -> dict[str, float]:
        b = Builder()
        half = b.op("REDUCE_SUM", floats(b, "x", 1, 2, size), axis=2, name="half")
        model = prepare(b.graph([b.op("REDUCE_SUM", half, axis=1, name="whole")]), VARIANTS[kind])
        scales = {name: r.scale for name, r in model.plan.recipes.items() if isinstance(r, Shift)}
        return {name: s.factor for name, s in scales.items() if "shifted" in name}

    assert not shifts(count // 2)
    assert shifts(count // 2 + 1) == {"whole/shifted/shift": 0.5}
    assert shifts(count + 1) == {"half/shifted/shift": 0.5, "whole/shifted/shift": 0.5}


def test_a_sum_that_loses_low_bits():
    b = Builder()
    x = floats(b, "x", 1, 2**15 + 8)
    y = times(b, b.op("REDUCE_SUM", x, axis=1), constant(b, [[2.0**-15]]), "y")
    trial = Trial(b.graph([y]), uniform(0, 1, 2**15 + 8, low=-1), rules=VARIANTS["i16"])
    assert trial.report, str(trial.report)
    wanted = trial["x"].sum(axis=1, keepdims=True) * 2.0**-15
    assert_rounded(trial, "y", wanted, extra=trial.step("x"))


def test_the_largest_sum_does_not_overflow():
    b = Builder()
    x = floats(b, "x", 1, 2**15)
    y = times(b, b.op("REDUCE_SUM", x, axis=1), constant(b, [[2.0**-15]]), "y")
    trial = Trial(b.graph([y]), uniform(0, 1, 2**15, low=-1), rules=VARIANTS["i16"])
    lowest = np.full((1, 2**15), -(2**15), np.int16)
    (found,) = jax.jit(trial.model.apply)(trial.params, lowest)
    wanted = -(2**15) * trial.step("x")
    assert_rounded(trial, "y", trial["x"].mean(axis=1, keepdims=True))
    assert np.asarray(found) == np.float32(max(wanted, trial.ends("y")[0]))


def test_a_product_over_an_axis_is_refused():
    b = Builder()
    y = b.op("REDUCE_PRODUCT", floats(b, "x", 2, 3), axis=1, name="y")
    with pytest.raises(UnsupportedError, match=r"REDUCE_PRODUCT 'y': .* no integer form"):
        prepare(legal(b.graph([y])))
