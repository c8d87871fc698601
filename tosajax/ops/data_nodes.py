"""IDENTITY (TOSA 1.0.1, "Data Nodes")."""

from __future__ import annotations

import jax

from tosajax.ops.recording import recorded


@recorded
def identity(input1: jax.Array) -> jax.Array:
    """The input (TOSA 1.0.1, "IDENTITY").

    Args:
      input1: any type, any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.identity(jnp.int8([1, 2])).tolist()
      [1, 2]
    """
    return input1
