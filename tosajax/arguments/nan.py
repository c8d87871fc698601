"""The first NaN of an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_BLOCK = 2**20  # elements that are read at a time: a mapped file is never copied as a whole


def first_nan(array: ArrayLike) -> tuple[int, ...] | None:
    """The index of the first NaN in row-major order; None if there is no NaN.

    Args:
      array: an array of any type and shape. Infinities are not NaN.
    """
    array = np.asarray(array)
    if array.dtype.kind in "biu" or not array.size:
        return None
    if array.ndim == 0:
        return () if array != array else None
    rows = max(1, _BLOCK * len(array) // array.size)
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        is_nan = part != part
        if is_nan.any():
            row, *rest = np.unravel_index(int(is_nan.argmax()), is_nan.shape)
            return (start + int(row), *map(int, rest))
    return None
