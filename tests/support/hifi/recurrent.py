"""The recurrent layers, for tests of both: classes, functions, definitions and operands."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from oracle import hifi_recurrent as oracle
from oracle.hifi_oracle import draw

from tosajax.hifi import layers, training
from tosajax.hifi.layers import Precision

PRECISIONS = {"16x16": Precision.P16bx16b, "8x16": Precision.P8bx16b}
TYPES = {"16x16": np.int16, "8x16": np.int8}
SIZE = {"in_feats": 12, "out_feats": 8}


class Layer(NamedTuple):
    """A recurrent layer.

    Args:
      name: as in the names of its classes.
      config: the class of its configurations.
      state: the class of its states.
      weights: the class of its weights.
      init: the state of zeros.
      step: computes one output.
      scan: computes the outputs of a sequence.
      states: computes the states after each step of a sequence.
      step_float: `step` in floats.
      scan_float: `scan` in floats.
      trainable: `scan` with gradients.
      oracle: the names of its weights.
      definition: computes the parts of `states` by the oracle.
      real: computes them of real numbers, without a configuration.
    """

    name: str
    config: Any
    state: Any
    weights: Any
    init: Any
    step: Any
    scan: Any
    states: Any
    step_float: Any
    scan_float: Any
    trainable: Any
    oracle: Any
    definition: Any
    real: Any

    def shapes(self, in_feats=12, out_feats=8):
        return oracle.shapes(self.oracle, in_feats, out_feats)

    def zeros(self, in_feats=12, out_feats=8):
        """Weights of int16 by their names."""
        sizes = self.shapes(in_feats, out_feats)
        return {name: np.zeros(shape, np.int16) for name, shape in sizes.items()}

    def draw_state(self, rng, *shape):
        return self.state(*(draw(rng, x.dtype, shape) for x in self.init(self.config())))


def _gru_states(config, weights, state, xs, **options):
    last, ys = layers.gru_scan(config, weights, state, xs, **options)
    return last, layers.GRUState(ys)


def _gru(config, weights, state, xs, **options):
    (h,), formats = state, (config.coeff_Qformat, config.io_Qformat)
    return (oracle.gru_scan(weights, h, xs, *formats, **options),)


def _lstm(config, weights, state, xs):
    (h, c), formats = state, (config.coeff_Qformat, config.io_Qformat, config.cell_Qformat)
    return oracle.lstm_scan(weights, h, c, xs, *formats)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _real_gru(w, h, xs, update="library"):
    ys = []
    for x in xs:
        z, r = (_sigmoid(w[f"w_{n}"] @ x + w[f"u_{n}"] @ h + w[f"b_{n}"]) for n in "zr")
        g = np.tanh(w["w_h"] @ x + w["u_h"] @ (r * h) + w["b_h"])
        h = z * h + (1 - z) * g if update == "library" else z * g + (1 - z) * h
        ys.append(h)
    return (np.stack(ys),)


def _real_lstm(w, h, c, xs):
    ys, cells = [], []
    for x in xs:
        f, i, o, g = (w[f"w_x{n}"] @ x + w[f"w_h{n}"] @ h + w[f"b_{n}"] for n in "fioc")
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        ys.append(h)
        cells.append(c)
    return np.stack(ys), np.stack(cells)


GRU = Layer(
    name="GRU",
    config=layers.GRUConfig,
    state=layers.GRUState,
    weights=layers.GRUWeights,
    init=layers.gru_init,
    step=layers.gru_step,
    scan=layers.gru_scan,
    states=_gru_states,
    step_float=layers.gru_step_float,
    scan_float=layers.gru_scan_float,
    trainable=training.gru_scan_trainable,
    oracle=oracle.GRU,
    definition=_gru,
    real=_real_gru,
)
LSTM = Layer(
    name="LSTM",
    config=layers.LSTMConfig,
    state=layers.LSTMState,
    weights=layers.LSTMWeights,
    init=layers.lstm_init,
    step=layers.lstm_step,
    scan=layers.lstm_scan,
    states=layers.lstm_states,
    step_float=layers.lstm_step_float,
    scan_float=layers.lstm_scan_float,
    trainable=training.lstm_scan_trainable,
    oracle=oracle.LSTM,
    definition=_lstm,
    real=_real_lstm,
)
EACH = pytest.mark.parametrize("layer", [GRU, LSTM], ids=["gru", "lstm"])


def cases(layer, rng, dtype, steps=4):
    """Weights, states and inputs, one beside the other: full range, small, and at the ends."""
    drawn = [oracle.draw_weights(rng, layer.oracle, 12, 8, dtype) for _ in range(6)]
    drawn[1] = oracle.scaled(drawn[1], np.iinfo(dtype).bits // 2 - 2)
    drawn[2] = oracle.scaled(drawn[2], np.iinfo(dtype).bits // 2)
    for i, end in ((3, "min"), (4, "max"), (5, "max")):
        drawn[i] = oracle.filled(drawn[i], end)
    state, xs = layer.draw_state(rng, 6, 8), draw(rng, np.int16, (6, steps, 12))
    xs[2] >>= 4
    xs[3], xs[4], xs[5] = -(2**15), 2**15 - 1, -(2**15)
    for part in state:
        low, high = np.iinfo(part.dtype).min, np.iinfo(part.dtype).max
        part[0, :5] = low, high, low, high, -1
        part[3], part[4:] = low, high
    for cell in state[1:]:
        # tanh does not saturate.
        cell[2] >>= 5
    return drawn, state, xs


def stacked(layer, drawn):
    return layer.weights(**{name: np.stack([w[name] for w in drawn]) for name in drawn[0]})


def over_cases(layer, config, **options):
    return jax.jit(jax.vmap(functools.partial(layer.states, config, **options)))


def expected_of(layer, config, drawn, states, xs, **options):
    """The states after each step of each case, by the oracle."""
    found = [
        layer.definition(config, w, state, x, **options)
        for w, state, x in zip(drawn, zip(*states, strict=True), xs, strict=True)
    ]
    return layer.state(*map(np.stack, zip(*found, strict=True)))


def assert_same(found, wanted):
    """All parts of two states are equal."""
    for part, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(part, other)
