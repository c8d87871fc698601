"""Values as they are (TOSA 1.0.1, "Data Nodes")."""

from __future__ import annotations

import jax


def identity(input1: jax.Array) -> jax.Array:
    """IDENTITY: the input.

    Args:
      input1: any type, any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "IDENTITY").
    """
    return input1
