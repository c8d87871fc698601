"""NumPy arrays as JAX arrays."""

from __future__ import annotations

import jax
import numpy as np

from tosajax.fixedpoint import _x64


def to_device(x: np.ndarray) -> jax.Array:
    """As `jnp.asarray`, but compiles no program for each shape; int64 stays int64."""
    return _x64.from_numpy(x) if x.dtype == np.int64 else jax.device_put(x)


def on_cpu(x: np.ndarray) -> jax.Array:
    """On a CPU, which every machine has."""
    return jax.device_put(x, jax.devices("cpu")[0])
