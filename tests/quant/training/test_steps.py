"""Steps of scales: their logarithms are trained, by any optimizer."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tosajax import quant as tq

QPARAMS = tq.QParams(jnp.float32([[0.5], [2e-4]]), jnp.float32(-3), jnp.float32(6), symmetric=False)
PARAMS: Any = {"values": {"w": jnp.float32([1.0, -2.0])}, "qparams": {"x": QPARAMS}}
GRADIENT: Any = {
    "values": {"w": jnp.float32([0.25, 4.0])},
    "qparams": {
        "x": dataclasses.replace(
            QPARAMS,
            scale=jnp.float32([[0.5], [-800.0]]),
            zero_point=jnp.float32(1 / 64),
            bits=jnp.float32(-0.25),
        )
    },
}


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_dtype_promotion("standard"):  # optax relies on it
        yield


def stepped(optimizer: Any, gradient: Any = GRADIENT, params: Any = PARAMS, steps: int = 1) -> Any:
    state = optimizer.init(params)
    for _ in range(steps):
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


def test_a_step_of_gradient_descent():
    """Beside the chain rule by hand, in float64."""
    found = stepped(tq.relative(optax.sgd(0.1)))
    np.testing.assert_allclose(found["values"]["w"], [1 - 0.1 * 0.25, -2 - 0.1 * 4], rtol=1e-6)
    own = found["qparams"]["x"]
    # The optimizer sees log(scale), zero_point / 2**5 and log(bits).
    wanted = [[0.5 * np.exp(-0.1 * 0.5 * 0.5)], [2e-4 * np.exp(-0.1 * -800 * 2e-4)]]
    np.testing.assert_allclose(own.scale, wanted, rtol=1e-6)
    np.testing.assert_allclose(own.zero_point, -3 - 0.1 * (32 / 64) * 32, rtol=1e-6)
    np.testing.assert_allclose(own.bits, 6 * np.exp(0.1 * 0.25 * 6), rtol=1e-6)


def test_steps_of_adam_are_shares_of_scales():
    own = stepped(tq.relative(optax.adam(0.01)))["qparams"]["x"]
    np.testing.assert_allclose(own.scale / QPARAMS.scale, np.exp([[-0.01], [0.01]]), rtol=1e-5)
    np.testing.assert_allclose(own.zero_point, -3 - 0.01 * 32, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [optax.sgd, optax.adam, optax.adamw, optax.lion, optax.adafactor, optax.rmsprop]
)
def test_scales_stay_positive(make):
    """Also at rates that would take any of them below 0 at once."""
    found = stepped(tq.relative(make(1e3)), steps=3)["qparams"]["x"]
    for value, before in ((found.scale, QPARAMS.scale), (found.bits, QPARAMS.bits)):
        ratio = np.asarray(value) / np.asarray(before)
        assert (ratio >= 0.124).all()
        assert (ratio <= 8.01).all()
    plain = stepped(optax.sgd(1e3))["qparams"]["x"]
    assert np.asarray(plain.scale).min() < 0


def test_weight_decay_draws_scales_to_their_start():
    still = jax.tree.map(jnp.zeros_like, GRADIENT)
    optimizer: Any = tq.relative(optax.adamw(0.1, weight_decay=0.5))
    at_start = stepped(optimizer, still)
    jax.tree.map(np.testing.assert_array_equal, at_start["qparams"], PARAMS["qparams"])
    assert (np.abs(at_start["values"]["w"]) < np.abs(PARAMS["values"]["w"])).all()
    moved = dataclasses.replace(QPARAMS, scale=2 * QPARAMS.scale, zero_point=jnp.float32(5))
    state = optimizer.init(PARAMS)
    params: Any = {**PARAMS, "qparams": {"x": moved}}
    updates, _ = optimizer.update(still, state, params)
    own = updates["qparams"]["x"]
    np.testing.assert_allclose(
        own.scale, 2 * QPARAMS.scale * (np.exp(-0.05 * np.log(2)) - 1), rtol=1e-4
    )
    np.testing.assert_allclose(own.zero_point, -0.05 * 8, rtol=1e-5)


def test_what_no_gradient_reaches_stays():
    """Corrections, and the scales that tables were sampled in, also under weight decay."""
    still = {"corrections": {"w": jnp.ones(2)}, "sampled": {"x": QPARAMS}}
    gradient: Any = {**GRADIENT, **still}
    found = stepped(tq.relative(optax.adamw(0.1, weight_decay=0.5)), gradient, {**PARAMS, **still})
    jax.tree.map(np.testing.assert_array_equal, {k: found[k] for k in still}, still)
    jax.tree.map(np.testing.assert_array_equal, found["qparams"]["x"], QPARAMS)
    assert (found["values"]["w"] != PARAMS["values"]["w"]).all()


# The factor of a batch norm and its shift; statistics, which do not move.
NORM = tq.Norm(*(jnp.float32(x) for x in ([0.5, 2e-3], [1, -1], [3, 4], [5, 6])))
SLOPE = tq.Norm(*(jnp.float32(x) for x in ([4, -800], [0.25, 2], [7, 7], [7, 7])))


def test_a_step_of_batch_norms():
    params, gradient = ({**p, "norms": {"y": n}} for p, n in ((PARAMS, NORM), (GRADIENT, SLOPE)))
    found = stepped(tq.relative(optax.sgd(0.1)), gradient, params)
    norm = found["norms"]["y"]
    wanted = [0.5 * np.exp(-0.1 * 4 * 0.5), 2e-3 * np.exp(0.1 * 800 * 2e-3)]
    np.testing.assert_allclose(norm.gamma, wanted, rtol=1e-6)
    np.testing.assert_allclose(norm.beta, [1 - 0.1 * 0.25, -1 - 0.1 * 2], rtol=1e-6)
    np.testing.assert_array_equal(norm.mean, NORM.mean)
    np.testing.assert_array_equal(norm.deviation, NORM.deviation)
    jax.tree.map(np.testing.assert_array_equal, found["qparams"], stepped_qparams())
    twice = stepped(tq.relative(optax.adamw(1e3)), gradient, params, steps=3)["norms"]["y"]
    assert (np.asarray(twice.gamma / NORM.gamma) >= 0.124).all()
    np.testing.assert_array_equal(twice.deviation, NORM.deviation)


def stepped_qparams() -> Any:
    return stepped(tq.relative(optax.sgd(0.1)))["qparams"]


def test_weight_decay_draws_factors_to_their_start():
    params: Any = {**PARAMS, "norms": {"y": NORM}}
    still = jax.tree.map(jnp.zeros_like, params)
    optimizer: Any = tq.relative(optax.adamw(0.1, weight_decay=0.5))
    state = optimizer.init(params)
    moved = {**params, "norms": {"y": dataclasses.replace(NORM, gamma=2 * NORM.gamma)}}
    updates, _ = optimizer.update(still, state, moved)
    wanted = 2 * NORM.gamma * (np.exp(-0.05 * np.log(2)) - 1)
    np.testing.assert_allclose(updates["norms"]["y"].gamma, wanted, rtol=1e-4)


def test_project_keeps_factors_and_statistics():
    params: Any = {**PARAMS, "norms": {"y": NORM}}
    stepped = tq.Norm(*(jnp.float32(x) for x in ([-1, 1.5e-3], [9, 9], [0, 0], [-1, 0])))
    found = tq.project({**params, "norms": {"y": stepped}}, params)["norms"]["y"]
    np.testing.assert_allclose(found.gamma, [0.25, 1.5e-3], rtol=1e-6)
    np.testing.assert_array_equal(found.beta, [9, 9])
    np.testing.assert_array_equal(found.mean, NORM.mean)
    np.testing.assert_array_equal(found.deviation, NORM.deviation)


def test_parameters_without_scales():
    """Those of `lift` get the steps of the optimizer itself."""
    params, gradient = ({"weights": {"w": tree["values"]["w"]}} for tree in (PARAMS, GRADIENT))
    found, wanted = (
        stepped(optimizer, gradient, params, 3)
        for optimizer in (tq.relative(optax.adamw(0.1)), optax.adamw(0.1))
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_more_arguments_reach_the_optimizer():
    seen = {}

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        seen.update(extra)
        return updates, state

    inner = optax.GradientTransformationExtraArgs(lambda params: (), update)
    optimizer: Any = tq.relative(inner)
    optimizer.update(GRADIENT, optimizer.init(PARAMS), PARAMS, value=jnp.float32(3))
    assert seen == {"value": 3}


def test_wrong_calls(monkeypatch):
    optimizer: Any = tq.relative(optax.sgd(0.1))
    with pytest.raises(ValueError, match="update without params"):
        optimizer.update(GRADIENT, optimizer.init(PARAMS))
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r"pip install 'tosajax\[train\]'"):
        tq.relative(optax.sgd(0.1))
