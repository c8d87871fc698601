"""Gradient of IDENTITY."""

from __future__ import annotations

import jax

from tosajax import ops
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, shadow


@exact(ops.identity)
def identity(input1: QTensor) -> jax.Array:
    """1."""
    return shadow(input1)
