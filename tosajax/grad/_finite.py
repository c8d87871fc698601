"""Derivatives that are finite everywhere."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import follow


def finite(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Makes the derivatives of an elementwise float kernel 0 where one of them is not finite.

    Args:
      kernel: takes operands of one rank; its derivatives at operands of 1 are finite.
    """

    def call(*operands: jax.Array) -> jax.Array:
        # Some versions of jax return a list, others a tuple.
        whole = tuple(jnp.broadcast_arrays(*operands))
        fixed, ones = lax.stop_gradient(whole), tuple(jnp.ones_like(x) for x in whole)
        _, slopes = jax.jvp(kernel, fixed, ones)
        # The operands are replaced, not the derivatives: 0 times infinity is NaN.
        regular = [jnp.where(jnp.isfinite(slopes), x, 1) for x in whole]
        return follow(kernel(*whole), kernel(*regular))

    return call
