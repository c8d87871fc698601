"""Training with batch norms: statistics of batches, then their own."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tosajax import quant as tq


@pytest.fixture(scope="module")
def normed(model: tq.PreparedModel) -> tq.PreparedModel:
    """The small network, its first convolution with a batch norm."""
    weight = tq.QSpec("i8", bits=4, per_channel=True, narrow_range=True)
    act = tq.QSpec("i8", bits=6, symmetric=False, observer=tq.moving_average())
    rules = [tq.rule(".*", weight=weight, act=act)]
    return tq.prepare(model.float_graph, rules, batch_norms="conv0")


@pytest.fixture(scope="module")
def start(normed: tq.PreparedModel, batches: list[Any]) -> Any:
    return tq.calibrate(normed, [x for x, _ in batches])


def equal(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("mode", ["exact", "fake_quant", "float"])
def test_steps_are_those_of_a_loop_by_hand(normed, start, batches, loss, mode):
    optimizer = tq.relative(optax.adam(1e-2))

    def value(params: Any, x: Any, y: Any) -> Any:
        outputs, norms = normed.apply_batch(params, x, mode=mode)
        return loss(outputs, y), norms

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        (_, norms), gradient = jax.value_and_grad(value, has_aux=True)(params, x, y)
        with jax.numpy_dtype_promotion("standard"):
            updates: Any
            updates, state = optimizer.update(gradient, state, params)
        stepped: Any = optax.apply_updates(params, updates)
        return tq.with_statistics(stepped, norms, momentum=0.8), state

    by_hand = start
    with jax.numpy_dtype_promotion("standard"):
        state = optimizer.init(start)
    for n in range(4):
        by_hand, state = step(by_hand, state, *batches[n])
    schedule = tq.Schedule(batch_statistics=4, momentum=0.8)
    found = tq.fit(
        normed, start, batches, loss, steps=4, optimizer=optimizer, mode=mode, schedule=schedule
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found.params, by_hand
    )


@pytest.mark.slow
def test_then_by_their_own(normed, start, batches, loss):
    """After the first steps statistics stay, and the loss falls all the same."""
    schedule = tq.Schedule(batch_statistics=30)
    optimizer = tq.relative(optax.adam(1e-2))
    options: Any = {"optimizer": optimizer, "schedule": schedule, "every": 10}
    first = tq.fit(normed, start, batches, loss, steps=30, **options)
    found = tq.fit(normed, start, batches, loss, steps=120, **options, state=first.state)
    whole = tq.fit(normed, start, batches, loss, steps=120, **options)
    equal(found.params, whole.params)
    before, after = (each.params["norms"]["conv0"] for each in (first, found))
    assert (before.mean != start["norms"]["conv0"].mean).any()
    for what in ("mean", "deviation"):
        equal(getattr(before, what), getattr(after, what))
    assert (before.gamma != after.gamma).all()
    assert found.history[-1].loss < 0.5 * whole.history[0].loss
    assert tq.check_bit_exact(normed, found.params, batches[0][0], against=("frozen",))


def test_observers_see_the_norms(normed, start, batches, loss):
    """Ranges are those of the network with its present norms."""
    norm = start["norms"]["conv0"]
    narrow = dataclasses.replace(norm, gamma=norm.gamma / 8)
    params = {**start, "norms": {"conv0": narrow}}
    schedule = tq.Schedule(observe=1)
    held = optax.set_to_zero()
    found = tq.fit(normed, params, batches, loss, steps=1, optimizer=held, schedule=schedule)
    equal(found.params["norms"], params["norms"])
    ratio = found.params["qparams"]["conv0"].scale / start["qparams"]["conv0"].scale
    assert float(ratio) < 1 / 3


@pytest.mark.slow
def test_a_penalty_and_averages_go_together(normed, start, batches, loss):
    schedule = tq.Schedule(batch_statistics=3, average=0.9, stochastic=lambda step: 1.0)
    found = tq.fit(
        normed, start, batches, loss, steps=5, schedule=schedule, penalty=lambda p: jnp.float32(2)
    )
    plain = tq.fit(normed, start, batches, loss, steps=5, schedule=schedule)
    np.testing.assert_allclose(found.history[0].loss, plain.history[0].loss + 2, rtol=1e-5)


def test_errors(model, params, batches, loss):
    with pytest.raises(ValueError, match="batch_statistics of a model that keeps no batch norms"):
        tq.fit(model, params, batches, loss, schedule=tq.Schedule(batch_statistics=1))
    with pytest.raises(ValueError, match=r"momentum is -0.1, expected a number in \[0, 1\]"):
        tq.Schedule(momentum=-0.1)
    with pytest.raises(ValueError, match="batch_statistics is -1, expected a number of steps"):
        tq.Schedule(batch_statistics=-1)
