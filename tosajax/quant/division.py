"""Quotients with the same bits in every program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.grad.qtensor import follow


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b, correctly rounded, in every program.

    XLA divides by a constant, or an array by a scalar, in two roundings: it multiplies by the
    reciprocal. It does not where each element chooses its divisor. The gradient is that of a / b
    and leaves the choice out.
    """
    chosen = jnp.where(jnp.isnan(a), lax.stop_gradient(a), lax.stop_gradient(b))
    return a / follow(chosen, jnp.broadcast_to(b, chosen.shape))


def reciprocal(scale: jax.Array) -> jax.Array:
    """1 / scale, correctly rounded.

    Without the barrier XLA joins a scale that is a quotient or a constant to this quotient, or to
    a product.
    """
    scale = lax.optimization_barrier(scale)
    return divide(jnp.ones_like(scale), scale)
