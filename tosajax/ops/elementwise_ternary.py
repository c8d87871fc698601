"""Elementwise choice between two tensors (TOSA 1.0.1, "Elementwise Ternary Operators")."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tosajax.ops.recording import recorded


@recorded
def select(input1: jax.Array, input2: jax.Array, input3: jax.Array) -> jax.Array:
    """Input2 where input1 is true, else input3 (TOSA 1.0.1, "SELECT").

    Args:
      input1: bool.
      input2: bool, int8, int16, int32, float32, float16 or bfloat16.
      input3: the type of `input2`; the three shapes have one rank and broadcast.

    Returns:
      The type of `input2`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.select(jnp.bool_([True, False]), jnp.int8([1, 2]), jnp.int8([0])).tolist()
      [1, 0]
    """
    return jnp.where(input1, input2, input3)
