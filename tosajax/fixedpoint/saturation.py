"""Clipping to the range of an integer type."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def saturate(value: jax.Array, dtype: np.dtype | type, *, unsigned: bool = False) -> jax.Array:
    """Clips to the range of an integer type, then converts to that type.

    Args:
      value: int32, any shape.
      dtype: int8, int16 or int32.
      unsigned: clips to the range of the unsigned type and returns its bit pattern.

    Returns:
      `dtype`, the shape of `value`.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import fixedpoint
      >>> fixedpoint.saturate(jnp.int32([-300, 5, 300]), jnp.int8).tolist()
      [-128, 5, 127]
    """
    info = np.iinfo(dtype)
    low, high = (0, info.max - info.min) if unsigned else (info.min, info.max)
    if np.iinfo(value.dtype).max > high or np.iinfo(value.dtype).min < low:
        value = jnp.clip(value, value.dtype.type(low), value.dtype.type(high))
    return value.astype(dtype)
