"""How far the outputs of a quantized network are from those in floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# dB. Beyond this, float32 itself is the noise: 24 bits are 144 dB, less what sums lose.
MOST = 120.0


def sqnr(expected: np.ndarray, actual: np.ndarray) -> float:
    """Signal to quantization noise in dB over all examples of an output, within -MOST and MOST.

    Raises:
      ValueError: the arrays hold different numbers of values.
    """
    expected, actual = (np.asarray(x, np.float64).ravel() for x in (expected, actual))
    if expected.size != actual.size:
        raise ValueError(f"{actual.size} values, expected {expected.size}")
    signal, noise = np.square(expected).sum(), np.square(actual - expected).sum()
    if noise == 0:
        return MOST
    if signal == 0 or not np.isfinite(noise):
        return -MOST
    return float(np.clip(10 * np.log10(signal / noise), -MOST, MOST))


def sqnrs(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> list[float]:
    """The SQNR of each output."""
    return [sqnr(a, b) for a, b in zip(expected, actual, strict=True)]


def agreement(expected: np.ndarray, actual: np.ndarray) -> float:
    """The share of rows, on the last axis, whose argmax is the same."""
    return float((expected.argmax(-1) == actual.argmax(-1)).mean())
