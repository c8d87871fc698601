"""NumPy arrays as JAX arrays."""

from __future__ import annotations

import jax
import numpy as np

from tosajax.fixedpoint import _x64


def to_device(x: np.ndarray) -> jax.Array:
    """Without the program that `jnp.asarray` compiles for each shape; int64 stays int64."""
    return _x64.from_numpy(x) if x.dtype == np.int64 else jax.device_put(x)


def on_cpu(x: np.ndarray) -> jax.Array:
    """On a CPU, which is there beside any other device."""
    return jax.device_put(x, jax.devices("cpu")[0])
