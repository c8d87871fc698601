"""Run-time rules of "Tensor Operators", convolutions (TOSA 1.0.1).

All four convolutions have the same rules, for integers: r1, the sum of products fits `acc_type`;
r2, the sum plus the bias fits. The sums are recomputed, tap by tap, but only if the weights and the
bias are so large that some input could break a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.checks.require._common import (
    Flags,
    add_overflows,
    flags,
    reach,
    sum_overflows,
    widen,
)
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64


def conv2d_require(
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
) -> Flags:
    """r1: the sum of products fits `acc_type`; r2: the sum plus the bias fits."""
    if acc_type.is_float:
        return {}
    window = _Window(weight.shape[1:-1], stride, dilation)
    values = _padded(widen(input, input_zp, acc_type), pad)
    taps = widen(jnp.moveaxis(weight, 0, -2), weight_zp, acc_type)
    return _sum_flags(values, taps, bias, window, _dense, reach(input.dtype), acc_type)


conv3d_require = conv2d_require


def depthwise_conv2d_require(
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
) -> Flags:
    """r1: the sum of products fits `acc_type`; r2: the sum plus the bias fits."""
    if acc_type.is_float:
        return {}
    window = _Window(weight.shape[:2], stride, dilation)
    values = _padded(widen(input, input_zp, acc_type), pad)
    taps = widen(weight, weight_zp, acc_type)
    return _sum_flags(values, taps, bias, window, _by_channel, reach(input.dtype), acc_type)


def transpose_conv2d_require(
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
) -> Flags:
    """r1: the sum of products fits `acc_type`; r2: the sum plus the bias fits."""
    if acc_type.is_float:
        return {}
    kernel = weight.shape[1:-1]
    # A convolution with the flipped kernel, over the input dilated by `stride`.
    window = _Window(kernel, (1, 1), (1, 1))
    around = [size - 1 for size in kernel for _ in range(2)]
    pads = [size + more for size, more in zip(around, out_pad, strict=True)]
    values = _padded(widen(input, input_zp, acc_type), pads, stride)
    taps = widen(jnp.moveaxis(weight[:, ::-1, ::-1], 0, -2), weight_zp, acc_type)
    return _sum_flags(values, taps, bias, window, _dense, reach(input.dtype), acc_type)


class _Window(NamedTuple):
    """A window that slides over the spatial axes of an array [N, ..., C]."""

    size: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]


def _sum_flags(
    values: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    window: _Window,
    multiply: Callable[[jax.Array, jax.Array], jax.Array],
    largest: int,
    acc_type: DType,
) -> Flags:
    """The flags of the sums of products (r1), and of the sums plus the bias (r2).

    Args:
      values: the input less its zero point, padded, in the type of the accumulator; [N, ..., C].
      weight: the weights less their zero point, in the same type; [*kernel, OC, C], or
        [*kernel, C, M] with OC = C * M.
      bias: [OC] or [1].
      window: the kernel's window.
      multiply: function of [N, ..., C] and the weights of one tap that returns [N, ..., OC].
      largest: the bound of |values|.
      acc_type: INT32 or INT48.
    """
    with _x64.scope_of(values.dtype):
        weight = weight.reshape(-1, *weight.shape[-2:])
        bias = bias.reshape((1,) * (values.ndim - 1) + (-1,))

    def add_up(values: jax.Array) -> jax.Array:
        with _x64.scope_of(values.dtype):
            return _sums(values, weight, window, multiply)

    def exact() -> Flags:
        total = add_up(values)
        broken = {"r2": add_overflows(total, bias)}
        if gain * largest > acc_type.maximum:
            broken["r1"] = sum_overflows(add_up, values, gain=gain, acc_type=acc_type)
        return flags(**broken)

    with _x64.scope_of(values.dtype):
        one = jnp.ones((1,) * (values.ndim - 1) + values.shape[-1:], values.dtype)
        sizes = multiply(one, jnp.sum(jnp.abs(weight), 0, dtype=weight.dtype))
        gain = weight.size // sizes.size * reach(np.dtype(np.int8))
        # The largest magnitude of a sum for which sum + bias fits; ~bias is -bias - 1.
        room = acc_type.maximum - jnp.maximum(bias, ~bias)
        legal = {rule: jnp.zeros((), jnp.bool_) for rule in jax.eval_shape(exact)}
        return lax.cond(jnp.any(sizes > room // largest), exact, lambda: legal)


def _sums(
    values: jax.Array,
    weight: jax.Array,
    window: _Window,
    multiply: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Sums the products of each window of [N, ..., C], one tap at a time."""
    n, *lengths, channels = values.shape
    taps = np.indices(window.size, np.int32).reshape(len(window.size), -1).T
    starts = jnp.asarray(taps * np.asarray(window.dilation, np.int32))
    axes = zip(lengths, *window, strict=True)
    steps = [(length - 1 - (size - 1) * dilation) // step for length, size, step, dilation in axes]
    extent = [count * step + 1 for count, step in zip(steps, window.stride, strict=True)]

    def products(start: jax.Array, weight: jax.Array) -> jax.Array:
        zero = jnp.zeros((), jnp.int32)
        read = lax.dynamic_slice(values, (zero, *start, zero), (n, *extent, channels))
        return multiply(
            lax.slice(read, (0,) * read.ndim, read.shape, (1, *window.stride, 1)), weight
        )

    def add(total: jax.Array, tap: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + products(*tap), None

    return lax.scan(add, products(starts[0], weight[0]), (starts[1:], weight[1:]))[0]


def _dense(values: jax.Array, weight: jax.Array) -> jax.Array:
    """Multiplies [N, ..., IC] by [OC, IC] to [N, ..., OC]."""
    return lax.dot_general(values, weight, (((values.ndim - 1,), (1,)), ((), ())))


def _by_channel(values: jax.Array, weight: jax.Array) -> jax.Array:
    """Multiplies [N, OH, OW, C] by [C, M], channel by channel, to [N, OH, OW, C * M]."""
    products = values[..., None] * weight[None, None, None]
    return products.reshape(*values.shape[:-1], -1)


def _padded(values: jax.Array, pad: Sequence[int], step: Sequence[int] | None = None) -> jax.Array:
    """Pads the spatial axes with zeros, and dilates them so that elements are `step` apart."""
    step = step or (1,) * (values.ndim - 2)
    pads = zip(pad[0::2], pad[1::2], step, strict=True)
    config = [(0, 0, 0), *((low, high, apart - 1) for low, high, apart in pads), (0, 0, 0)]
    with _x64.scope_of(values.dtype):
        return lax.pad(values, values.dtype.type(0), config)
