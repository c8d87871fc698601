"""Rules of "Tensor Operators", convolutions (TOSA 1.0.1).

CONV2D, CONV3D and DEPTHWISE_CONV2D share theirs: `kernel` is the kernel's size, one number for
each spatial dimension, and `channels` the number of output channels.

The run-time rules of all four are, for integers, r1: the sum of products fits `acc_type`; r2: that
plus the bias does. They need the sums, and those are computed again, tap by tap, but only if the
weights and the bias are so large that some input may break a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.checks._common import (
    Shapes,
    limits,
    minimum_errors,
    window_errors,
    window_size,
    zero_point_errors,
)
from tosajax.checks._require import (
    Flags,
    add_overflows,
    flags,
    reach,
    scope_of,
    sum_overflows,
    widen,
)
from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType
from tosajax.spec import Level

# Names of a 3D operator's dimensions; a 2D operator has them without the depth.
_OUTPUT = ("OD", "OH", "OW")
_KERNEL = ("dilation_d * KD", "dilation_y * KH", "dilation_x * KW")
_PAD = ("pad_d0", "pad_d1", "pad_top", "pad_bottom", "pad_left", "pad_right")
_STRIDE = ("stride_d", "stride_y", "stride_x")


def conv2d_shape(c: Call) -> Shapes:
    channels, *kernel, _ = c.weight.shape
    return _shape(c, kernel, channels)


def conv2d_errors(c: Call) -> Iterator[Problem]:
    channels, *kernel, _ = c.weight.shape
    return _errors(c, kernel, channels)


def conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    _, *kernel, _ = c.weight.shape
    return _levels(c, level, kernel)


conv3d_shape = conv2d_shape
conv3d_errors = conv2d_errors
conv3d_levels = conv2d_levels


def depthwise_conv2d_shape(c: Call) -> Shapes:
    *kernel, channels, multiplier = c.weight.shape
    return _shape(c, kernel, channels * multiplier)


def depthwise_conv2d_errors(c: Call) -> Iterator[Problem]:
    *kernel, channels, multiplier = c.weight.shape
    wanted = channels * multiplier
    yield from _errors(c, kernel, wanted)
    found = c.output.shape[-1]
    if found != wanted:
        yield c.problem("arguments", f"output has {found} channels, expected {wanted}, C * M")


def depthwise_conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    *kernel, _, _ = c.weight.shape
    return _levels(c, level, kernel)


def transpose_conv2d_shape(c: Call) -> Shapes:
    n, height, width, _ = c.input.shape
    channels, kernel_y, kernel_x, _ = c.weight.shape
    stride_y, stride_x = c.stride
    top, bottom, left, right = c.out_pad
    rows = (height - 1) * stride_y + top + bottom + kernel_y
    columns = (width - 1) * stride_x + left + right + kernel_x
    return ((n, rows, columns, channels),)


def transpose_conv2d_errors(c: Call) -> Iterator[Problem]:
    channels, kernel_y, kernel_x, _ = c.weight.shape
    top, bottom, left, right = c.out_pad
    yield from zero_point_errors(c, "e1", "input_zp")
    yield from zero_point_errors(c, "e2", "weight_zp")
    illegal = list(minimum_errors(c, "e5", "stride", 1))
    if min(top, bottom) <= -kernel_y:
        found = f"out_pad is {top} top and {bottom} bottom"
        illegal.append(c.problem("e3", f"{found}, expected more than {-kernel_y}, minus KH"))
    if min(left, right) <= -kernel_x:
        found = f"out_pad is {left} left and {right} right"
        illegal.append(c.problem("e4", f"{found}, expected more than {-kernel_x}, minus KW"))
    yield from illegal
    if not illegal:
        _, *found, _ = c.output.shape
        ((_, *wanted, _),) = transpose_conv2d_shape(c)
        for i, rule in enumerate(("e6", "e7")):
            if found[i] != wanted[i]:
                name = _OUTPUT[1 + i]
                yield c.problem(rule, f"output has {name} {found[i]}, expected {wanted[i]}")
    yield from _bias_errors(c, "e8", channels)


def transpose_conv2d_levels(c: Call, level: Level) -> Iterator[Problem]:
    _, kernel_y, kernel_x, _ = c.weight.shape
    stride_y, stride_x = c.stride
    top, bottom, left, right = c.out_pad
    return limits(
        c,
        level,
        ("weight's KH", kernel_y, "MAX_KERNEL"),
        ("weight's KW", kernel_x, "MAX_KERNEL"),
        ("out_pad_top", top, "MAX_KERNEL"),
        ("out_pad_bottom", bottom, "MAX_KERNEL"),
        ("out_pad_left", left, "MAX_KERNEL"),
        ("out_pad_right", right, "MAX_KERNEL"),
        ("stride_y", stride_y, "MAX_STRIDE"),
        ("stride_x", stride_x, "MAX_STRIDE"),
    )


def _spans(c: Call, kernel: list[int]) -> list[int]:
    """Elements from the first position of the window to the last, along each dimension."""
    _, *sizes, _ = c.input.shape
    before, after = c.pad[0::2], c.pad[1::2]
    dims = zip(sizes, before, after, kernel, c.dilation, strict=True)
    return [size - 1 + b + a - (k - 1) * dilation for size, b, a, k, dilation in dims]


def _shape(c: Call, kernel: list[int], channels: int) -> Shapes:
    spans = zip(_spans(c, kernel), c.stride, strict=True)
    return ((c.input.shape[0], *(window_size(*span) for span in spans), channels),)


def _errors(c: Call, kernel: list[int], channels: int) -> Iterator[Problem]:
    yield from zero_point_errors(c, "e1", "input_zp")
    yield from zero_point_errors(c, "e2", "weight_zp")
    illegal = [
        *minimum_errors(c, "e3", "pad", 0),
        *minimum_errors(c, "e4", "stride", 1),
        *minimum_errors(c, "e5", "dilation", 1),
    ]
    yield from illegal
    count = len(kernel)
    if not illegal:
        names = zip(_OUTPUT[-count:], _spans(c, kernel), _STRIDE[-count:], c.stride, strict=True)
        for number, (name, span, step, stride) in enumerate(names, 6):
            yield from window_errors(c, f"e{number}", name, span, step, stride)
    yield from _bias_errors(c, f"e{6 + count}", channels)


def _bias_errors(c: Call, rule: str, channels: int) -> Iterator[Problem]:
    (found,) = c.bias.shape
    if found not in (1, channels):
        yield c.problem(rule, f"bias has {found} channels, expected 1 or {channels}")


def _levels(c: Call, level: Level, kernel: list[int]) -> Iterator[Problem]:
    count = len(kernel)
    extents = [k * dilation for k, dilation in zip(kernel, c.dilation, strict=True)]
    *depth, y, x = zip(_STRIDE[-count:], c.stride, strict=True)
    return limits(
        c,
        level,
        *((name, k, "MAX_KERNEL") for name, k in zip(_KERNEL[-count:], extents, strict=True)),
        *((name, pad, "MAX_KERNEL") for name, pad in zip(_PAD[-2 * count :], c.pad, strict=True)),
        # Where there is a depth, its stride is the last of the limits.
        *((name, stride, "MAX_STRIDE") for name, stride in (y, x, *depth)),
    )


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
    """r1: the sum of products fits `acc_type`; r2: that plus the bias does."""
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
    """r1: the sum of products fits `acc_type`; r2: that plus the bias does."""
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
    """r1: the sum of products fits `acc_type`; r2: that plus the bias does."""
    if acc_type.is_float:
        return {}
    kernel = weight.shape[1:-1]
    # A convolution with the kernel turned around, over elements that are `stride` apart.
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
    """The flags of sums of products, and of these plus the bias.

    Args:
      values: the input less its zero point, padded, in the type of the accumulator; [N, ..., C].
      weight: likewise; [*kernel, OC, C], or [*kernel, C, M] where OC is C * M.
      bias: [OC] or [1].
      window: that of the kernel.
      multiply: makes [N, ..., OC] of [N, ..., C] and the weights of one tap.
      largest: bound of |values|.
      acc_type: INT32 or INT48.
    """
    with scope_of(values.dtype):
        weight = weight.reshape(-1, *weight.shape[-2:])
        bias = bias.reshape((1,) * (values.ndim - 1) + (-1,))

    def add_up(values: jax.Array) -> jax.Array:
        with scope_of(values.dtype):
            return _sums(values, weight, window, multiply)

    def exact() -> Flags:
        total = add_up(values)
        broken = {"r2": add_overflows(total, bias)}
        if gain * largest > acc_type.maximum:
            broken["r1"] = sum_overflows(add_up, values, gain=gain, acc_type=acc_type)
        return flags(**broken)

    with scope_of(values.dtype):
        one = jnp.ones((1,) * (values.ndim - 1) + values.shape[-1:], values.dtype)
        sizes = multiply(one, jnp.sum(jnp.abs(weight), 0, dtype=weight.dtype))
        gain = weight.size // sizes.size * reach(np.dtype(np.int8))
        # The most that the sums may be for the bias to fit: ~bias is -bias - 1.
        room = acc_type.maximum - jnp.maximum(bias, ~bias)
        legal = {rule: jnp.zeros((), jnp.bool_) for rule in jax.eval_shape(exact)}
        return lax.cond(jnp.any(sizes > room // largest), exact, lambda: legal)


def _sums(
    values: jax.Array,
    weight: jax.Array,
    window: _Window,
    multiply: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Adds up the products of each window of [N, ..., C], one tap after the other."""
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
    """[N, ..., IC] times [OC, IC]."""
    return lax.dot_general(values, weight, (((values.ndim - 1,), (1,)), ((), ())))


def _by_channel(values: jax.Array, weight: jax.Array) -> jax.Array:
    """[N, OH, OW, C] times [C, M], channel by channel."""
    products = values[..., None] * weight[None, None, None]
    return products.reshape(*values.shape[:-1], -1)


def _padded(values: jax.Array, pad: Sequence[int], step: Sequence[int] | None = None) -> jax.Array:
    """Zeros around the elements of the spatial axes, and between them as far as they are apart."""
    step = step or (1,) * (values.ndim - 2)
    pads = zip(pad[0::2], pad[1::2], step, strict=True)
    config = [(0, 0, 0), *((low, high, apart - 1) for low, high, apart in pads), (0, 0, 0)]
    with scope_of(values.dtype):
        return lax.pad(values, values.dtype.type(0), config)
