"""ADD and SUB of rescaled int8 by definition, and scales to try."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.native import call

# Multipliers and shifts: factors above and below 1, exact halves, the bounds of the specification.
SCALES = [(2**30, 30), (2**30 + 1, 29), (2**31 - 1, 33), (2**30, 32), (1, 2), (3, 62), (0, 31)]


def scaled(value: Any, multiplier: Any, shift: Any, *, double: bool) -> np.ndarray:
    """RESCALE by definition, in int64, which holds all its sums; beyond 32 bits results wrap."""
    value, m, s = np.asarray(value).astype(np.int64), int(multiplier[0]), int(shift[0])
    assert np.abs(value).max() <= 2**31
    assert 0 <= m < 2**31
    assert 2 <= s <= 62
    half = (1 << (s - 1)) + (np.where(value >= 0, 1, -1) * (1 << 30) if double and s > 31 else 0)
    total = (value * m + half) >> s
    return (total + 2**31) % 2**32 - 2**31


def added(
    op: str, inputs: tuple[Any, Any], scales: tuple[call.Scaling, ...], e: call.Epilogue
) -> np.ndarray:
    def term(x: Any, s: call.Scaling) -> np.ndarray:
        values = x.astype(np.int64) - int(s.zero_point[0])
        values = scaled(values, s.multiplier, s.shift, double=s.double)
        return values if s.then is None else scaled(values, *s.then[:2], double=s.then.double)

    left, right = (term(x, s) for x, s in zip(inputs, scales, strict=True))
    total = left - right if op == "SUB" else left + right
    total = (total + 2**31) % 2**32 - 2**31
    result = scaled(total, e.multiplier, e.shift, double=e.double) + int(e.zero_point)
    return np.clip(result, int(e.least), int(e.largest)).astype(np.int8)


def drawn(
    seed: int, rounds: tuple[bool, ...] = (False, True, False)
) -> tuple[tuple[call.Scaling, call.Scaling], call.Epilogue]:
    rng = np.random.default_rng(seed)

    def scale() -> tuple[np.ndarray, np.ndarray]:
        m, s = SCALES[rng.integers(len(SCALES))] if seed % 2 else (rng.integers(2**30, 2**31), 31)
        return np.array([m], np.int32), np.array([s + rng.integers(2) * (s < 62)], np.int8)

    one, other = (
        call.Scaling(rng.integers(-128, 128, 1).astype(np.int8), *scale(), double)
        for double in rounds[:2]
    )
    low, high = sorted(rng.integers(-128, 128, 2).tolist())
    zero_point = np.int8(rng.integers(-128, 128))
    return (one, other), call.Epilogue(*scale(), zero_point, low, high, rounds[2])


def images(seed: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.random.default_rng(seed).integers(-128, 128, (2, *shape)).astype(np.int8)
    return one, other
