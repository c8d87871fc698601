"""How outputs are compared with a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    """How far outputs may be from a reference.

    Args:
      units: of integers.
      terms: how many products the sums of floats have: the epsilon grows with them.
    """

    units: int = 0
    terms: int = 1


EXACT = Tolerance()


def compare(found: Sequence[np.ndarray], wanted: Sequence[Any], tolerance: Tolerance) -> str | None:
    """What to say about outputs that are not as wanted, or None.

    Args:
      found: the output of each frame.
      wanted: integers or floats of the same shapes, in the range of the output.
      tolerance: of floats, (terms + 8) * 2**-23 of the largest number of a frame.
    """
    off = [_off(x, y, tolerance) for x, y in zip(found, wanted, strict=True)]
    count = sum(int(np.count_nonzero(x)) for x in off)
    if count == 0:
        return None
    total = sum(x.size for x in found)
    frame = next(i for i, x in enumerate(off) if x.any())
    at = int(np.argmax(off[frame]))
    first, instead = (np.asarray(x).reshape(-1)[at] for x in (found[frame], wanted[frame]))
    where = f"the first in frame {frame} at {at}: {first} where the reference has {instead}"
    return f"{count} of {total} outputs differ, {where}"


def _off(found: np.ndarray, wanted: Any, tolerance: Tolerance) -> np.ndarray:
    """Which elements differ too much."""
    if found.dtype != np.float32:
        a, b = found.astype(np.int64), np.asarray(wanted).astype(np.int64)
        # The difference of two int64 need not be one; there are no units of those.
        return a != b if tolerance.units == 0 else abs(a - b) > tolerance.units
    with np.errstate(over="ignore"):
        # What is beyond float32 is infinite.
        a, b = (np.asarray(x).astype(np.float32).astype(np.float64) for x in (found, wanted))
    finite = np.isfinite(b)
    largest = np.abs(b[finite]).max(initial=2.0**-126)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= (tolerance.terms + 8) * 2.0**-23 * largest
    return ~np.where(finite, near, (a == b) | (np.isnan(a) & np.isnan(b)))
