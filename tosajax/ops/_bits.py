"""Copies of narrow floats that keep every bit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax


def copy(to: Callable[..., jax.Array], *tensors: jax.Array) -> jax.Array:
    """`to(*tensors)`, which copies elements, some of them several times.

    An element that XLA:CPU reads once and writes more than once stays in a register meanwhile,
    and x86 instructions for bfloat16 make zero of a subnormal there. So its bits are copied.

    Args:
      to: linear, for any element type.
      tensors: of one element type.
    """
    dtype = tensors[0].dtype
    if dtype != jnp.bfloat16:
        return to(*tensors)

    @jax.custom_jvp
    def by_bits(*tensors: jax.Array) -> jax.Array:
        bits = to(*(lax.bitcast_convert_type(x, jnp.uint16) for x in tensors))
        # Without the barrier XLA would write bfloat16 in the loop that copies.
        return lax.bitcast_convert_type(lax.optimization_barrier(bits), dtype)

    by_bits.defjvp(lambda primals, tangents: (by_bits(*primals), to(*tangents)))
    return by_bits(*tensors)
