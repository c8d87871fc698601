"""Rules of "Scatter/Gather Operators" (TOSA 1.0.1).

That indices lie in range, and occur once in SCATTER, depends on their values: no rule is static.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tosajax.checks._common import Shapes
from tosajax.checks._require import Flags, flags
from tosajax.checks.call import Call


def gather_shape(c: Call) -> Shapes:
    n, count = c.indices.shape
    return ((n, count, c.values.shape[-1]),)


def scatter_shape(c: Call) -> Shapes:
    return (c.values_in.shape,)


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
