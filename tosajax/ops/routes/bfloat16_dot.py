"""int8 dots for GPUs, by products of bfloat16, which holds every int8, with exact float32 sums.

XLA:GPU returns twice the sum of int8 products where it compiles them with Triton (seen with
jaxlib 0.11.2 on an H100).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.ops.routes.int8_dot import dimensions

# Products of int8 are at most 2**14, and float32 holds every integer up to 2**24.
_CHUNK = 2**24 // 2**14


def dot(a: jax.Array, b: jax.Array, *, b_axis: int) -> jax.Array:
    """int8 [..., M, K] times int8 [..., K, N], or [..., N, K] with b_axis=-1, in int32."""

    def part(start: int) -> jax.Array:
        end = min(length, start + _CHUNK)
        sums = lax.dot_general(
            lax.slice_in_dim(a, start, end, axis=a.ndim - 1).astype(jnp.bfloat16),
            lax.slice_in_dim(b, start, end, axis=b.ndim + b_axis).astype(jnp.bfloat16),
            dimensions(a, b, b_axis),
            preferred_element_type=jnp.float32,
        )
        return sums.astype(jnp.int32)

    length = a.shape[-1]
    total = part(0)
    for start in range(_CHUNK, length, _CHUNK):
        total = total + part(start)
    return total
