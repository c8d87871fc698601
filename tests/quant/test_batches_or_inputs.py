"""Verbs that take examples take the batches of `calibrate` as well, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from tosajax import quant

RNG = np.random.default_rng(5)
W = RNG.normal(size=(6, 4)).astype(np.float32)
X, Y = RNG.normal(size=(2, 8, 6)).astype(np.float32)
BATCHES = [(X[:3], Y[:3]), (X[3:4], Y[3:4]), (X[4:], Y[4:])]

VERBS: dict[str, Callable[..., Any]] = {
    "check_bit_exact": lambda model, params, *x: quant.check_bit_exact(
        model, params, *x, against="frozen"
    ),
    "mixed_precision": lambda model, params, *x: (
        quant.mixed_precision(model, params, *x, budget=1000, points=2).params
    ),
    "report": quant.report,
    "rescue": lambda model, params, *x: quant.rescue(model, params, *x, budget=1).lifted,
    "sensitivity": lambda model, params, *x: quant.sensitivity(model, params, *x, bits=(4, 8)),
}


@pytest.fixture(scope="module")
def model() -> quant.PreparedModel:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ W) * (y @ W)

    return quant.prepare(function, example_args=[X[:1], Y[:1]])


@pytest.fixture(scope="module")
def params(model: quant.PreparedModel) -> Any:
    return quant.calibrate(model, BATCHES)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_results_are_the_same(model, params, verb):
    wanted = verb(model, params, X, Y)
    for batches in (BATCHES, tuple(BATCHES), iter(BATCHES), (pair for pair in BATCHES)):
        found = verb(model, params, batches)
        jax.tree.map(np.testing.assert_array_equal, *map(_plain, (found, wanted)))


def _plain(result: Any) -> Any:
    return result if isinstance(result, dict | tuple) else str(result)


def test_one_input(params):
    model = quant.prepare(lambda x: x @ W, example_args=[X[:1]])
    params = quant.calibrate(model, [X])
    wanted = str(quant.report(model, params, X))
    assert str(quant.report(model, params, [X[:5], X[5:]])) == wanted
    assert str(quant.report(model, params, X.tolist())) == wanted  # numbers are no batches
    assert str(quant.report(model, params, list(X[:, None]))) == wanted
    assert str(quant.report(model, params, list(X))) == wanted  # rows of one array


def test_errors_name_the_batch(model, params):
    worse = X[:2].copy()
    worse[1, 3] = np.nan
    with pytest.raises(ValueError, match=r"batch 1: input 'x' is nan at \(1, 3\)"):
        quant.report(model, params, [(X, Y), (worse, Y[:2])])
    with pytest.raises(ValueError, match=r"batch 0: input 'x' is nan at \(1, 3\)"):
        quant.check_bit_exact(model, params, [(worse, Y[:2])], against="frozen")
    with pytest.raises(ValueError, match="there are no batches"):
        quant.report(model, params, iter(()))
    with pytest.raises(TypeError, match="expected 2"):
        quant.report(model, params, [X])
