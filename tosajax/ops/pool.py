"""Pooling ("Tensor Operators", TOSA 1.0.1)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.fixedpoint import apply_scale_32, reciprocal_scale, saturate
from tosajax.ops import _window
from tosajax.ops._window import Window
from tosajax.ops.recording import recorded
from tosajax.spec.enums import NanMode

# Window sides up to the first length are combined tap by tap. So are sides up to the second length
# whose windows overlap so little that doubling would cost more; longer ones bloat the program.
_FEW_TAPS = 8
_MANY_TAPS = 64


@recorded
def avg_pool2d(
    input: jax.Array,
    input_zp: jax.Array,
    output_zp: jax.Array,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    acc_type: DType,
) -> jax.Array:
    """The mean of each window, without padding (TOSA 1.0.1, "AVG_POOL2D").

    Args:
      input: int8, int16 or float, [N, IH, IW, C].
      input_zp: the type of input, [1]; 0 unless int8.
      output_zp: the type of input, [1]; 0 unless int8.
      kernel: y, x; elements.
      stride: y, x; elements.
      pad: top, bottom, left, right; elements, less than the kernel.
      acc_type: the accumulator of the type row; floats are added up in float32.

    Returns:
      The type of input, [N, OH, OW, C].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, zp = jnp.int8([1, 2, 3, 5]).reshape(1, 1, 4, 1), jnp.int8([0])
      >>> y = tosajax.ops.avg_pool2d(
      ...     x, zp, zp, kernel=(1, 2), stride=(1, 2), pad=(0, 0, 0, 0),
      ...     acc_type=tosajax.DType.INT32,
      ... )
      >>> y[0, 0, :, 0].tolist()
      [2, 4]
    """
    shape = _window.window(kernel, stride, (1, 1), pad)
    count = _counts(shape, input.shape)
    if jnp.issubdtype(input.dtype, jnp.floating):
        total = sweep(input, shape, 0, lax.add, jnp.float32)
        return (total / jnp.asarray(count, jnp.float32)).astype(input.dtype)
    total = sweep(input, shape, 0, lax.add, jnp.int32)
    total = total - _wide(input_zp) * jnp.asarray(count, jnp.int32)
    multiplier, amount = reciprocal_scale(count)
    scaled = apply_scale_32(total, jnp.asarray(multiplier), amount)
    return saturate(scaled + _wide(output_zp), input.dtype)


@recorded
def max_pool2d(
    input: jax.Array,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    nan_mode: NanMode = NanMode.PROPAGATE,
) -> jax.Array:
    """The maximum of each window (TOSA 1.0.1, "MAX_POOL2D").

    Args:
      input: int8, int16 or float, [N, IH, IW, C].
      kernel: y, x; elements.
      stride: y, x; elements.
      pad: top, bottom, left, right; elements, less than the kernel.
      nan_mode: whether one NaN in a window makes the result NaN, or only a window of NaN.

    Returns:
      The type of input, [N, OH, OW, C].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x = jnp.int8([1, 2, 5, 3]).reshape(1, 1, 4, 1)
      >>> y = tosajax.ops.max_pool2d(x, kernel=(1, 2), stride=(1, 2), pad=(0, 0, 0, 0))
      >>> y[0, 0, :, 0].tolist()
      [2, 5]
    """
    shape = _window.window(kernel, stride, (1, 1), pad)
    if not jnp.issubdtype(input.dtype, jnp.floating):
        return sweep(input, shape, np.iinfo(input.dtype).min, lax.max, input.dtype)
    wide = input.astype(jnp.float32)
    if nan_mode is NanMode.PROPAGATE:
        return sweep(wide, shape, -np.inf, lax.max, jnp.float32).astype(input.dtype)
    missing = jnp.isnan(wide)
    wide = jnp.where(missing, -jnp.inf, wide)
    largest = sweep(wide, shape, -np.inf, lax.max, jnp.float32)
    has_number = sweep(jnp.logical_not(missing), shape, False, lax.bitwise_or, jnp.bool_)
    return jnp.where(has_number, largest, jnp.nan).astype(input.dtype)


def sweep(
    x: jax.Array,
    shape: Window,
    neutral: float,
    combine: Callable[[jax.Array, jax.Array], jax.Array],
    dtype: type | np.dtype,
) -> jax.Array:
    """Combines the elements of each window of [N, IH, IW, C] in `dtype`, one axis at a time."""
    out = shape.out(x.shape)
    x = _window.pad_spatial(x, shape.pad, jnp.asarray(neutral, x.dtype)).astype(dtype)
    x = _combine(x, (shape.size[0], 1), (shape.stride[0], 1), (out[0], x.shape[2]), combine)
    return _combine(x, (1, shape.size[1]), (1, shape.stride[1]), out, combine)


def _combine(
    x: jax.Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    out: tuple[int, ...],
    combine: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Combines windows that extend along one axis only.

    A long window is combined from parts of 1, 2, 4, ... elements: the size and the time of the
    program grow with the logarithm of the length.
    """
    axis = 1 if size[0] > 1 else 2
    length = size[axis - 1]

    def part(of: jax.Array, at: int) -> jax.Array:
        return _window.tap(of, (at, 0) if axis == 1 else (0, at), out, stride)

    n = x.shape[axis]
    sparse = length <= _MANY_TAPS and length * out[axis - 1] <= 2 * n
    if length <= _FEW_TAPS or sparse:
        return functools.reduce(combine, (part(x, at) for at in range(length)))
    parts, at, reach = [], 0, 1
    while True:
        if length & reach:
            parts.append(part(x, at))
            at += reach
        if at == length:
            return functools.reduce(combine, parts)
        x = combine(
            lax.slice_in_dim(x, 0, n - reach, axis=axis),
            lax.slice_in_dim(x, reach, n, axis=axis),
        )
        n, reach = n - reach, 2 * reach


def _counts(shape: Window, lengths: Sequence[int]) -> np.ndarray:
    """The number of input elements in each window, [1, OH, OW, 1]."""
    per_axis = []
    for length, n, size, stride, (low, _) in zip(
        lengths[1:3], shape.out(lengths), shape.size, shape.stride, shape.pad, strict=True
    ):
        first = np.arange(n) * stride - low
        per_axis.append(np.minimum(first + size, length) - np.maximum(first, 0))
    counts = np.outer(*per_axis)[None, :, :, None]
    # A single number if all are equal: cheaper than an array.
    return counts[:, :1, :1] if (counts == counts.flat[0]).all() else counts


def _wide(zero_point: jax.Array) -> jax.Array:
    return zero_point.astype(jnp.int32).reshape(1, 1, 1, 1)
