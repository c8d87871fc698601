"""int8 dots on XLA:CPU, which has a fast kernel for them, unlike most dots of integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Dimensions = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def dot(a: jax.Array, b: jax.Array, *, b_axis: int) -> jax.Array:
    """Multiplies int8 [..., M, K] by [..., K, N], or [..., N, K] if b_axis is -1, in int32."""
    n_axis = -3 - b_axis
    m, n = a.shape[-2], b.shape[n_axis]
    # XLA's path for vectors is slow, for two rows fast.
    a = _pad_to_two(a, -2) if m == 1 else a
    b = _pad_to_two(b, n_axis) if n == 1 else b
    result = lax.dot_general(a, b, dimensions(a, b, b_axis), preferred_element_type=jnp.int32)
    return result[..., :m, :n] if 1 in (m, n) else result


def dimensions(a: jax.Array, b: jax.Array, b_axis: int) -> Dimensions:
    """Contracts the last axis of `a` with `b_axis` of `b`; the leading axes are batches."""
    batch = tuple(range(a.ndim - 2))
    return ((a.ndim - 1,), (b.ndim + b_axis,)), (batch, batch)


def _pad_to_two(x: jax.Array, axis: int) -> jax.Array:
    pads = [(0, 0, 0)] * x.ndim
    pads[axis] = (0, 1, 0)
    return lax.pad(x, np.int8(0), pads)
