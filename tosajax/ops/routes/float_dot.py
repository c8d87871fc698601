"""Float dots whose rows have the same bits for any number of rows.

XLA:CPU sums the products of a row in a fixed order if the second operand is [N, K] and the first is
neither a vector nor tiny: an example then has the same bits alone and in a batch. With [K, N], the
layout that XLA would choose in a batch, the order depends on the number of rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_SMALLEST = 8  # if all dimensions are smaller, XLA sums in another order


def dot_rows(a: jax.Array, b: jax.Array | np.ndarray) -> jax.Array:
    """Multiplies float32 [M, K] by [N, K] to [M, N]."""
    m, n = a.shape[0], b.shape[0]
    product = lax.dot_general(
        _at_least(a, 2 if max(b.shape) >= _SMALLEST else _SMALLEST),
        lax.optimization_barrier(_at_least(b, 2)),
        (((1,), (1,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return product[:m, :n]


def _at_least(x: jax.Array | np.ndarray, rows: int) -> jax.Array | np.ndarray:
    missing = rows - x.shape[0]
    return lax.pad(x, np.float32(0), [(0, missing, 0), (0, 0, 0)]) if missing > 0 else x


def sum_last(x: jax.Array) -> jax.Array:
    """Sums float32 over the last axis, whose size becomes 1."""
    rows = x.reshape(-1, x.shape[-1])
    sums = dot_rows(rows, jnp.ones((2, x.shape[-1]), jnp.float32))[:, :1]
    return sums.reshape(*x.shape[:-1], 1)


def product(
    a: jax.Array,
    b: jax.Array | np.ndarray,
    a_zp: jax.Array | np.ndarray,
    b_zp: jax.Array | np.ndarray,
) -> jax.Array:
    """Multiplies floats [N, H, C] by [N, C, W] in float32; their zero points are 0."""
    del a_zp, b_zp
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    if isinstance(b, np.ndarray) and len(b) == 1:
        # One matrix for the whole batch: all rows are multiplied at once.
        return dot_rows(a[0], jnp.asarray(b[0].T))[None]
    return lax.dot_general(
        a,
        b,
        (((2,), (1,)), ((0,), (0,))),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
