"""Gradients of pooling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad._range import range_of
from tosajax.grad.estimators import Estimator
from tosajax.grad.qtensor import QTensor, shadow, tie, tie_scalar


@exact(ops.avg_pool2d, estimates=True)
def avg_pool2d(
    input: QTensor, input_zp: QTensor, output_zp: QTensor, *, estimate: Estimator, **attributes: Any
) -> jax.Array:
    """The mean of the window inside the input, and the estimator."""
    zero = jnp.zeros(1, jnp.float32)
    attributes |= {"acc_type": DType.FP32}
    mean = ops.avg_pool2d(tie(input) - tie_scalar(input_zp), zero, zero, **attributes)
    return estimate(mean + tie_scalar(output_zp), *range_of(input.dtype))


@exact(ops.max_pool2d)
def max_pool2d(input: QTensor, **attributes: Any) -> jax.Array:
    """To the largest shadow of the window; equal ones share two by two, NaN has none."""
    return ops.max_pool2d(shadow(input), **attributes)
