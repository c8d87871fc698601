"""GRU and LSTM as their equations read.

Weights are by the library's names. Matrices are Q(coeff), biases Q15, inputs and outputs Q(io).
`activation` is "fixed", by the coefficients of the kernels, or "ideal", correctly rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tosajax.hifi.bench.definitions import activations
from tosajax.hifi.bench.definitions.arithmetic import (
    dot,
    fixed,
    round_half_away,
    saturate,
    wide,
)
from tosajax.hifi.kernels._precision import Array
from tosajax.hifi.kernels.activations import FIXED

_ONE = 2**15 - 1
Weights = Mapping[str, np.ndarray]


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
