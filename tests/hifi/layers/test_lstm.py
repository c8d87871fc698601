"""The LSTM layer: what it does not share with the GRU layer, above all its cell."""

from __future__ import annotations

import functools
import warnings

import jax
import numpy as np
import pytest
from hifi.recurrent import LSTM, SIZE, assert_same, cases, expected_of, over_cases, stacked
from oracle import hifi_recurrent as oracle

from tosajax.hifi.kernels.activations import FIXED
from tosajax.hifi.layers import LSTMConfig, LSTMState, LSTMWeights, lstm_step


@pytest.mark.parametrize("cell", [0, 13, 24])
def test_other_formats_of_the_cell(cell):
    with warnings.catch_warnings(action="ignore"):
        config = LSTMConfig(**SIZE, cell_Qformat=cell)
    drawn, start, xs = cases(LSTM, np.random.default_rng(43), np.int16)
    _, states = over_cases(LSTM, config, activation="ideal")(stacked(LSTM, drawn), start, xs)
    assert_same(states, expected_of(LSTM, config, drawn, start, xs))


def test_the_default_format_of_the_cell():
    assert LSTMConfig().cell_Qformat == 25


def test_formats_of_the_cell_that_tanh_does_not_read_warn():
    LSTMConfig(cell_Qformat=25)
    with pytest.warns(UserWarning, match="cell_Qformat is 24, but tanh reads the cell") as found:
        LSTMConfig(cell_Qformat=24)
    assert [w.filename for w in found] == [__file__]


def test_the_cell_rounds_ties_away_from_zero_and_saturates():
    """Zero weights: the gates are the sigmoids of the biases, and 0 for the candidate."""
    config = LSTMConfig(in_feats=4, out_feats=24)
    weights = LSTM.zeros(4, 24)
    # Ties of c / 2.
    c = np.array([1, -1, 3, -3, 2**31 - 1, -(2**31), 5, -5] * 3, np.int32)
    state = LSTMState(np.zeros(24, np.int16), c)
    run = jax.jit(functools.partial(lstm_step, config, activation="ideal"))
    after, _ = run(LSTMWeights(**weights), state, np.zeros(4, np.int16))
    away = np.array([1, -1, 2, -2, 2**30, -(2**30), 3, -3] * 3)
    np.testing.assert_array_equal(after.prev_c, away)
    # All gates wide open: f c + i candidate is beyond the range.
    for end in (2**15 - 1, -(2**15)):
        for name in ("w_xf", "w_xi", "w_xo"):
            weights[name][:] = 2**15 - 1
        weights["w_xc"][:] = end
        x = np.full(4, 2**15 - 1, np.int16)
        after, y = run(LSTMWeights(**weights), state, x)
        wanted_y, wanted_c = oracle.lstm_scan(weights, *state, x[None], 15, 12)
        np.testing.assert_array_equal(after.prev_c, wanted_c[0])
        np.testing.assert_array_equal(y, wanted_y[0])
        assert 2**31 - 1 in after.prev_c or -(2**31) in after.prev_c


def test_products_of_minus_one_saturate():
    """Odd coefficients make sigmoid -1 below 0; tanh of the candidate and of the cell are -1."""
    odd = FIXED._replace(sigmoid_scale=0, reciprocal=(-(2**31), 2**31 - 1))
    config = LSTMConfig(**SIZE, io_Qformat=15)
    weights = LSTM.zeros()
    for name, value in {"b_f": -1, "b_i": -1, "b_o": -1, "w_xc": -(2**15)}.items():
        weights[name][:] = value
    state = LSTMState(np.zeros(8, np.int16), np.full(8, 2**31 - 1, np.int32))
    x = np.full(12, 2**15 - 1, np.int16)
    state, y = lstm_step(config, LSTMWeights(**weights), state, x, activation=odd)
    np.testing.assert_array_equal(state.prev_c, np.full(8, -(2**31) + 1 + (2**31 - 1 >> 6)))
    np.testing.assert_array_equal(y, np.full(8, 2**15 - 1))
