"""Gradients of reductions; floats have JAX's own gradients."""

from __future__ import annotations

from typing import Any

import jax

from tosajax import ops
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, shadow, tie

reduce_all, reduce_any, reduce_product = ops.reduce_all, ops.reduce_any, ops.reduce_product


@exact(ops.reduce_sum)
def reduce_sum(input: QTensor, **attributes: Any) -> jax.Array:
    """Linear."""
    return ops.reduce_sum(tie(input), **attributes)


@exact(ops.reduce_max)
def reduce_max(input: QTensor, **attributes: Any) -> jax.Array:
    """To the largest shadow; equal ones share, NaN has none."""
    return ops.reduce_max(shadow(input), **attributes)


@exact(ops.reduce_min)
def reduce_min(input: QTensor, **attributes: Any) -> jax.Array:
    """To the smallest shadow; equal ones share, NaN has none."""
    return ops.reduce_min(shadow(input), **attributes)
