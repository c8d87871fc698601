"""Elements for tensors: boundaries in each, and random ones."""

from __future__ import annotations

import numpy as np
from oracle import float_bounds

from tosajax import DType

LARGEST = 300  # elements of a tensor
Limit = np.ndarray | float | int | None


def draw(
    rng: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    low: Limit = None,
    high: Limit = None,
) -> np.ndarray:
    """Elements within [low, high], scalars or arrays; NaN only without bounds."""
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype is DType.SHAPE:
        return rng.integers(1, 4, shape)
    if dtype.is_integer:
        least = dtype.minimum if low is None else low
        most = dtype.maximum if high is None else high
        return _integers(rng, shape, np.asarray(least), np.asarray(most)).astype(dtype.storage)
    values = _floats(rng, dtype.storage, shape)
    if low is None or high is None:
        return values
    wide = float_bounds.widen(values)
    wide = np.where(np.isnan(wide), low, np.clip(wide, low, high))
    return wide.astype(dtype.storage)


def _integers(
    rng: np.random.Generator, shape: tuple[int, ...], low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    low, high = (np.broadcast_to(x.astype(np.int64), shape) for x in (low, high))
    near = (1 << rng.integers(0, 47, shape)) * rng.choice([-1, 1], shape)
    kinds = [
        low,
        low + 1,
        high,
        high - 1,
        rng.integers(-2, 3, shape),
        near + rng.integers(-1, 2, shape),
        rng.integers(-200, 200, shape),
        rng.integers(low, high, shape, endpoint=True),
        rng.integers(low, high, shape, endpoint=True),
    ]
    return np.clip(np.choose(rng.integers(0, len(kinds), shape), kinds), low, high)


def _floats(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Half the tensors hold any float; the other half no float that would swamp a sum."""
    edges = float_bounds.boundaries(dtype)
    if rng.random() < 0.5:
        edges = edges[np.abs(float_bounds.widen(edges)) <= 2.5]
    values = (rng.normal(size=shape) * 2.0 ** rng.integers(-4, 5, shape)).astype(dtype)
    share = rng.choice([0.1, 0.3, 1.0], p=[0.5, 0.4, 0.1])
    return np.where(rng.random(shape) < share, rng.choice(edges, shape), values)
