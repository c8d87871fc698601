"""Gradients of convolutions: the gradients of the convolution of real numbers.

Only the integers must have the same bits in every program; the surrogates may be XLA's own
convolutions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tosajax import ops
from tosajax.grad._exact import exact
from tosajax.grad.depthwise import depthwise
from tosajax.grad.once import held_in_gradients, sums_once
from tosajax.grad.qtensor import QTensor, tie, tie_scalar
from tosajax.ops._follow import follow
from tosajax.ops._window import Window, window
from tosajax.ops.routes.loop import MAX_TAPS

# The layouts of input, weight and output.
_LAYOUTS = {2: ("NHWC", "OHWI", "NHWC"), 3: ("NDHWC", "ODHWI", "NDHWC")}


def _convolution(
    kernel: Callable[..., jax.Array],
) -> Callable[[Callable[..., jax.Array]], Callable[..., Any]]:
    """Decorates a convolution of input and weight, less their zero points, and attributes."""

    def decorate(sums: Callable[..., jax.Array]) -> Callable[..., Any]:
        def surrogate(*operands: QTensor | jax.Array, **attributes: Any) -> jax.Array:
            """Linear in input, weight and bias less their zero points."""
            x, weight, bias = (tie(operand) for operand in operands[:3])
            x_zp, weight_zp = (tie_scalar(operand) for operand in operands[3:])
            total = sums(x - x_zp, weight - weight_zp, **attributes)
            return total + bias.reshape((1,) * (total.ndim - 1) + (-1,))

        convolve = exact(kernel)(surrogate)

        @functools.wraps(surrogate)
        def call(*operands: QTensor | jax.Array, **attributes: Any) -> jax.Array | QTensor:
            result = convolve(*operands, **attributes)
            if isinstance(result, QTensor) or result.dtype != jnp.float32:
                return result
            # JAX's own gradients of the kernels are several times slower.
            return follow(result, surrogate(*operands, **attributes))

        return call

    return decorate


def _linear(x: jax.Array, weight: jax.Array, **attributes: Any) -> jax.Array:
    shape = _window(weight.shape[1:-1], attributes)
    if math.prod(shape.size) == math.prod(shape.stride) == 1 and not any(map(any, shape.pad)):
        # XLA:CPU is up to ten times slower with the gradient of a convolution to its weight.
        rows, contracted = weight.reshape(-1, weight.shape[-1]), ((x.ndim - 1,), (1,))
        return lax.dot_general(x, rows, (contracted, ((), ())), precision=lax.Precision.HIGHEST)
    return lax.conv_general_dilated(
        x,
        weight,
        shape.stride,
        shape.pad,
        rhs_dilation=shape.dilation,
        dimension_numbers=_LAYOUTS[len(shape.size)],
        precision=lax.Precision.HIGHEST,
    )


def _depthwise(x: jax.Array, weight: jax.Array, **attributes: Any) -> jax.Array:
    *kernel, channels, many = weight.shape
    x = jnp.repeat(x, many, axis=-1) if many > 1 else x
    weight = weight.reshape(*kernel, channels * many)
    shape = _window(kernel, attributes)
    if math.prod(kernel) > MAX_TAPS:
        return lax.conv_general_dilated(
            x,
            weight[:, :, None],
            shape.stride,
            shape.pad,
            rhs_dilation=shape.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=channels * many,
            precision=lax.Precision.HIGHEST,
        )
    return depthwise(x, weight.reshape(-1, channels * many), shape)


def _window(size: Sequence[int], attributes: Mapping[str, Any]) -> Window:
    return window(size, *(attributes[name] for name in ("stride", "dilation", "pad")))


def _transposed(
    x: jax.Array, weight: jax.Array, *, out_pad: Sequence[int], stride: Sequence[int], **_: Any
) -> jax.Array:
    sizes = weight.shape[1:3]
    pads = [
        (size - 1 + low, size - 1 + high)
        for size, low, high in zip(sizes, out_pad[0::2], out_pad[1::2], strict=True)
    ]
    return lax.conv_general_dilated(
        x,
        lax.rev(weight, (1, 2)),
        (1, 1),
        pads,
        lhs_dilation=stride,
        dimension_numbers=_LAYOUTS[2],
        precision=lax.Precision.HIGHEST,
    )


def _weights_once(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Computes weights once: XLA would fuse their computation into the operator, for each pixel."""

    @functools.wraps(operator)
    def call(x: Any, weight: Any, *rest: Any, **attributes: Any) -> Any:
        is_traced = isinstance(weight, QTensor) and isinstance(weight.q, jax.Array)
        held = held_in_gradients(weight) if is_traced else weight
        return operator(x, held, *rest, **attributes)

    return call


conv2d = _convolution(ops.conv2d)(_linear)
conv3d = _convolution(ops.conv3d)(_linear)
depthwise_conv2d = sums_once(_weights_once(_convolution(ops.depthwise_conv2d)(_depthwise)))
transpose_conv2d = _convolution(ops.transpose_conv2d)(_transposed)
