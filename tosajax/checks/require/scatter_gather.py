"""Run-time rules of "Scatter/Gather Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tosajax.checks.require._common import Flags, flags


def gather_require(values: jax.Array, indices: jax.Array) -> Flags:
    """r1: indices are in [0, K)."""
    return flags(r1=_out_of_range(values, indices))


def scatter_require(values_in: jax.Array, indices: jax.Array, input: jax.Array) -> Flags:
    """r1: indices are in [0, K); r2: none occurs twice in a batch."""
    ordered = jnp.sort(indices, axis=1)
    repeated = ordered[:, 1:] == ordered[:, :-1]
    return flags(
        r1=_out_of_range(values_in, indices),
        r2=repeated & ~_out_of_range(values_in, ordered[:, 1:]),
    )


def _out_of_range(values: jax.Array, indices: jax.Array) -> jax.Array:
    return (indices < 0) | (indices >= values.shape[1])
