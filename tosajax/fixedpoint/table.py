"""Table lookup with interpolation ("General Unary Functions", TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def apply_lookup(table: jax.Array, value: jax.Array) -> jax.Array:
    """Looks up int16 values, read as 9.7 fixed point, and interpolates between entries.

    Args:
      table: int16, (513,); neighbours less than 2**15 apart, else the result is unpredictable.
      value: int16, any shape.

    Returns:
      int32, the shape of `value`; 16.7 fixed point.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import fixedpoint
      >>> table = jnp.arange(-256, 257, dtype=jnp.int16)  # the identity
      >>> fixedpoint.apply_lookup(table, jnp.int16([-128, 64])).tolist()
      [-128, 64]
    """
    position = value.astype(jnp.int32) + 32768
    index, fraction = position >> 7, position & 0x7F
    # The index is in [0, 511] by construction. XLA gathers 16-bit entries faster than 32-bit ones.
    base, following = (
        table.at[at].get(mode="promise_in_bounds").astype(jnp.int32) for at in (index, index + 1)
    )
    return (base << 7) + (following - base) * fraction
