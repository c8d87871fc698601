"""Run-time rules of "Activation Functions" (TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from tosajax.checks.require._common import Flags, flags
from tosajax.spec import NanMode


def clamp_require(
    input: jax.Array,
    *,
    min_val: ArrayLike,
    max_val: ArrayLike,
    nan_mode: NanMode = NanMode.PROPAGATE,
) -> Flags:
    """r1: `min_val` is not above `max_val`; r2, for floats: neither is NaN.

    In a graph the bounds are attributes, and the same violations are errors.
    """
    low, high = (jnp.asarray(bound, input.dtype) for bound in (min_val, max_val))
    broken = {"r1": ~(low <= high)}
    if jnp.issubdtype(input.dtype, jnp.floating):
        broken["r2"] = jnp.isnan(low) | jnp.isnan(high)
    return flags(**broken)
