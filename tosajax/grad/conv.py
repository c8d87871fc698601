"""Gradients of convolutions: those of the convolution of real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, tie, tie_scalar


def _convolution(kernel: Callable[..., jax.Array]) -> Callable[..., Any]:
    @exact(kernel)
    def surrogate(*operands: QTensor, **attributes: Any) -> jax.Array:
        """Linear in input, weight and bias less their zero points."""
        x, weight, bias = (tie(operand) for operand in operands[:3])
        x_zp, weight_zp = (tie_scalar(operand) for operand in operands[3:])
        zero = jnp.zeros(1, jnp.float32)
        attributes["acc_type"] = DType.FP32
        return kernel(x - x_zp, weight - weight_zp, bias, zero, zero, **attributes)

    return surrogate


conv2d = _convolution(ops.conv2d)
conv3d = _convolution(ops.conv3d)
depthwise_conv2d = _convolution(ops.depthwise_conv2d)
transpose_conv2d = _convolution(ops.transpose_conv2d)
