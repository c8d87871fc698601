"""Derivatives that are finite everywhere."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import follow


def finite(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """An elementwise kernel of floats; where a derivative is infinite or NaN, all of them are 0.

    Args:
      kernel: of operands of one rank; has finite derivatives where all operands are 1.
    """

    def call(*operands: jax.Array) -> jax.Array:
        # Some versions of jax return a list, others a tuple.
        whole = tuple(jnp.broadcast_arrays(*operands))
        fixed, ones = lax.stop_gradient(whole), tuple(jnp.ones_like(x) for x in whole)
        _, slopes = jax.jvp(kernel, fixed, ones)
        # The operands are replaced, not the derivatives: 0 times infinity would be NaN.
        regular = [jnp.where(jnp.isfinite(slopes), x, 1) for x in whole]
        return follow(kernel(*whole), kernel(*regular))

    return call
