"""Elementwise comparisons (TOSA 1.0.1, "Comparison Operators").

A comparison with NaN is false; the sign of zero does not count.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tosajax.ops.recording import recorded


@recorded
def equal(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Input1 == input2 (TOSA 1.0.1, "EQUAL").

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.equal(jnp.int32([1, 2, 3]), jnp.int32([2])).tolist()
      [False, True, False]
    """
    return jnp.equal(input1, input2)


@recorded
def greater(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Input1 > input2 (TOSA 1.0.1, "GREATER").

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.greater(jnp.int32([1, 2, 3]), jnp.int32([2])).tolist()
      [False, False, True]
    """
    return jnp.greater(input1, input2)


@recorded
def greater_equal(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Input1 >= input2 (TOSA 1.0.1, "GREATER_EQUAL").

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.greater_equal(jnp.int32([1, 2, 3]), jnp.int32([2])).tolist()
      [False, True, True]
    """
    return jnp.greater_equal(input1, input2)
