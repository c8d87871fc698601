"""GRU and LSTM of the HiFi 5 NN Library as their equations read, and weights by its names.

Matrices are Q(coeff), biases Q15, inputs and outputs Q(io). `activation` is "fixed", by the
coefficients of the kernels, or "ideal", correctly rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from oracle import hifi_activations as activations
from oracle.hifi_oracle import dot, draw, fixed, round_half_away, saturate, wide
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.kernels.activations import FIXED

_ONE = 2**15 - 1
Weights = Mapping[str, np.ndarray]
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


def gru_scan(
    weights: Weights,
    h: Array,
    xs: Iterable[np.ndarray],
    coeff: int,
    io: int,
    update: str = "library",
    *,
    activation: str = "ideal",
) -> np.ndarray:
    """The outputs of a sequence."""

    def gate(function: str, name: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        w, u, bias = (weights[f"{field}_{name}"] for field in "wub")
        total = fixed(dot(w, x) + dot(u, h), bias, *shifts, np.int32)
        return _activated(function, total, activation)

    shifts = 25 - coeff - io, io + coeff - 15
    ys, y = [], wide(h)
    for x in xs:
        z, r = (gate("sigmoid", name, x, y) for name in "zr")
        g = gate("tanh", "h", x, r * y >> 15) >> 15 - io
        first, second = (y, g) if update == "library" else (g, y)
        y = saturate((z * first >> 15) + ((_ONE - z) * second >> 15), np.int16)
        ys.append(y)
    return np.array(ys).astype(np.int16)


def lstm_scan(
    weights: Weights,
    h: Array,
    c: Array,
    xs: Iterable[np.ndarray],
    coeff: int,
    io: int,
    cell: int = 25,
    *,
    activation: str = "ideal",
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of a sequence, and the cells, in Q(cell)."""

    def gate(function: str, name: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        w, u, bias = (weights[f"{field}{name}"] for field in ("w_x", "w_h", "b_"))
        total = fixed(dot(w, x) + dot(u, h), bias, *shifts, np.int32)
        return _activated(function, total, activation)

    shifts = 25 - coeff - io, io + coeff - 15
    ys, cells, y, kept = [], [], wide(h), wide(c)
    for x in xs:
        f, i, o = (gate("sigmoid", name, x, y) for name in "fio")
        new = saturate(2 * i * gate("tanh", "c", x, y), np.int32) >> 31 - cell
        kept = saturate(saturate(round_half_away(kept * f, 2**15), np.int32) + new, np.int32)
        y = (o * _activated("tanh", kept, activation) >> 15) >> 15 - io
        ys.append(y)
        cells.append(kept)
    return np.array(ys).astype(np.int16), np.array(cells).astype(np.int32)


def _activated(name: str, x: np.ndarray, activation: str) -> np.ndarray:
    """Q6.25 to Q15."""
    if activation == "fixed":
        return getattr(activations, f"fixed_{name}")(x, FIXED, 15, np.int16)
    nearest = np.floor(activations.in_float64(name, x) * 2**15 + 0.5)
    return saturate(nearest, np.int16).astype(np.int64)
