"""GRU and LSTM of the HiFi 5 NN Library: their definitions, and weights, by the library's names."""

from __future__ import annotations

import numpy as np

from oracle.hifi_oracle import draw
from tosajax.hifi.bench.definitions.recurrent import gru_scan, lstm_scan

__all__ = [
    "GRU",
    "LSTM",
    "cancelling",
    "draw_weights",
    "filled",
    "gru_scan",
    "lstm_scan",
    "scaled",
    "shapes",
]

_ONE = 2**15 - 1
# Matrices for the input, matrices for the state, biases.
GRU = ("w_z", "w_r", "w_h"), ("u_z", "u_r", "u_h"), ("b_z", "b_r", "b_h")
LSTM = (
    ("w_xf", "w_xi", "w_xc", "w_xo"),
    ("w_hf", "w_hi", "w_hc", "w_ho"),
    ("b_f", "b_i", "b_c", "b_o"),
)


def shapes(layer, in_feats, out_feats):
    """The shape of each weight."""
    of_input, of_state, biases = layer
    return {
        **dict.fromkeys(of_input, (out_feats, in_feats)),
        **dict.fromkeys(of_state, (out_feats, out_feats)),
        **dict.fromkeys(biases, (out_feats,)),
    }


def draw_weights(rng, layer, in_feats, out_feats, dtype):
    """Weights of the full range, half of them at its ends or next to 0."""
    types = {name: np.int16 if name in layer[2] else dtype for name in sum(layer, ())}
    sizes = shapes(layer, in_feats, out_feats)
    return {name: draw(rng, types[name], shape) for name, shape in sizes.items()}


def cancelling(rng, rows, dtype):
    """A matrix, and an input of 64 elements: large products that add up to little.

    Products with inputs of 2**15 - 1, 128 and 1 cancel the rest of 40 others.
    """
    x = np.concatenate([draw(rng, np.int16, (40,)), [_ONE] * 20, [128] * 3, [1]]).astype(np.int16)
    matrix = np.zeros((rows, 64), np.int64)
    matrix[:, :40] = draw(rng, dtype, (rows, 40))
    left = -matrix @ x.astype(np.int64)
    for part, factor in ((slice(40, 60), _ONE), (slice(60, 63), 128)):
        count = part.stop - part.start
        total = (2 * left + factor) // (2 * factor)
        # As evenly as integers allow.
        matrix[:, part] = (total[:, None] + np.arange(count)) // count
        left = left - total * factor
    matrix[:, 63] = left + rng.integers(-60, 60, rows)
    assert np.iinfo(dtype).min <= matrix.min() <= matrix.max() <= np.iinfo(dtype).max
    return matrix.astype(dtype), x


def scaled(weights, amount):
    """Weights of a smaller range: the upper bits, `amount` bits down."""
    return {name: value >> amount for name, value in weights.items()}


def filled(weights, end):
    """The same weights with one end of the range everywhere: "min" or "max"."""
    return {n: np.full_like(v, getattr(np.iinfo(v.dtype), end)) for n, v in weights.items()}
