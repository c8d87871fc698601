"""Convolutions ("Tensor Operators", TOSA 1.0.1).

Sums of int8 products are exact in int32, sums of int16 by int8 products in int48, held in int64.
Floats are accumulated in float32, the bias included, and rounded once, which every `acc_type`
allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.ops import _window
from tosajax.ops._skip import skip_padding
from tosajax.ops._window import Window
from tosajax.ops.recording import recorded
from tosajax.ops.routes import choose
from tosajax.ops.routes.operands import Convolution


@recorded
def conv2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    *,
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    acc_type: DType,
    local_bound: bool = False,
) -> jax.Array:
    """Convolves over height and width (TOSA 1.0.1, "CONV2D").

    Args:
      input: int8, int16 or float, [N, IH, IW, IC].
      weight: int8 (or int4 held in it), or the float type of input; [OC, KH, KW, IC].
      bias: the type of the output, [OC] or [1].
      input_zp: the type of input, [1]; 0 unless int8.
      weight_zp: the type of weight, [1]; 0 unless int8.
      pad: top, bottom, left, right; elements.
      stride: y, x; elements.
      dilation: y, x; elements.
      acc_type: the accumulator of the type row; the arithmetic is at least as precise.
      local_bound: has no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, OC].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, zp = jnp.arange(9, dtype=jnp.int8).reshape(1, 3, 3, 1), jnp.int8([0])
      >>> y = tosajax.ops.conv2d(
      ...     x, jnp.ones((1, 2, 2, 1), jnp.int8), jnp.int32([100]), zp, zp,
      ...     pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=tosajax.DType.INT32,
      ... )
      >>> y[0, :, :, 0].tolist()
      [[108, 112], [120, 124]]
    """
    window = _window.window(weight.shape[1:-1], stride, dilation, pad)
    return _convolve(input, weight, bias, input_zp, weight_zp, window)


@recorded
def conv3d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    *,
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    acc_type: DType,
    local_bound: bool = False,
) -> jax.Array:
    """Convolves over depth, height and width (TOSA 1.0.1, "CONV3D").

    Args:
      input: int8, int16 or float, [N, ID, IH, IW, IC].
      weight: int8 (or int4 held in it), or the float type of input; [OC, KD, KH, KW, IC].
      bias: the type of the output, [OC] or [1].
      input_zp: the type of input, [1]; 0 unless int8.
      weight_zp: the type of weight, [1]; 0 unless int8.
      pad: front, back, top, bottom, left, right; elements.
      stride: depth, y, x; elements.
      dilation: depth, y, x; elements.
      acc_type: the accumulator of the type row; the arithmetic is at least as precise.
      local_bound: has no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OD, OH, OW, OC].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, zp = jnp.ones((1, 3, 3, 3, 1), jnp.int8), jnp.int8([0])
      >>> y = tosajax.ops.conv3d(
      ...     x, jnp.ones((4, 2, 2, 2, 1), jnp.int8), jnp.int32([100]), zp, zp,
      ...     pad=(0,) * 6, stride=(1,) * 3, dilation=(1,) * 3, acc_type=tosajax.DType.INT32,
      ... )
      >>> y.shape, y.min().item(), y.max().item()
      ((1, 2, 2, 2, 4), 108, 108)
    """
    window = _window.window(weight.shape[1:-1], stride, dilation, pad)
    return _convolve(input, weight, bias, input_zp, weight_zp, window)


@recorded
def depthwise_conv2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    *,
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    acc_type: DType,
    local_bound: bool = False,
) -> jax.Array:
    """Convolves each channel by itself with M kernels (TOSA 1.0.1, "DEPTHWISE_CONV2D").

    Args:
      input: int8, int16 or float, [N, IH, IW, C].
      weight: int8 (or int4 held in it), or the float type of input; [KH, KW, C, M].
      bias: the type of the output, [C * M] or [1].
      input_zp: the type of input, [1]; 0 unless int8.
      weight_zp: the type of weight, [1]; 0 unless int8.
      pad: top, bottom, left, right; elements.
      stride: y, x; elements.
      dilation: y, x; elements.
      acc_type: the accumulator of the type row; the arithmetic is at least as precise.
      local_bound: has no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, C * M].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, zp = jnp.int8([1, 2, 3, 4]).reshape(1, 1, 2, 2), jnp.int8([0])
      >>> y = tosajax.ops.depthwise_conv2d(
      ...     x, jnp.ones((1, 2, 2, 1), jnp.int8), jnp.int32([100]), zp, zp,
      ...     pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=tosajax.DType.INT32,
      ... )
      >>> y.tolist()
      [[[[104, 106]]]]
    """
    window = _window.window(weight.shape[:2], stride, dilation, pad)
    if _is_float(input):
        zero = np.zeros(1, input.dtype)
        c = Convolution(input, weight.astype(jnp.float32), zero, zero, window)
        groups = input.shape[-1]
        total = skip_padding(
            _depthwise(c), input, weight, window, _arrange_depthwise, groups=groups
        )
        return add_bias(total, bias)
    # The zero point of the weights, the smaller tensor, is subtracted; the input's is folded.
    wide = weight.astype(jnp.int32) - weight_zp.astype(jnp.int32).reshape(1, 1, 1, 1)
    total = _depthwise(Convolution(input, wide, input_zp, np.zeros(1, np.int32), window))
    if input.dtype == np.int8:
        sums = jnp.sum(wide, axis=(0, 1), dtype=jnp.int32).reshape(1, 1, 1, -1)
        total = total - input_zp.astype(jnp.int32).reshape(1, 1, 1, 1) * sums
    return add_bias(total, bias)


@recorded
def transpose_conv2d(
    input: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    *,
    out_pad: Sequence[int],
    stride: Sequence[int],
    acc_type: DType,
    local_bound: bool = False,
) -> jax.Array:
    """Spreads each input element over the output by the kernel (TOSA 1.0.1, "TRANSPOSE_CONV2D").

    Args:
      input: int8, int16 or float, [N, IH, IW, IC].
      weight: int8 (or int4 held in it), or the float type of input; [OC, KH, KW, IC].
      bias: the type of the output, [OC] or [1].
      input_zp: the type of input, [1]; 0 unless int8.
      weight_zp: the type of weight, [1]; 0 unless int8.
      out_pad: top, bottom, left, right; elements, negative ones crop; above -KH and -KW.
      stride: y, x; elements.
      acc_type: the accumulator of the type row; the arithmetic is at least as precise.
      local_bound: has no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, OC].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, zp = jnp.int8([1, 2]).reshape(1, 1, 2, 1), jnp.int8([0])
      >>> y = tosajax.ops.transpose_conv2d(
      ...     x, jnp.int8([1, 10]).reshape(1, 1, 2, 1), jnp.int32([100]), zp, zp,
      ...     out_pad=(0, 0, 0, 0), stride=(1, 2), acc_type=tosajax.DType.INT32,
      ... )
      >>> y[0, :, :, 0].tolist()
      [[101, 110, 102, 120]]
    """
    kernel = weight.shape[1:-1]
    pads = list(zip(out_pad[0::2], out_pad[1::2], strict=True))
    if _is_float(input):
        inner = [
            (size - 1 + low, size - 1 + high)
            for size, (low, high) in zip(kernel, pads, strict=True)
        ]
        window = Window(tuple(kernel), (1, 1), (1, 1), tuple(inner))
        reversed_weight = lax.rev(weight, (1, 2))
        c = Convolution(input, reversed_weight, input_zp, weight_zp, window, tuple(stride))
        total = choose.of_floats(c)(c)
        total = skip_padding(total, input, weight, window, _arrange_reversed, spread=stride)
        return add_bias(total, bias)
    spread, reach = phases(weight, weight_zp, stride)
    around = [n for size in reach for n in (size - 1, size - 1)]
    window = _window.window(reach, (1, 1), (1, 1), around)
    total = choose.convolve_integers(Convolution(input, spread, input_zp, weight_zp, window))
    n, height, width, _ = total.shape
    (sy, sx), oc = stride, weight.shape[0]
    with _x64.scope_of(total.dtype):
        total = total.reshape(n, height, width, sy, sx, oc).transpose(0, 1, 3, 2, 4, 5)
        total = total.reshape(n, height * sy, width * sx, oc)
        # If the kernel is not a multiple of the stride, its last phases lack their last tap.
        crop = [
            (low, high - (taps * step - size), 0)
            for (low, high), taps, step, size in zip(pads, reach, stride, kernel, strict=True)
        ]
        total = lax.pad(total, total.dtype.type(0), [(0, 0, 0), *crop, (0, 0, 0)])
    return add_bias(total, bias)


def _convolve(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    window: Window,
) -> jax.Array:
    c = Convolution(x, weight, input_zp, weight_zp, window)
    if _is_float(x):
        total = choose.of_floats(c)(c)
        total = skip_padding(total, x, weight, window, _arrange)
    else:
        total = choose.convolve_integers(c)
    return add_bias(total, bias)


def _arrange(kernels: jax.Array) -> jax.Array:
    """Reorders [OC, ..., IC, 3] to [..., IC * 3, OC]."""
    moved = jnp.moveaxis(kernels, 0, -1)
    return moved.reshape(*moved.shape[:-3], -1, moved.shape[-1])


def _arrange_reversed(kernels: jax.Array) -> jax.Array:
    """Reorders [OC, KH, KW, IC, 3] to [KH, KW, IC * 3, OC], height and width reversed."""
    return lax.rev(_arrange(kernels), (0, 1))


def _arrange_depthwise(kernels: jax.Array) -> jax.Array:
    """Reorders [KH, KW, C, M, 3] to [KH, KW, 3, C * M]."""
    moved = jnp.moveaxis(kernels, -1, 2)
    return moved.reshape(*moved.shape[:3], -1)


def _depthwise(c: Convolution) -> jax.Array:
    """The sums of a depthwise convolution, [N, OH, OW, C * M], by the chosen route."""
    total = choose.of_depthwise(c)(c)
    # A loop follows: XLA:CPU generates better code if the two are compiled separately.
    return lax.optimization_barrier(total).reshape(*total.shape[:3], -1)


def phases(
    weight: jax.Array | np.ndarray, weight_zp: jax.Array | np.ndarray, stride: Sequence[int]
) -> tuple[jax.Array | np.ndarray, tuple[int, ...]]:
    """Splits a transposed convolution into stride_y * stride_x ordinary convolutions.

    Output element q * stride + p depends only on the taps p, p + stride, ... and the input elements
    q, q - 1, ...: for each phase p, an ordinary convolution.

    Returns:
      The weights of all phases, [stride_y * stride_x * OC, reach_y, reach_x, IC], phases first;
      and the reach, the number of taps in a phase along each axis.
    """
    oc, *kernel, ic = weight.shape
    reach = tuple(-(-size // step) for size, step in zip(kernel, stride, strict=True))
    missing = [n * s - size for n, s, size in zip(reach, stride, kernel, strict=True)]
    is_numpy = isinstance(weight, np.ndarray) and isinstance(weight_zp, np.ndarray)
    xp: Any = np if is_numpy else jnp
    high = [(0, 0), *((0, more) for more in missing), (0, 0)]
    filled = xp.pad(weight, high, constant_values=weight_zp.reshape(()))
    split = filled.reshape(oc, reach[0], stride[0], reach[1], stride[1], ic)
    ordered = xp.flip(split.transpose(2, 4, 0, 1, 3, 5), (3, 4))
    return ordered.reshape(stride[0] * stride[1] * oc, *reach, ic), reach


def add_bias(total: jax.Array, bias: jax.Array | np.ndarray) -> jax.Array:
    """Adds a bias, [OC] or [1], to sums [..., OC] of the bias's type or of float32."""
    shape = (1,) * (total.ndim - 1) + (-1,)
    if _is_float(total):
        return (total + bias.astype(jnp.float32).reshape(shape)).astype(bias.dtype)
    with _x64.scope_of(total.dtype):
        return total + bias.reshape(shape)


def _is_float(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
