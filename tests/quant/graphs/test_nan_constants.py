"""NaN in constants that SELECT chooses: functions that look for it become sane integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import VARIANTS, Trial, clamp, constant, floats, operators, uniform

import tosajax
from tosajax import Builder, DType, Tensor, UnsupportedError
from tosajax.quant import prepare
from tosajax.quant.graphs.nan_constants import Nans
from tosajax.spec import NanMode

SHAPE = (4, 7)
FUNCTIONS: dict[str, Callable[[jax.Array], Any]] = {
    "top_k": lambda x: jax.lax.top_k(x, 3),
    "approx_max_k": lambda x: jax.lax.approx_max_k(x, 2),
    "approx_min_k": lambda x: jax.lax.approx_min_k(x, 2),
    "nanmax": lambda x: jnp.nanmax(x, axis=1),
    "nanmin": lambda x: jnp.nanmin(x, axis=0),
    "nanargmax": lambda x: jnp.nanargmax(x, axis=1),
    "nansum": lambda x: jnp.nansum(x, axis=1),
    "nanmean": lambda x: jnp.nanmean(x, axis=1),
    "median": lambda x: jnp.median(x, axis=1),
    "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
    "nanmedian": lambda x: jnp.nanmedian(x, axis=1),
    "nan_to_num": jnp.nan_to_num,
    "take": lambda x: jnp.take(x, jnp.array([2, 0, 6]), axis=1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers_are_those_of_integers(name):
    function = FUNCTIONS[name]
    graph = tosajax.export(function, uniform(0, *SHAPE))
    trial = Trial(graph, uniform(0, *SHAPE))
    assert trial.report, str(trial.report)
    wanted = jax.tree.leaves(function(jnp.float32(trial["x"])))
    for output, expected in zip(graph.outputs, wanted, strict=True):
        if graph.tensors[output].dtype.is_float:
            largest = max(trial.step(owner) for owner in trial.params["qparams"])
            clipped = np.clip(expected, *trial.ends(output))
            assert np.abs(trial[output] - clipped).max() <= 3 * largest
        else:
            np.testing.assert_array_equal(trial[output], expected)


@pytest.mark.parametrize("variant", ["i8", "i8-of-4-bits", "i16"])
def test_each_of_all_elements_is_found_once(variant):
    """Though many of them are at the lowest end of the range, where NaN stands."""
    graph = tosajax.export(lambda x: jax.lax.top_k(x, 5), uniform(0, 6, 5))
    trial = Trial(graph, uniform(0, 6, 5), rules=VARIANTS[variant])
    assert trial.report, str(trial.report)
    values, indices = trial[graph.outputs[0]], trial[graph.outputs[1]].astype(int)
    np.testing.assert_array_equal(np.sort(indices, 1), np.broadcast_to(np.arange(5), (6, 5)))
    np.testing.assert_array_equal(values, np.take_along_axis(trial["x"], indices, 1))
    lowest = trial.ends("x")[0] + trial.step("x")
    assert (np.diff(np.maximum(values, lowest), axis=1) <= 0).all()


# What is known of NaN.


def chosen(b: Builder) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor, a mask, and NaN where it is true."""
    x, mask = floats(b, "x", *SHAPE), b.input("mask", DType.BOOL, SHAPE)
    nan = constant(b, [[np.nan]])
    return x, mask, b.op("SELECT", mask, nan, x, name="chosen")


@pytest.mark.parametrize("variant", VARIANTS)
def test_nan_that_is_chosen_is_0(variant):
    b = Builder()
    x, _, y = chosen(b)
    graph = b.graph([y, b.op("ADD", y, x, name="sum")])
    examples = uniform(0, *SHAPE), np.eye(*SHAPE, dtype=bool)
    trial = Trial(graph, *examples, rules=VARIANTS[variant])
    assert trial.report, str(trial.report)
    np.testing.assert_array_equal(trial["chosen"], np.where(examples[1], 0, trial["x"]))
    assert trial.model.owners["chosen"] == "x"


def test_whether_nan_was_chosen_is_not_lost():
    """Integers cannot tell NaN, so a test of it is refused where the answer would be wrong."""
    b = Builder()
    *_, y = chosen(b)
    graph = b.graph([b.op("EQUAL", y, y, name="is_number")])
    with pytest.raises(UnsupportedError, match=r"EQUAL 'is_number': 'chosen' may be NaN .* the co"):
        prepare(graph)


@pytest.mark.parametrize("kind", ["reduce", "moved", "again", "clamp"])
def test_nan_that_is_ignored_is_not_taken_for_a_number(kind):
    b = Builder()
    _, mask, y = chosen(b)
    ignore = NanMode.IGNORE
    if kind == "reduce":
        y = b.op("REDUCE_MAX", y, axis=1, nan_mode=ignore)
    elif kind == "moved":
        y = b.op("ARGMAX", b.op("REVERSE", y, axis=1), axis=1, nan_mode=ignore)
    elif kind == "again":
        y = b.op("ARGMAX", b.op("SELECT", mask, y, constant(b, [[2.0]])), axis=1, nan_mode=ignore)
    else:
        low, high = np.float32(-1), np.float32(1)
        y = b.op("CLAMP", b.op("REVERSE", y, axis=0), min_val=low, max_val=high, nan_mode=ignore)
    with pytest.raises(UnsupportedError, match="may be NaN"):
        prepare(b.graph([y]))


def test_a_constant_of_nan_is_named():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    values = np.ones(SHAPE)
    values[1, 2] = np.nan
    graph = b.graph([b.op("CONCAT", x, constant(b, values, "fixed"), axis=0)])
    with pytest.raises(
        UnsupportedError, match=r"constant 'fixed' is NaN at \(1, 2\), and integers"
    ):
        prepare(graph)


def test_nan_around_a_tensor_is_named():
    b = Builder()
    x, sizes = floats(b, "x", *SHAPE), b.const_shape([0, 0, 1, 1])
    graph = b.graph([b.op("PAD", x, sizes, constant(b, [np.nan], "around"))])
    with pytest.raises(UnsupportedError, match=r"constant 'around' is NaN at \(0,\), and integers"):
        prepare(graph)


def test_booleans_that_no_number_changes():
    b = Builder()
    x, mask = floats(b, "x", *SHAPE), b.input("mask", DType.BOOL, SHAPE)
    one = b.op("EQUAL", x, x, name="one")
    none = b.op("LOGICAL_NOT", one, name="none")
    named = {
        "one": True,
        "none": False,
        "or": True,
        "and": False,
        "any": False,
        "all": True,
        "moved": False,
    }
    made = [
        b.op("LOGICAL_OR", mask, one, name="or"),
        b.op("LOGICAL_AND", none, mask, name="and"),
        b.op("LOGICAL_AND", one, mask, name="open"),
        b.op("REDUCE_ANY", none, axis=0, name="any"),
        b.op("REDUCE_ALL", one, axis=0, name="all"),
        b.op("TILE", none, b.const_shape([1, 2]), name="moved"),
        b.op("EQUAL", x, clamp(b, x, 0, 1), name="other"),
    ]
    graph = b.graph([one, none, *made])
    assert dict(Nans.of(graph).truths) == named
    trial = Trial(graph, uniform(0, *SHAPE), np.eye(*SHAPE, dtype=bool))
    for name, truth in named.items():
        np.testing.assert_array_equal(trial[name], truth)


@pytest.mark.parametrize("is_number", [True, False])
def test_a_choice_that_is_always_the_same_is_not_made(is_number):
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    condition = b.op("EQUAL", x, x)
    condition = condition if is_number else b.op("LOGICAL_NOT", condition)
    trial = Trial(
        b.graph([b.op("SELECT", condition, x, y, name="z")]),
        uniform(0, *SHAPE),
        uniform(1, *SHAPE),
    )
    np.testing.assert_array_equal(trial["z"], trial["x" if is_number else "y"])
    assert "SELECT" not in operators(trial.frozen)
