"""Run-time rules of "Scatter/Gather Operators" (TOSA 1.0.1)."""

from __future__ import annotations

import jax

from tosajax.checks.require._common import Flags, broken_by, flags
from tosajax.checks.scatter_gather import gather_values, scatter_values


def gather_require(values: jax.Array, indices: jax.Array) -> Flags:
    """r1: indices are in [0, K)."""
    return flags(**broken_by(gather_values(values.shape[1]), indices=indices))


def scatter_require(values_in: jax.Array, indices: jax.Array, input: jax.Array) -> Flags:
    """r1: indices are in [0, K); r2: no index occurs twice in a batch."""
    return flags(**broken_by(scatter_values(values_in.shape[1]), indices=indices))
