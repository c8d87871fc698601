"""Sums of products, and the rescaling of sums to outputs.

Sums use the exact routes of `tosajax.ops`. Operands that are NumPy arrays are constants, which
these routes preprocess.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64, qformat
from tosajax.hifi.kernels import _narrow
from tosajax.hifi.kernels._narrow import Wide
from tosajax.hifi.kernels._precision import Array, Integers, Precision, Quant, Shift, as_int32
from tosajax.ops.recording import is_recording
from tosajax.ops.routes.dot import dot_zp
from tosajax.ops.routes.float_dot import dot_rows
from tosajax.ops.routes.int16_dot import dot_int16, dot_int16_int8

_ZERO = np.zeros(1, np.int8)


def dot(weight: Array, inputs: Array, quant: Quant | None = None) -> jax.Array | Wide:
    """Sums weight * inputs over the last axis of both, after adding zero biases.

    Args:
      weight: int8, uint8, int16 or float32, [N, K].
      inputs: the type of `weight`, or int16 for int8 weights; [M, K].
      quant: the zero biases of quantized operands.

    Returns:
      [M, N]: int32, which wraps, for 8-bit operands, int64 for int16, or float32. While calls are
      recorded, `Wide` for int16.
    """
    if weight.dtype == np.float32:
        return dot_rows(jnp.asarray(inputs), jnp.asarray(weight))
    if inputs.dtype == np.int16 and is_recording():
        return _narrow.rows(weight, inputs)
    if weight.dtype == np.int16:
        # This order transposes the inputs, which are smaller than the weights.
        return dot_int16(jnp.asarray(weight), jnp.asarray(inputs).T).T
    if inputs.dtype == np.int16:
        return dot_int16_int8(jnp.asarray(inputs), weight, _ZERO, b_axis=-1)
    operands = jnp.asarray(as_int8(inputs)), as_int8(weight)
    return dot_zp(*operands, *zero_points(weight, inputs, quant), b_axis=-1)


def as_int8(x: Array) -> Array:
    """Converts uint8 to int8 by subtracting 128; int8 is unchanged."""
    if x.dtype != np.uint8:
        return x
    flipped = x ^ np.uint8(128)
    is_numpy = isinstance(x, np.ndarray)
    return flipped.view(np.int8) if is_numpy else lax.bitcast_convert_type(flipped, np.int8)


def added(first: jax.Array | Wide, second: Any) -> jax.Array | Wide:
    """Adds two sums of the same type."""
    if isinstance(first, Wide):
        return _narrow.add(first, second)
    with _x64.scope_of(first.dtype):
        return first + second


def zero_points(weight: Array, inputs: Array, quant: Quant | None) -> tuple[Array, Array]:
    """The zero points of `as_int8` of inputs and weights; [1], NumPy unless traced."""
    if quant is None:
        return np.zeros(1, inputs.dtype), np.zeros(1, weight.dtype)
    return (
        _zero_point(inputs, quant.input_zero_bias),
        _zero_point(weight, quant.weight_zero_bias),
    )


def finish_fixed(
    acc: jax.Array | Wide, bias: Array, acc_shift: Shift, bias_shift: Shift, out: type
) -> jax.Array:
    """Computes (acc + bias * 2**bias_shift) * 2**acc_shift in the output type.

    Args:
      acc: int32, int64 or `Wide`, [..., N].
      bias: int8, int16, int32 or int64, [N].
      acc_shift: a scalar; bits, positive to the left.
      bias_shift: a scalar; bits, positive to the left.
      out: int8, int16 or int32, rounded half away from zero and saturated; or int64, floored.

    Returns:
      `out`, [..., N].
    """
    if isinstance(acc, Wide) or is_recording():
        return _narrow.finish_fixed(acc, bias, acc_shift, bias_shift, out)
    with _x64.scope_of(bias.dtype):
        row = jnp.asarray(bias).reshape((1,) * (acc.ndim - 1) + (-1,))
    total = qformat.add_shifted(acc, row, bias_shift)
    if out is np.int64:
        return qformat.saturating_shift(total, acc_shift)
    return qformat.shift_and_round(total, acc_shift, out)


def finish_quantized(acc: jax.Array, quant: Quant, out: type) -> jax.Array:
    """Requantizes int32 sums [..., N] with one scale, or one for each of N channels."""
    multiplier, shift = (
        _by_channel(value, acc.ndim) for value in (quant.out_multiplier, quant.out_shift)
    )
    scaled = qformat.requantize(acc, multiplier, shift)
    info, zero_point = np.iinfo(out), jnp.asarray(as_int32(quant.out_zero_bias))
    # Clips before the addition, which then cannot overflow.
    low, high = (jnp.int32(end) - zero_point for end in (info.min, info.max))
    return (lax.clamp(low, scaled, high) + zero_point).astype(out)


def add_bias(acc: jax.Array, bias: Array | None) -> jax.Array:
    """Adds a bias [N] of the same type, or None, to acc [..., N]."""
    if bias is None:
        return acc
    return acc + jnp.asarray(bias).reshape((1,) * (acc.ndim - 1) + (-1,))


def finish(
    acc: jax.Array | Wide,
    bias: Array | None,
    precision: Precision,
    acc_shift: Shift,
    bias_shift: Shift,
    quant: Quant | None,
) -> jax.Array:
    """Converts sums [..., N] to the output; see `finish_fixed` and `finish_quantized`."""
    if isinstance(acc, Wide) or (quant is None and not precision.is_float):
        if bias is None:
            raise TypeError("sums in fixed point without a bias")
        return finish_fixed(acc, bias, acc_shift, bias_shift, precision.out)
    total = add_bias(acc, bias)
    return total if quant is None else finish_quantized(total, quant, precision.out)


def _zero_point(x: Array, zero_bias: Integers) -> Array:
    offset = np.int32(128 if x.dtype == np.uint8 else 0)
    return (-as_int32(zero_bias) - offset).astype(np.int8).reshape(1)


def _by_channel(value: Integers, rank: int) -> Array:
    """Converts a scalar or [N] to int32; [N] is along the last of `rank` axes."""
    array = as_int32(value)
    return array.reshape((1,) * (rank - 1) + (-1,)) if array.ndim else array
