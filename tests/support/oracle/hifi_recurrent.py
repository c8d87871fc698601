"""GRU and LSTM of the HiFi 5 NN Library as their equations read, in Python integers.

Activations are float64, correctly rounded. Weights are dicts of arrays by the library's names.
"""

from __future__ import annotations

import numpy as np

from oracle.hifi_activation_oracle import in_float64
from oracle.hifi_oracle import (
    by_element,
    dot,
    draw,
    fixed,
    integers,
    round_half_away,
    saturate,
)

# Matrices for the input, matrices for the state, biases.
GRU = ("w_z", "w_r", "w_h"), ("u_z", "u_r", "u_h"), ("b_z", "b_r", "b_h")
LSTM = (
    ("w_xf", "w_xi", "w_xc", "w_xo"),
    ("w_hf", "w_hi", "w_hc", "w_ho"),
    ("b_f", "b_i", "b_c", "b_o"),
)
ONE = 2**15 - 1


def activation(name, total):
    """Q6.25 to Q15."""
    nearest = np.floor(in_float64(name, total) * 2**15 + 0.5)
    return integers(np.clip(nearest, -(2**15), ONE).astype(np.int64))


def gate(name, weights, fields, x, h, coeff, io):
    """An activation of W x + U h + b, whose sum is rounded to Q6.25; b is in Q15."""
    of_x, of_h, bias = (weights[field] for field in fields)
    sums = dot(of_x, x) + dot(of_h, h)
    return activation(name, fixed(sums, bias, 25 - coeff - io, io + coeff - 15, np.int32))


def gru_step(weights, h, x, coeff, io, update="library"):
    """The next output, from the previous one."""
    h = integers(h)
    z = gate("sigmoid", weights, ("w_z", "u_z", "b_z"), x, h, coeff, io)
    r = gate("sigmoid", weights, ("w_r", "u_r", "b_r"), x, h, coeff, io)
    reset = (r * h) >> 15
    g = gate("tanh", weights, ("w_h", "u_h", "b_h"), x, reset, coeff, io) >> (15 - io)
    first, second = (h, g) if update == "library" else (g, h)
    total = ((z * first) >> 15) + (((ONE - z) * second) >> 15)
    return by_element(lambda value: saturate(value, np.int16), total)


def gru_scan(weights, h, xs, coeff, io, update="library"):
    """The outputs of a sequence, int16."""
    ys = []
    for x in xs:
        h = gru_step(weights, h, x, coeff, io, update)
        ys.append(h)
    return np.array(ys).astype(np.int16)


def lstm_step(weights, h, c, x, coeff, io, cell=25):
    """The next output and cell, from the previous ones."""
    h, c = integers(h), integers(c)
    f, i, o = (
        gate("sigmoid", weights, (f"w_x{name}", f"w_h{name}", f"b_{name}"), x, h, coeff, io)
        for name in "fio"
    )
    candidate = gate("tanh", weights, ("w_xc", "w_hc", "b_c"), x, h, coeff, io)

    def next_cell(c, f, i, candidate):
        kept = saturate(round_half_away(c * f, 2**15), np.int32)
        new = saturate(2 * i * candidate, np.int32) >> (31 - cell)
        return saturate(kept + new, np.int32)

    c = by_element(next_cell, c, f, i, candidate)
    squashed = activation("tanh", c.astype(np.int64))
    return ((o * squashed) >> 15) >> (15 - io), c


def lstm_scan(weights, h, c, xs, coeff, io, cell=25):
    """The outputs of a sequence, int16, and the cells, int32."""
    ys, cells = [], []
    for x in xs:
        h, c = lstm_step(weights, h, c, x, coeff, io, cell)
        ys.append(h)
        cells.append(c)
    return np.array(ys).astype(np.int16), np.array(cells).astype(np.int32)


# Data.


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
    x = np.concatenate([draw(rng, np.int16, (40,)), [ONE] * 20, [128] * 3, [1]]).astype(np.int16)
    matrix = np.zeros((rows, 64), np.int64)
    matrix[:, :40] = draw(rng, dtype, (rows, 40))
    left = -matrix @ x.astype(np.int64)
    for part, factor in ((slice(40, 60), ONE), (slice(60, 63), 128)):
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
