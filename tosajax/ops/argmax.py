"""Index of the largest value along an axis (TOSA 1.0.1, "Tensor Operators")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.spec.enums import NanMode


def argmax(input: jax.Array, *, axis: int, nan_mode: NanMode = NanMode.PROPAGATE) -> jax.Array:
    """The index of the first largest value along an axis (TOSA 1.0.1, "ARGMAX").

    Args:
      input: int8, int16 or a float type, any shape of rank 1 or more.
      axis: static, in [0, rank).
      nan_mode: whether NaN counts as larger than every number or as smaller.

    Returns:
      int32, the shape of `input` without `axis`.
    """
    if not jnp.issubdtype(input.dtype, jnp.floating):
        return lax.argmax(input, axis, jnp.int32)
    # float32 holds every narrower float exactly, subnormals included.
    value = input.astype(jnp.float32)
    if nan_mode == NanMode.IGNORE:
        numbers = jnp.where(jnp.isnan(value), -jnp.inf, value)
        # NaN equals nothing, so that a true -infinity is found behind it.
        value = (value == jnp.max(numbers, axis, keepdims=True)).astype(jnp.int8)
    return lax.argmax(value, axis, jnp.int32)
