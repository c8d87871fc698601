"""Products of Q15 fractions, as in the library's 16-bit multiplications."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_MAXIMUM = 2**15 - 1


def multiply_floor(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes a * b / 2**15, rounded down and saturated: -2**15 times -2**15 is 0x7FFF.

    Args:
      a: int16 or int32 in the range of int16, any shape.
      b: int16 or int32 in the range of int16, the shape of `a`.

    Returns:
      int32 in the range of int16, the shape of `a`.
    """
    product = a.astype(jnp.int32) * b.astype(jnp.int32)
    return jnp.minimum(product >> jnp.int32(15), jnp.int32(_MAXIMUM))
