"""NaN in data: it spreads without an error, so that data are searched for it first."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def first_nan(array: Any) -> tuple[int, ...] | None:
    """The index of the first NaN of an array, in row-major order; None without one.

    Args:
      array: of any shape and type; only floats and complex numbers have NaN.
    """
    array = np.asarray(array)
    # NumPy alone does not know bfloat16 and float8 as floats.
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return None
    found = np.isnan(array)
    if not found.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(found.argmax()), array.shape))
