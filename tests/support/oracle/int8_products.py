"""Products of int8 in NumPy, and the operands with the largest sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosajax.ops._window import Window


def wide(x) -> np.ndarray:
    return np.asarray(x).astype(np.int64)


def extreme(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Values near one end of int8, whose sums have many bits."""
    low = rng.choice([-128, 120])
    return rng.integers(low, low + 8, shape).astype(np.int8)


def raised_sums(x: np.ndarray, weight: np.ndarray, window: Window) -> np.ndarray:
    """Sums of (x + 128) * weight, [N, H, W, IC] by [KH, KW, IC, OC], padding adding nothing."""
    padded = np.pad(wide(x) + 128, [(0, 0), *window.pad, (0, 0)])
    out = window.out(x.shape)
    total = np.zeros((x.shape[0], *out, weight.shape[-1]), np.int64)
    for tap in np.ndindex(*window.size):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, window.dilation, out, window.stride, strict=True)
        )
        total += padded[(slice(None), *at)] @ wide(weight[tap])
    return total
