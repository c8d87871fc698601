"""Gradients of activation functions; except for CLAMP, floats have JAX's own gradients."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from tosajax import ops
from tosajax.grad.once import once
from tosajax.grad.qtensor import QTensor, Value, follow, payload, shadow, tie
from tosajax.spec.enums import NanMode

erf, sigmoid, tanh = ops.erf, ops.sigmoid, ops.tanh


# Bounds may be traced, or QTensors, so they can be learned (PACT: Choi et al., 2018).
Bound = ArrayLike | QTensor


def clamp(
    input: Value, *, min_val: Bound, max_val: Bound, nan_mode: NanMode = NanMode.PROPAGATE
) -> Any:
    """To x for min_val <= x <= max_val, else to the bound; x is the shadow of integers."""
    low, high = (payload(bound) for bound in (min_val, max_val))
    result = ops.clamp(payload(input), min_val=low, max_val=high, nan_mode=nan_mode)
    x = shadow(input)
    low, high = (
        jnp.asarray(tie(bound)).astype(x.dtype).reshape(()) for bound in (min_val, max_val)
    )
    # NaN fails every comparison and becomes min_val, as IGNORE requires.
    side = once((x > high).astype(jnp.int8) - (~(x >= low)).astype(jnp.int8))
    source = jnp.where(side > 0, high, jnp.where(side < 0, low, x))
    if isinstance(input, QTensor):
        return QTensor(result, source)
    if nan_mode is NanMode.PROPAGATE:
        source = jnp.where(jnp.isnan(x), lax.stop_gradient(x), source)
    return follow(result, source)
