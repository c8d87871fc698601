"""Estimators keep the value and have the derivative of their definition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import grad

VALUES = jnp.array([-9.0, -8.5, -8.2, -8.0, -0.5, 0.1, 0.5, 6.9, 7.0, 7.4, 7.5, 9.0])
ALL = {
    "zero": grad.zero,
    "ste": grad.ste,
    "clipped_ste": grad.clipped_ste,
    "round_window": grad.round_window,
    "ewgs": grad.ewgs(0.2),
    "soft_round": grad.soft_round(0.3),
    "noise": grad.noise(jax.random.key(0)),
    "pwl": grad.pwl(0.5),
}


def slopes(estimator, values=VALUES):
    return np.asarray(jax.grad(lambda v: estimator(v, -8.0, 7.0).sum())(values))


@pytest.mark.parametrize(
    ("low", "high"), [(-np.inf, np.inf), (-np.inf, 7.0), (-8.0, np.inf), (np.inf, -np.inf)]
)
def test_a_range_may_lack_an_end(low, high):
    found = jax.grad(lambda v: grad.clipped_ste(v, low, high).sum())(VALUES)
    np.testing.assert_array_equal(found, (low <= VALUES) & (high >= VALUES))


@pytest.mark.parametrize("name", ALL)
def test_values_stay(name):
    np.testing.assert_array_equal(ALL[name](VALUES, -8.0, 7.0), VALUES)
    compiled = jax.jit(lambda v: ALL[name](v, -8.0, 7.0))
    np.testing.assert_array_equal(compiled(VALUES), VALUES)


def test_simple_ones():
    np.testing.assert_array_equal(slopes(grad.zero), np.zeros(12))
    np.testing.assert_array_equal(slopes(grad.ste), np.ones(12))
    np.testing.assert_array_equal(slopes(grad.clipped_ste), [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(slopes(grad.round_window), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0])


def test_ewgs_scales_by_the_error_of_rounding():
    v = jnp.array([0.3, 0.3, -1.2, 9.0])
    gradient = jnp.array([2.0, -2.0, 1.0, 1.0])
    _, pull = jax.vjp(lambda v: grad.ewgs(0.2)(v, -8.0, 7.0), v)
    want = [2 * (1 + 0.2 * 0.3), -2 * (1 - 0.2 * 0.3), 1 - 0.2 * 0.2, 0]
    np.testing.assert_allclose(pull(gradient)[0], want, rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.3, 1.0])
def test_soft_round_is_the_slope_of_a_smooth_step(temperature):
    v = np.linspace(-2.45, 2.45, 50)

    def smooth(v):
        middle = np.floor(v) + 0.5
        return middle + np.tanh((v - middle) / temperature) / (2 * np.tanh(0.5 / temperature))

    want = (smooth(v + 1e-6) - smooth(v - 1e-6)) / 2e-6
    found = slopes(grad.soft_round(temperature), jax.device_put(np.asarray(v, jnp.float32)))
    np.testing.assert_allclose(found, want, rtol=2e-3, atol=1e-4)


def test_ramps_are_one_on_average():
    v = jnp.linspace(-5, 5, 10_000, endpoint=False)
    for width in (0.25, 0.5, 1.0):
        found = slopes(grad.pwl(width), v)
        assert set(np.unique(found)) <= {0.0, np.float32(1 / width)}
        assert abs(found.mean() - 1) < 0.01
    at_tie, between = slopes(grad.pwl(0.5), jnp.array([1.5, 2.0]))
    assert (at_tie, between) == (2.0, 0.0)


def test_noise_moves_the_bounds():
    v = jnp.full(4000, 7.0)
    found = slopes(grad.noise(jax.random.key(1)), v)
    assert 0.45 < found.mean() < 0.55
    assert slopes(grad.noise(jax.random.key(1)), jnp.full(100, 6.4)).all()
