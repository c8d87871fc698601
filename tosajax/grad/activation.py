"""Gradients of activation functions; those of floats are natural but at CLAMP's bounds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tosajax import ops
from tosajax.grad.qtensor import QTensor, follow, payload, shadow

erf, sigmoid, tanh = ops.erf, ops.sigmoid, ops.tanh


def clamp(input: Any, *, min_val: Any, max_val: Any, **attributes: Any) -> Any:
    """1 for min_val <= x <= max_val, else 0; x is the shadow of integers."""
    result = ops.clamp(payload(input), min_val=min_val, max_val=max_val, **attributes)
    x = shadow(input)
    low, high = (jnp.asarray(bound).astype(x.dtype) for bound in (min_val, max_val))
    source = jnp.where((x >= low) & (x <= high), x, lax.stop_gradient(x))
    if not isinstance(input, QTensor):
        return follow(result, source)
    return QTensor(result, follow(jnp.clip(lax.stop_gradient(x), low, high), source))
