"""Convolutions ("Tensor Operators", TOSA 1.0.1).

Integers are exact in int32, or for int16 in int48 held in int64. Floats are added up in float32,
the bias included, and rounded once, which every `acc_type` allows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.ops import _exact_conv, _platform, _window
from tosajax.ops._float import dot_rows
from tosajax.ops._float_taps import convolve_by_taps, spread_out
from tosajax.ops._route import route
from tosajax.ops._skip import skip_padding
from tosajax.ops._window import Window

_FEW_RESULTS = 96  # elements of one channel
_KEPT = [(0, 0, 0)] * 3


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
      local_bound: of no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, OC].
    """
    shape = _window.window(weight.shape[1:-1], stride, dilation, pad)
    return _convolve(input, weight, bias, input_zp, weight_zp, shape)


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
      local_bound: of no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OD, OH, OW, OC].
    """
    shape = _window.window(weight.shape[1:-1], stride, dilation, pad)
    return _convolve(input, weight, bias, input_zp, weight_zp, shape)


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
      local_bound: of no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, C * M].
    """
    shape = _window.window(weight.shape[:2], stride, dilation, pad)
    if _is_float(input):
        zero = jnp.zeros((), input.dtype)
        total = _depthwise(input, weight.astype(jnp.float32), zero, shape, np.float32)
        total = skip_padding(
            total, input, weight, shape, _arrange_depthwise, groups=input.shape[-1]
        )
        return _add_bias(total, bias)
    # The zero point of the small tensor is subtracted, that of the large one is folded.
    wide = weight.astype(jnp.int32) - weight_zp.astype(jnp.int32).reshape(1, 1, 1, 1)
    total_type = np.int64 if input.dtype == np.int16 else np.int32
    total = _depthwise(input, wide, input_zp.reshape(()), shape, total_type)
    if input.dtype == np.int8:
        sums = jnp.sum(wide, axis=(0, 1), dtype=jnp.int32).reshape(1, 1, 1, -1)
        total = total - input_zp.astype(jnp.int32).reshape(1, 1, 1, 1) * sums
    return _add_bias(total, bias)


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
      local_bound: of no effect; sums are as precise as XLA makes them either way.

    Returns:
      int32, int48 or float, [N, OH, OW, OC].
    """
    kernel = weight.shape[1:-1]
    pads = list(zip(out_pad[0::2], out_pad[1::2], strict=True))
    if _is_float(input):
        inner = [
            (size - 1 + low, size - 1 + high)
            for size, (low, high) in zip(kernel, pads, strict=True)
        ]
        window = Window(tuple(kernel), (1, 1), (1, 1), tuple(inner))
        name = "float convolution" if _platform.current().may_be_cpu else "float patches"
        with route(name, "of the spread input"):
            total = _platform.on_cpu(
                input,
                lax.rev(weight, (1, 2)),
                cpu=functools.partial(_float_convolution, shape=window, spread=tuple(stride)),
                other=functools.partial(_float_patches, shape=window, spread=tuple(stride)),
            )
        total = skip_padding(total, input, weight, window, _arrange_reversed, spread=stride)
        return _add_bias(total, bias)
    spread, reach = _phases(weight, weight_zp, stride)
    around = [n for size in reach for n in (size - 1, size - 1)]
    shape = _window.window(reach, (1, 1), (1, 1), around)
    total = _exact_conv.convolution(input, spread, input_zp, weight_zp, shape)
    n, height, width, _ = total.shape
    (sy, sx), oc = stride, weight.shape[0]
    with _x64.scope_of(total.dtype):
        total = total.reshape(n, height, width, sy, sx, oc).transpose(0, 1, 3, 2, 4, 5)
        total = total.reshape(n, height * sy, width * sx, oc)
        # The last phases of a kernel that is not a multiple of the stride have no last tap.
        crop = [
            (low, high - (taps * step - size), 0)
            for (low, high), taps, step, size in zip(pads, reach, stride, kernel, strict=True)
        ]
        total = lax.pad(total, total.dtype.type(0), [(0, 0, 0), *crop, (0, 0, 0)])
    return _add_bias(total, bias)


def _convolve(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    input_zp: jax.Array,
    weight_zp: jax.Array,
    shape: Window,
) -> jax.Array:
    if not _is_float(x):
        total = _exact_conv.convolution(x, weight, input_zp, weight_zp, shape)
    else:
        if reason := _reason_for_patches(x, shape):
            with route("float patches", reason):
                total = _float_patches(x, weight, shape)
        else:
            with route("float convolution", "channels and results enough"):
                total = _platform.on_cpu(
                    x,
                    weight,
                    cpu=functools.partial(_filled_convolution, shape=shape),
                    other=functools.partial(_float_patches, shape=shape),
                )
        total = skip_padding(total, x, weight, shape, _arrange)
    return _add_bias(total, bias)


def _reason_for_patches(x: jax.Array, shape: Window) -> str:
    """Why floats are to be convolved as a dot of patches; nothing where they are not."""
    if not _platform.current().may_be_cpu:
        return "the platform is not a CPU"
    if math.prod(shape.size) > _exact_conv.MAX_TAPS:
        return ""
    # XLA adds up to other bits in a batch, as of a matrix [K, N] of up to 80 rows.
    if math.prod(shape.out(x.shape)) <= _FEW_RESULTS:
        return "a small result"
    few = x.shape[-1] < _exact_conv.MIN_INPUT_CHANNELS
    return f"{x.shape[-1]} input channels are few" if few else ""


def _float_patches(
    x: jax.Array, weight: jax.Array, shape: Window, spread: Sequence[int] = ()
) -> jax.Array:
    """A convolution in float32 as a dot of patches; [N, ..., IC] by [OC, ..., IC].

    On a GPU all are: other algorithms there carry an infinity into results that it is not part of.
    """
    x, weight = x.astype(jnp.float32), weight.astype(jnp.float32)
    if math.prod(shape.size) > _exact_conv.MAX_TAPS:
        return convolve_by_taps(x, jnp.moveaxis(weight, 0, -1), shape, spread)
    x = spread_out(x, spread)
    out, oc = shape.out(x.shape), weight.shape[0]
    padded = _window.pad_spatial(x, shape.pad, jnp.zeros((), jnp.float32))
    patches = _window.patches_of(padded, shape, out)
    total = dot_rows(patches, weight.reshape(oc, -1))
    return total.reshape(x.shape[0], *out, oc)


def _filled_convolution(x: jax.Array, weight: jax.Array, shape: Window) -> jax.Array:
    """A convolution in float32, with results filled up to what XLA:CPU has a fast kernel for.

    Other convolutions it leaves to a library that adds up the last rows in another order than the
    rest, so that the bits of an example depend on its place in a batch. In 3-D they stay there.
    """
    oc = weight.shape[0]
    missing = _exact_conv.MIN_CHANNELS - oc
    few = x.ndim == 4 and max(x.shape[-1], oc) < _exact_conv.MIN_CHANNELS
    if few:
        filled = lax.pad(weight.astype(jnp.float32), np.float32(0), [(0, missing, 0), *_KEPT])
        weight = lax.optimization_barrier(filled)
    return _float_convolution(x, weight, shape)[..., :oc]


def _float_convolution(
    x: jax.Array, weight: jax.Array, shape: Window, spread: Sequence[int] = ()
) -> jax.Array:
    """A convolution in float32; [N, ..., IC] by [OC, ..., IC]."""
    layout = ("NHWC", "OHWI", "NHWC") if x.ndim == 4 else ("NDHWC", "ODHWI", "NDHWC")
    return lax.conv_general_dilated(
        x.astype(jnp.float32),
        weight.astype(jnp.float32),
        shape.stride,
        shape.pad,
        lhs_dilation=spread or None,
        rhs_dilation=shape.dilation,
        dimension_numbers=layout,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def _arrange(kernels: jax.Array) -> jax.Array:
    """[OC, ..., IC, 3] as [..., IC * 3, OC]."""
    moved = jnp.moveaxis(kernels, 0, -1)
    return moved.reshape(*moved.shape[:-3], -1, moved.shape[-1])


def _arrange_reversed(kernels: jax.Array) -> jax.Array:
    """[OC, KH, KW, IC, 3] as [KH, KW, IC * 3, OC], backwards in height and width."""
    return lax.rev(_arrange(kernels), (0, 1))


def _arrange_depthwise(kernels: jax.Array) -> jax.Array:
    """[KH, KW, C, M, 3] as [KH, KW, 3, C * M]."""
    moved = jnp.moveaxis(kernels, -1, 2)
    return moved.reshape(*moved.shape[:3], -1)


def _depthwise(
    x: jax.Array, weight: jax.Array, padding: jax.Array, shape: Window, total_type: type
) -> jax.Array:
    """Sums x * weight, weight being [KH, KW, C, M] of int32 or float32; [N, OH, OW, C * M]."""
    out = shape.out(x.shape)
    x = _window.pad_spatial(x, shape.pad, padding)
    weight = weight.reshape(-1, *weight.shape[2:])
    one = shape._replace(size=(1, 1))

    def multiply(values: jax.Array, kernel: jax.Array) -> jax.Array:
        # int16 by at most 255: a product has 24 bits, and MAX_TAPS of them fit int32.
        return values.astype(kernel.dtype)[..., None] * kernel.reshape(1, 1, 1, *kernel.shape)

    def by_slices() -> jax.Array:
        taps = zip(shape.offsets(), weight, strict=True)
        first, *rest = (multiply(_window.tap(x, at, out, shape.stride), w) for at, w in taps)
        total = sum(rest, start=first)
        return _widen(total) if total_type is np.int64 else total

    def term(start: list[jax.Array], kernel: jax.Array) -> jax.Array:
        values = _window.dynamic_window(x, start, one, out)
        more = multiply(_window.tap(values, (0, 0), out, shape.stride), kernel)
        return _widen(more) if total_type is np.int64 else more

    count = math.prod(shape.size)
    if count <= _exact_conv.MAX_TAPS:
        with route("slices", "one multiply-add for each tap"):
            total = by_slices()
    else:
        with route("loop", f"{count} taps are too many to lay out at once"):
            steps = shape.dilation
            total = _exact_conv.sum_over(shape.size, steps, weight, term, total_type)
    # What follows is another loop: XLA:CPU compiles the two apart to better code.
    return lax.optimization_barrier(total).reshape(*total.shape[:3], -1)


def _phases(
    weight: jax.Array | np.ndarray, weight_zp: jax.Array | np.ndarray, stride: Sequence[int]
) -> tuple[jax.Array | np.ndarray, tuple[int, ...]]:
    """The kernels that make each of stride_y * stride_x interleaved parts of the output.

    Element q * stride + p of the output needs the taps p, p + stride, ... only, over input
    elements q, q - 1, ...: an ordinary convolution, one for each p.

    Returns:
      [stride_y * stride_x * OC, reach_y, reach_x, IC], phases first, and the reach: taps a phase.
    """
    oc, *kernel, ic = weight.shape
    reach = tuple(-(-size // step) for size, step in zip(kernel, stride, strict=True))
    missing = [n * s - size for n, s, size in zip(reach, stride, kernel, strict=True)]
    known = isinstance(weight, np.ndarray) and isinstance(weight_zp, np.ndarray)
    xp: Any = np if known else jnp
    high = [(0, 0), *((0, more) for more in missing), (0, 0)]
    filled = xp.pad(weight, high, constant_values=weight_zp.reshape(()))
    split = filled.reshape(oc, reach[0], stride[0], reach[1], stride[1], ic)
    ordered = xp.flip(split.transpose(2, 4, 0, 1, 3, 5), (3, 4))
    return ordered.reshape(stride[0] * stride[1] * oc, *reach, ic), reach


def _add_bias(total: jax.Array, bias: jax.Array) -> jax.Array:
    shape = (1,) * (total.ndim - 1) + (-1,)
    if _is_float(total):
        return (total + bias.astype(jnp.float32).reshape(shape)).astype(bias.dtype)
    with _x64.scope_of(total.dtype):
        return total + bias.reshape(shape)


def _widen(value: jax.Array) -> jax.Array:
    with _x64.scope():
        return _x64.widen(value)


def _is_float(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
