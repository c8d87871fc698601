"""Contender: each operator in the simplest JAX, exact but not clever.

Convolutions and dots of int32 (int64 for int16), `reduce_window`, RESCALE in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.work import DoesNotApply, Run, Work
from tosajax import DType, Graph, spec
from tosajax.spec import ResizeMode, RoundingMode


def prepare(work: Work) -> Run:
    """The work by this module's kernels, with 64-bit types switched on."""
    if work.is_float:
        raise DoesNotApply("exact integers only")
    graph = work.graph if work.is_side_by_side else work.whole_graph
    fn, constants = lower(graph)
    if work.is_side_by_side:
        fn = jax.vmap(fn, in_axes=(None, *(0 for _ in work.inputs)))
    inputs = work.inputs
    if work.is_side_by_side:
        inputs = tuple(x[:, None] for x in inputs)
    with jax.enable_x64(True):
        arrays = jax.device_put((constants, *inputs))
        compiled = jax.jit(fn).lower(*arrays).compile()
    return lambda: jax.block_until_ready(compiled(*arrays))


def lower(graph: Graph) -> tuple[Callable[..., tuple[jax.Array, ...]], dict[str, np.ndarray]]:
    """`fn(constants, *inputs) -> outputs`, and the constants.

    Raises:
      NotImplementedError: an operator has no plain kernel.
    """
    nodes = [n for n in graph.ordered_nodes() if n.op not in ("CONST", "CONST_SHAPE")]
    kernels = [kernel_of(n.op) for n in nodes]
    tensors = graph.tensors
    known = {name: t.values for name, t in tensors.items() if t.values is not None}
    shapes = {n: tuple(map(int, v)) for n, v in known.items() if tensors[n].dtype is DType.SHAPE}
    constants = {n: v for n, v in known.items() if n not in shapes}

    def fn(constants: dict[str, jax.Array], *inputs: jax.Array) -> tuple[jax.Array, ...]:
        values: dict[str, Any] = {**shapes, **constants}
        values.update(zip(graph.inputs, inputs, strict=True))
        for node, kernel in zip(nodes, kernels, strict=True):
            out = tensors[node.outputs[0]].dtype.storage
            arguments = [values[name] for name in node.inputs]
            values[node.outputs[0]] = kernel(*arguments, out=out, **node.attributes)
        return tuple(values[name] for name in graph.outputs)

    return fn, constants


def kernel_of(op: str) -> Callable[..., jax.Array]:
    """The function of this module with the operator's name in lower case."""
    kernel = globals().get(op.lower())
    if op not in spec.OPERATORS or kernel is None:
        raise NotImplementedError(f"no plain {op}")
    return kernel


# Kernels: inputs in the specification's order, attributes by name, `out` the type of the output.
# Kernels of float32 take None for zero points.


def matmul(a, b, a_zp, b_zp, **_):
    return jnp.matmul(_wide(a, a_zp), _wide(b, b_zp))


def conv2d(x, weight, bias, x_zp, weight_zp, *, pad, stride, dilation, weights="OHWI", **_):
    layout = ("NHWC", weights, "NHWC")
    return _conv(x, weight, bias, x_zp, weight_zp, layout, pad, stride, rhs_dilation=dilation)


def conv3d(x, weight, bias, x_zp, weight_zp, *, pad, stride, dilation, weights="ODHWI", **_):
    layout = ("NDHWC", weights, "NDHWC")
    return _conv(x, weight, bias, x_zp, weight_zp, layout, pad, stride, rhs_dilation=dilation)


def depthwise_conv2d(x, weight, bias, x_zp, weight_zp, *, pad, stride, dilation, **_):
    kh, kw, channels, many = weight.shape
    weight = weight.reshape(kh, kw, 1, channels * many)
    layout = ("NHWC", "HWIO", "NHWC")
    groups = {"rhs_dilation": dilation, "feature_group_count": channels}
    return _conv(x, weight, bias, x_zp, weight_zp, layout, pad, stride, **groups)


def transpose_conv2d(x, weight, bias, x_zp, weight_zp, *, out_pad, stride, **_):
    _, kh, kw, _ = weight.shape
    pad = [k - 1 + p for k, p in zip((kh, kh, kw, kw), out_pad, strict=True)]
    weight, layout = weight[:, ::-1, ::-1], ("NHWC", "OHWI", "NHWC")
    return _conv(x, weight, bias, x_zp, weight_zp, layout, pad, (1, 1), lhs_dilation=stride)


def max_pool2d(x, *, kernel, stride, pad, **_):
    lowest = -np.inf if jnp.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
    return _windows(x, x.dtype.type(lowest), lax.max, kernel, stride, pad)


def avg_pool2d(x, x_zp, output_zp, *, kernel, stride, pad, out, **_):
    wide = _wide(x, x_zp)
    total = _windows(wide, wide.dtype.type(0), lax.add, kernel, stride, pad)
    counts = _counts(x.shape, kernel, stride, pad, total.shape)
    if x_zp is None:
        return total / counts.astype(np.float32)
    shifts = np.vectorize(lambda count: int(count - 1).bit_length())(counts)
    multipliers = (((1 << 30) + 1) << shifts) // counts
    mean = _scale(total, multipliers, shifts + 30)
    return _narrow(mean + _scalar(output_zp, np.int64), out)


def rescale(
    x,
    multiplier,
    shift,
    x_zp,
    output_zp,
    *,
    rounding_mode,
    input_unsigned,
    output_unsigned,
    out,
    **_,
):
    if input_unsigned or output_unsigned or rounding_mode == RoundingMode.INEXACT_ROUND:
        raise NotImplementedError("plain RESCALE is signed, and rounds once or twice")
    dims = (1,) * (x.ndim - 1) + (-1,)
    value = x.astype(np.int64) - _scalar(x_zp, np.int64)
    double = rounding_mode == RoundingMode.DOUBLE_ROUND
    scaled = _scale(value, multiplier.reshape(dims), shift.reshape(dims), double)
    return _narrow(scaled + _scalar(output_zp, np.int64), out)


def table(x, values, **_):
    if x.dtype == np.int8:
        return values[x.astype(np.int32) + 128]
    index, fraction = (x.astype(np.int32) + 32768) >> 7, x.astype(np.int32) & 127
    base, following = values[index].astype(np.int32), values[index + 1].astype(np.int32)
    return (base << 7) + (following - base) * fraction


def resize(x, scale, offset, border, *, mode, out, **_):
    y, dy = _positions(x.shape[1], scale[0], scale[1], offset[0], border[0])
    z, dz = _positions(x.shape[2], scale[2], scale[3], offset[1], border[1])
    if mode == ResizeMode.NEAREST_NEIGHBOR:
        rows = _within(y + (2 * dy >= scale[0]), x.shape[1])
        columns = _within(z + (2 * dz >= scale[2]), x.shape[2])
        return x[:, rows][:, :, columns]
    wide = x.astype(out)
    dy, dz = dy.astype(out)[None, :, None, None], dz.astype(out)[None, None, :, None]

    def corner(down: int, right: int) -> jax.Array:
        rows, columns = _within(y + down, x.shape[1]), _within(z + right, x.shape[2])
        return wide[:, rows][:, :, columns]

    top = corner(0, 0) * (scale[2] - dz) + corner(0, 1) * dz
    bottom = corner(1, 0) * (scale[2] - dz) + corner(1, 1) * dz
    return top * (scale[0] - dy) + bottom * dy


def argmax(x, *, axis, **_):
    return jnp.argmax(x, axis=axis).astype(np.int32)


def reduce_sum(x, *, axis, **_):
    return jnp.sum(x, axis=axis, keepdims=True, dtype=x.dtype)


def reduce_max(x, *, axis, **_):
    return jnp.max(x, axis=axis, keepdims=True)


def add(a, b, **_):
    return a + b


def sub(a, b, **_):
    return a - b


def mul(a, b, shift, *, out, **_):
    product = a.astype(np.int64) * b.astype(np.int64)
    places = _scalar(shift, np.int64)
    return ((product + ((np.int64(1) << places) >> np.int64(1))) >> places).astype(out)


def clamp(x, *, min_val, max_val, **_):
    return jnp.clip(x, x.dtype.type(min_val), x.dtype.type(max_val))


def reshape(x, shape, **_):
    return x.reshape(shape)


def slice(x, start, size, **_):
    return lax.slice(x, start, np.add(start, size))


def transpose(x, *, perms, **_):
    return x.transpose(perms)


def identity(x, **_):
    return x


# Shared by kernels.


def _wide(x: jax.Array, zero_point: jax.Array | None) -> jax.Array:
    """x minus its zero point, in the type of the sums."""
    if zero_point is None or jnp.issubdtype(x.dtype, np.floating):
        return x
    wide = np.int64 if x.dtype == np.int16 else np.int32
    return x.astype(wide) - _scalar(zero_point, wide)


def _scalar(value: jax.Array, dtype: type) -> jax.Array:
    return value.astype(dtype).reshape(())


def _conv(x, weight, bias, x_zp, weight_zp, layout, pad, stride, **options):
    left = _wide(x, x_zp)
    weight = _wide(weight, weight_zp).astype(left.dtype)
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    y = lax.conv_general_dilated(left, weight, stride, pairs, dimension_numbers=layout, **options)
    return y + bias.astype(y.dtype).reshape((1,) * (y.ndim - 1) + (-1,))


def _windows(x, start, function, kernel, stride, pad):
    pads = ((0, 0), tuple(pad[:2]), tuple(pad[2:]), (0, 0))
    return lax.reduce_window(x, start, function, (1, *kernel, 1), (1, *stride, 1), pads)


def _counts(
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    result: Sequence[int],
) -> np.ndarray:
    """The number of elements of the input in each window, [1, OH, OW, 1]."""

    def along(axis: int) -> np.ndarray:
        first = np.arange(result[1 + axis]) * stride[axis] - pad[2 * axis]
        last = np.minimum(first + kernel[axis], shape[1 + axis])
        return last - np.maximum(first, 0)

    return (along(0)[:, None] * along(1)[None, :])[None, ..., None]


def _scale(value, multiplier, shift, double_round: bool = False) -> jax.Array:
    """value * multiplier / 2**shift in int64, rounded half up, or in two steps."""
    value, multiplier, shift = (jnp.asarray(x).astype(np.int64) for x in (value, multiplier, shift))
    one = np.int64(1)
    rounding = one << (shift - one)
    if double_round:
        step = jnp.where(value >= 0, one << np.int64(30), -(one << np.int64(30)))
        rounding = rounding + jnp.where(shift > 31, step, np.int64(0))
    return (value * multiplier + rounding) >> shift


def _narrow(value: jax.Array, out: np.dtype) -> jax.Array:
    limits = np.iinfo(out)
    return jnp.clip(value, np.int64(limits.min), np.int64(limits.max)).astype(out)


def _positions(size: int, numerator: int, denominator: int, offset: int, border: int):
    """Output positions in the input: index, and remainder in 1 / numerator."""
    count = ((size - 1) * numerator - offset + border) // denominator + 1
    at = np.arange(count, dtype=np.int32) * denominator + offset
    return at // numerator, at % numerator


def _within(index: np.ndarray, size: int) -> np.ndarray:
    return np.clip(index, 0, size - 1)
