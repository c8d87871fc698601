"""Run-time rules of "Reduction Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.checks.require._common import Flags, flags, sum_overflows


def reduce_sum_require(input: jax.Array, *, axis: int) -> Flags:
    """r1, for int32: the sum fits."""
    length = input.shape[axis]
    if input.dtype != np.int32 or length == 1:
        return {}

    def add_up(values: jax.Array) -> jax.Array:
        return jnp.sum(values, axis, dtype=jnp.int32)

    return flags(r1=sum_overflows(add_up, input, gain=length, width=32))
