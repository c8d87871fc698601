"""Losses of teachers, beside their formulas in float64."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import quant as tq

RNG = np.random.default_rng(3)
OUTPUTS, TAUGHT = ([RNG.normal(0, 3, s) for s in ((4, 5), (2, 3, 2))] for _ in range(2))


def arrays(found):
    return tuple(jnp.asarray(x, jnp.float32) for x in found)


def divergence(scores, taught, temperature):
    p, q = (np.exp(x / temperature) for x in (taught, scores))
    p, q = (x / x.sum(-1, keepdims=True) for x in (p, q))
    return temperature**2 * (p * np.log(p / q)).sum(-1).mean()


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_distillation(temperature):
    wanted = sum(divergence(y, t, temperature) for y, t in zip(OUTPUTS, TAUGHT, strict=True))
    alone = tq.distillation(temperature=temperature)
    np.testing.assert_allclose(alone(arrays(OUTPUTS), None, arrays(TAUGHT)), wanted, rtol=1e-5)
    mixed = tq.distillation(lambda y, t: jnp.float32(t), weight=0.25, temperature=temperature)
    found = mixed(arrays(OUTPUTS), 8.0, arrays(TAUGHT))
    np.testing.assert_allclose(found, 0.75 * 8 + 0.25 * wanted, rtol=1e-5)


def test_squared_difference():
    wanted = sum(np.square(y - t).mean() for y, t in zip(OUTPUTS, TAUGHT, strict=True))
    found = tq.squared_difference(arrays(OUTPUTS), None, arrays(TAUGHT))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": 1.5}, r"weight is 1.5, expected a number in \[0, 1\]"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"temperature": 0.0}, "temperature is 0.0, expected a positive number"),
    ],
)
def test_numbers_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        tq.distillation(**options)
