"""Gradients of convolutions: those of the convolution of real numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, tie, tie_scalar


def _of_floats(kernel: Any, operands: tuple[QTensor, ...], attributes: dict[str, Any]) -> jax.Array:
    x, weight, bias = map(tie, operands[:3])
    x_zp, weight_zp = map(tie_scalar, operands[3:])
    zero = jnp.zeros(1, jnp.float32)
    attributes = attributes | {"acc_type": DType.FP32}
    return kernel(x - x_zp, weight - weight_zp, bias, zero, zero, **attributes)


@exact(ops.conv2d)
def conv2d(*operands: QTensor, **attributes: Any) -> jax.Array:
    """Linear in input, weight and bias less their zero points."""
    return _of_floats(ops.conv2d, operands, attributes)


@exact(ops.conv3d)
def conv3d(*operands: QTensor, **attributes: Any) -> jax.Array:
    """Linear in input, weight and bias less their zero points."""
    return _of_floats(ops.conv3d, operands, attributes)


@exact(ops.depthwise_conv2d)
def depthwise_conv2d(*operands: QTensor, **attributes: Any) -> jax.Array:
    """Linear in input, weight and bias less their zero points."""
    return _of_floats(ops.depthwise_conv2d, operands, attributes)


@exact(ops.transpose_conv2d)
def transpose_conv2d(*operands: QTensor, **attributes: Any) -> jax.Array:
    """Linear in input, weight and bias less their zero points."""
    return _of_floats(ops.transpose_conv2d, operands, attributes)
