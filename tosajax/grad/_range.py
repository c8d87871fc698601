"""The range of an integer type, and powers of two."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType


def range_of(dtype: np.dtype, *, unsigned: bool = False) -> tuple[float, float]:
    """The smallest and the largest value of an integer type, as floats; int48 is held in int64."""
    if dtype == DType.INT48.storage:
        return float(DType.INT48.minimum), float(DType.INT48.maximum)
    info = np.iinfo(f"u{dtype}" if unsigned else dtype)
    return float(info.min), float(info.max)


def power_of_two(exponent: jax.Array) -> jax.Array:
    """2**exponent as float32, from its bits; exponent: int32, in [-126, 127].

    A product with it has the right derivative everywhere; `jnp.ldexp` has derivative 1 at 0.
    """
    return lax.bitcast_convert_type((exponent + 127) << 23, jnp.float32)
