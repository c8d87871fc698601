"""The numbers that an integer type holds."""

from __future__ import annotations

import numpy as np


def range_of(dtype: np.dtype, *, unsigned: bool = False) -> tuple[float, float]:
    """The least and the largest, as floats; int48 is held in int64."""
    if dtype == np.int64:
        return -(2.0**47), 2.0**47 - 1
    info = np.iinfo(f"u{dtype}" if unsigned else dtype)
    return float(info.min), float(info.max)
