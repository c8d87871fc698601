"""Index of the largest value along an axis (TOSA 1.0.1, "Tensor Operators")."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.recording import recorded
from tosajax.spec.enums import NanMode


@recorded
def argmax(input: jax.Array, *, axis: int, nan_mode: NanMode = NanMode.PROPAGATE) -> jax.Array:
    """The index of the first largest value along an axis (TOSA 1.0.1, "ARGMAX").

    Args:
      input: int8, int16 or a float type, any shape of rank 1 or more.
      axis: static, in [0, rank).
      nan_mode: whether NaN counts as larger than every number or as smaller.

    Returns:
      int32, the shape of `input` without `axis`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.argmax(jnp.int8([[1, 3, 3], [5, 2, 4]]), axis=1).tolist()
      [1, 0]
    """
    if not jnp.issubdtype(input.dtype, jnp.floating):
        return lax.argmax(input, axis, jnp.int32)
    return lax.argmax(_order_of(input, nan_mode), axis, jnp.int32)


def _order_of(value: jax.Array, nan_mode: NanMode) -> jax.Array:
    """Maps floats to int32 of the same order.

    XLA:GPU's argmax returns any of several NaN, but always the first of equal integers.
    """
    # float32 holds every narrower float exactly, subnormals included.
    wide = value.astype(jnp.float32)
    bits = lax.bitcast_convert_type(wide, jnp.int32)
    order = jnp.where(bits < 0, -(bits & np.int32(2**31 - 1)), bits)
    last = np.iinfo(np.int32).max if nan_mode == NanMode.PROPAGATE else np.iinfo(np.int32).min
    return jnp.where(jnp.isnan(wide), np.int32(last), order)
