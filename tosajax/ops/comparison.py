"""Elementwise comparisons (TOSA 1.0.1, "Comparison Operators").

A comparison with NaN is false; the sign of zero does not count.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def equal(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """EQUAL: input1 == input2.

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.
    Source: (TOSA 1.0.1, "EQUAL").
    """
    return jnp.equal(input1, input2)


def greater(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """GREATER: input1 > input2.

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.
    Source: (TOSA 1.0.1, "GREATER").
    """
    return jnp.greater(input1, input2)


def greater_equal(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """GREATER_EQUAL: input1 >= input2.

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.
    Source: (TOSA 1.0.1, "GREATER_EQUAL").
    """
    return jnp.greater_equal(input1, input2)
