"""The GRU layer: what it does not share with the LSTM layer."""

from __future__ import annotations

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest
from hifi.recurrent import GRU, SIZE, cases, expected_of, over_cases, stacked

from tosajax.hifi.errors import NNLibParamError
from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import GRUConfig, GRUState, GRUWeights, gru_step, gru_step_float

SMALL = GRUConfig(**SIZE)


def test_the_update_of_the_guide():
    drawn, start, xs = cases(GRU, np.random.default_rng(41), np.int16)
    run = over_cases(GRU, SMALL, activation="ideal", update="guide")
    _, states = run(stacked(GRU, drawn), start, xs)
    wanted = expected_of(GRU, SMALL, drawn, start, xs, update="guide")
    np.testing.assert_array_equal(states.prev_h, wanted.prev_h)
    assert (states.prev_h != expected_of(GRU, SMALL, drawn, start, xs).prev_h).any()


def test_products_of_minus_one_saturate():
    """Odd coefficients make sigmoid -1 below 0, and the reset state is -1 times -1: 0x7FFF."""
    odd = FIXED._replace(sigmoid_scale=0, reciprocal=(-(2**31), 2**31 - 1))
    weights = GRU.zeros()
    weights["b_r"][:], weights["u_h"][:] = -1, 2**14
    state = GRUState(np.full(8, -(2**15), np.int16))
    x = np.zeros(12, np.int16)
    _, y = gru_step(SMALL, GRUWeights(**weights), state, x, activation=odd)
    np.testing.assert_array_equal(y, np.full(8, 4094))


def test_other_updates():
    weights, state, wrong = GRUWeights(**GRU.zeros()), GRU.init(SMALL), cast("Any", "silicon")
    with pytest.raises(NNLibParamError, match="update is 'silicon', expected one of library, gui"):
        gru_step(SMALL, weights, state, np.zeros(12, np.int16), update=wrong)
    weights = GRUWeights(*[np.zeros((4, 4), np.float32)] * 6, *[np.zeros(4, np.float32)] * 3)
    state = GRUState(np.zeros(4, np.float32))
    with pytest.raises(NNLibParamError, match="update is 'silicon'"):
        gru_step_float(weights, state, jnp.zeros(4), update=wrong)
