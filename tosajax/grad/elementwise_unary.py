"""Gradients of elementwise operators of one tensor; floats, except in ABS, have JAX's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tosajax import ops
from tosajax.grad._exact import exact, without_gradient
from tosajax.grad._range import range_of
from tosajax.grad.estimators import Estimator, zero
from tosajax.grad.qtensor import QTensor, Value, follow, payload, shadow, tie, tie_scalar

cos, exp, log, reciprocal, rsqrt, sin = (
    ops.cos,
    ops.exp,
    ops.log,
    ops.reciprocal,
    ops.rsqrt,
    ops.sin,
)
logical_not = ops.logical_not


def abs(input1: Value) -> Any:
    """The sign of x, 0 at 0."""
    x = payload(input1)
    result = ops.abs(x)
    sign = jnp.sign(x).astype(shadow(input1).dtype)
    source = sign * tie(input1)
    if isinstance(input1, QTensor):
        return QTensor(result, source)
    return follow(result, source)


def ceil(input1: jax.Array, *, estimate: Estimator = zero) -> jax.Array:
    """0; with an estimator of its own, the estimate for rounding x + 1/2."""
    return follow(ops.ceil(input1), estimate(input1 + 0.5, -jnp.inf, jnp.inf))


def floor(input1: jax.Array, *, estimate: Estimator = zero) -> jax.Array:
    """0; with an estimator of its own, the estimate for rounding x - 1/2."""
    return follow(ops.floor(input1), estimate(input1 - 0.5, -jnp.inf, jnp.inf))


@exact(ops.negate, estimates=True)
def negate(input1: QTensor, input1_zp: QTensor, output_zp: QTensor, *, estimate: Estimator):
    """-1, and the estimator of saturation."""
    value = tie_scalar(output_zp) - (tie(input1) - tie_scalar(input1_zp))
    return estimate(value, *range_of(input1.dtype))


bitwise_not = without_gradient(ops.bitwise_not)
clz = without_gradient(ops.clz)
