"""Reductions in Python numbers, and the accuracy that sums must have.

Sources: "Reduction Operators" and "Dot product accuracy requirements" (TOSA 1.0.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from oracle.float_bounds import fraction_bits, normal_max, normal_min, widen


def over(function: Callable[..., int], values: np.ndarray, axis: int) -> np.ndarray:
    """Applies a function of Python integers along an axis, which keeps size 1."""
    reduced = np.apply_along_axis(lambda v: function(*(int(n) for n in v)), axis, values)
    return np.expand_dims(reduced, axis).astype(values.dtype)


def extremum(values: np.ndarray, axis: int, largest: bool, ignore_nan: bool) -> np.ndarray:
    def one(row: np.ndarray) -> float:
        numbers = [v for v in row if not math.isnan(v)]
        if not numbers or (len(numbers) < len(row) and not ignore_nan):
            return math.nan
        return max(numbers) if largest else min(numbers)

    return np.apply_along_axis(one, axis, widen(values))[:, None]


def assert_sum(result: np.ndarray, values: np.ndarray, acc: np.dtype) -> None:
    """Asserts the accuracy of a dot product with ones, along the last axis."""
    dtype = values.dtype
    wide = widen(values)
    reference = wide.sum(axis=-1, keepdims=True)
    magnitude = np.maximum(np.abs(wide), normal_min(dtype)).sum(axis=-1, keepdims=True)
    length = values.shape[-1]
    blocks = math.ceil(length / 2 ** ((fraction_bits(acc) - fraction_bits(dtype)) / 2))
    error = (widen(result) - reference) / np.maximum(
        magnitude * 2.0 ** (-1 - fraction_bits(dtype)), normal_min(dtype)
    )
    assert magnitude.max() < normal_max(dtype)
    assert np.abs(error).max() <= 2 * blocks
    assert np.square(error).sum() <= 4 * 0.4 * blocks * error.size
