"""Integer graphs in NumPy: every tensor of many examples at once, exactly, in int64.

A function for each operator, by its name in lower case, as the specification defines it (TOSA
1.0.1). Values have an axis of examples in front, of size 1 if all examples share the value.
No int64 overflows where the specification gives a result: a product of RESCALE has 31 bits by 32,
or 48 by 15. A value beyond its type, which the specification leaves open, is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oracle import conv_oracle, pool_oracle
from tosajax import DType, Graph
from tosajax.spec import RoundingMode


def run(graph: Graph, *inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor of a graph, for many examples.

    Args:
      graph: of integers and bool, every dimension known, without control flow.
      inputs: in the graph's order, each (examples, *shape).

    Returns:
      Arrays by name: (examples, *shape) in `dtype.storage`, or (1, *shape) for what depends on no
      input.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in zip(graph.inputs, inputs, strict=True):
        found[name] = _typed(graph, name, value)
    for node in graph.ordered_nodes():
        (output,) = node.outputs
        if node.op in ("CONST", "CONST_SHAPE"):
            found[output] = np.asarray(graph.tensors[output].values)[None]
        else:
            compute: Callable[..., np.ndarray] = globals()[node.op.lower()]
            operands = [_wide(found[name]) for name in node.inputs]
            value = compute(*operands, dtype=graph.tensors[output].dtype, **node.attributes)
            found[output] = _typed(graph, output, value)
    return found


def _wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.bool_ else x.astype(np.int64)


def _typed(graph: Graph, name: str, value: np.ndarray) -> np.ndarray:
    """A value in the storage of its tensor, whose shape and range it has."""
    tensor = graph.tensors[name]
    assert value.shape[1:] == tensor.shape, f"{name}: shape {value.shape[1:]}, not {tensor.shape}"
    if tensor.dtype.is_integer:
        low, high = value.min(initial=0), value.max(initial=0)
        inside = tensor.dtype.minimum <= low and high <= tensor.dtype.maximum
        assert inside, f"{name}: from {low} to {high}, beyond {tensor.dtype.name}"
    return value.astype(tensor.dtype.storage)


def _same(x: np.ndarray) -> np.ndarray:
    """An operand that all examples share."""
    (one,) = x
    return one


def _number(x: np.ndarray) -> int:
    """The value of a shared operand of one element."""
    return int(_same(x).reshape(()))


def _clip(x: np.ndarray, dtype: DType) -> np.ndarray:
    return x.clip(dtype.minimum, dtype.maximum)


def _low_bits(x: np.ndarray, dtype: DType) -> np.ndarray:
    half = 2 ** (dtype.bits - 1)
    return (x + half) % (2 * half) - half


def _by_rows(function: Callable[..., np.ndarray], x: np.ndarray, *rest: Any, **more: Any) -> Any:
    """Examples and N as one axis, for operators that treat all of N alike."""
    y = function(x.reshape(-1, *x.shape[2:]), *rest, **more)
    return y.reshape(*x.shape[:2], *y.shape[1:])


# Tensor operators


def argmax(x, *, axis, **_):
    return x.argmax(axis + 1)  # the first of several


def conv2d(x, weight, bias, input_zp, weight_zp, *, pad, stride, dilation, **_):
    operands = _same(weight), _same(bias), _number(input_zp), _number(weight_zp)
    options = {"pad": pad, "stride": stride, "dilation": dilation}
    return _by_rows(conv_oracle.conv, x, *operands, **options)


def depthwise_conv2d(x, weight, bias, input_zp, weight_zp, *, pad, stride, dilation, **_):
    operands = _same(weight), _same(bias), _number(input_zp), _number(weight_zp)
    options = {"pad": pad, "stride": stride, "dilation": dilation}
    return _by_rows(conv_oracle.depthwise, x, *operands, **options)


def transpose_conv2d(x, weight, bias, input_zp, weight_zp, *, out_pad, stride, **_):
    operands = _same(weight), _same(bias), _number(input_zp), _number(weight_zp)
    return _by_rows(conv_oracle.transpose, x, *operands, out_pad=out_pad, stride=stride)


def matmul(a, b, a_zp, b_zp, **_):
    return np.matmul(a - _number(a_zp), b - _number(b_zp))


def matmul_t(a, b, a_zp, b_zp, **_):
    return np.matmul(a - _number(a_zp), np.swapaxes(b - _number(b_zp), -2, -1))


def avg_pool2d(x, input_zp, output_zp, *, kernel, stride, pad, dtype, **_):
    def pooled(window: np.ndarray) -> np.ndarray:
        total = (window - _number(input_zp)).sum(axis=(1, 2))
        count = window.shape[1] * window.shape[2]  # padding does not count
        return pool_oracle.divide(total, count) + _number(output_zp)

    return _clip(_pool(pooled, x, kernel, stride, pad), dtype)


def max_pool2d(x, *, kernel, stride, pad, **_):
    return _pool(lambda window: window.max(axis=(1, 2)), x, kernel, stride, pad)


def _pool(
    function: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
) -> np.ndarray:
    def each(rows: np.ndarray) -> np.ndarray:
        lengths, windows = pool_oracle._windows(rows.shape, kernel, stride, pad)
        result = np.zeros((rows.shape[0], *lengths, rows.shape[3]), np.int64)
        for oy, ox, of_y, of_x in windows:
            result[:, oy, ox] = function(rows[:, of_y, of_x])
        return result

    return _by_rows(each, x)


# Activation


def clamp(x, *, min_val, max_val, **_):
    return x.clip(int(min_val), int(max_val))


def table(x, entries, *, dtype, **_):
    entries = _same(entries)
    if dtype is DType.INT8:
        return entries[x + 128]
    # Between two entries, in 1/128 of their distance.
    index, fraction = np.divmod(x + 32768, 128)
    slope = entries[index + 1] - entries[index]
    return entries[index] * 128 + slope * fraction


# Elementwise


def add(x, y, **_):
    return x + y


def sub(x, y, **_):
    return x - y


def mul(x, y, shift, **_):
    product, bits = x * y, _number(shift)
    if bits == 0:
        return _low_bits(product, DType.INT32)
    # Ties go up: adds the highest lost bit, as the sum with one half might need 65 bits.
    return (product >> bits) + (product >> (bits - 1) & 1)


def maximum(x, y, **_):
    return np.maximum(x, y)


def arithmetic_right_shift(x, shift, *, round, **_):
    # Ties go up: the highest lost bit is added.
    return (x >> shift) + (x >> shift - (shift > 0) & (shift > 0) if round else 0)


def logical_left_shift(x, shift, *, dtype, **_):
    return _low_bits(x << shift, dtype)


def minimum(x, y, **_):
    return np.minimum(x, y)


def negate(x, input_zp, output_zp, *, dtype, **_):
    return _clip(_number(input_zp) - x + _number(output_zp), dtype)


def clz(x, **_):
    """The zeros before the highest one of 32 bits: none of a negative number."""
    bits = np.frexp(x.astype(np.float64))[1]
    return np.where(x < 0, 0, 32 - bits)


def select(condition, x, y, **_):
    return np.where(condition, x, y)


def equal(x, y, **_):
    return x == y


def greater(x, y, **_):
    return x > y


def greater_equal(x, y, **_):
    return x >= y


# Reduction


def reduce_sum(x, *, axis, **_):
    return x.sum(axis + 1, keepdims=True)


def reduce_max(x, *, axis, **_):
    return x.max(axis + 1, keepdims=True)


def reduce_min(x, *, axis, **_):
    return x.min(axis + 1, keepdims=True)


# Data layout, and gather


def concat(*parts, axis, **_):
    examples = max(len(x) for x in parts)
    each = [np.broadcast_to(x, (examples, *x.shape[1:])) for x in parts]
    return np.concatenate(each, axis + 1)


def pad(x, padding, pad_const, **_):
    widths = [(0, 0), *np.reshape(_same(padding), (-1, 2)).tolist()]
    return np.pad(x, widths, constant_values=_number(pad_const))


def reshape(x, shape, **_):
    return x.reshape(len(x), *_same(shape))


def slice(x, start, size, **_):
    for axis, (first, count) in enumerate(zip(_same(start), _same(size), strict=True), 1):
        x = x.take(range(first, first + count), axis)
    return x


def transpose(x, *, perms, **_):
    return x.transpose(0, *(axis + 1 for axis in perms))


def gather(values, indices, **_):
    return np.take_along_axis(values, indices[..., None], axis=2)


# Type conversion


def cast(x, *, dtype, **_):
    if dtype is DType.BOOL:
        return x != 0
    assert dtype.is_integer, dtype
    return _low_bits(x.astype(np.int64), dtype)


def rescale(x, multiplier, shift, input_zp, output_zp, *, scale32, rounding_mode, dtype, **more):
    assert not more["input_unsigned"], "signed only"
    assert not more["output_unsigned"], "signed only"
    assert rounding_mode is not RoundingMode.INEXACT_ROUND, "it has no single result"
    value = x - _number(input_zp)
    # One value, or one for each channel, the last axis.
    multiplier, shift = _same(multiplier), _same(shift)
    half = 1 << (shift - 1)
    if scale32:
        assert ((-half <= value) & (value < half)).all(), "the shift is too small for a value"
    if rounding_mode is RoundingMode.DOUBLE_ROUND:
        away = np.where(value >= 0, 1 << 30, -(1 << 30))
        half = half + np.where(shift > 31, away, 0)
    scaled = (value * multiplier + half) >> shift
    assert (scaled == scaled.astype(np.int32)).all(), "beyond INT32"
    return _clip(scaled + _number(output_zp), dtype)
