"""The integer operators of TOSA 0.80 in Python integers, element by element.

Arrays hold Python integers, or None where 0.80 leaves the result open. Unsigned tensors hold
unsigned numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tosajax.io.pre_1_0.model import OldGraph, OldNode

_BITS = {"INT4": 4, "INT8": 8, "UINT8": 8, "INT16": 16, "UINT16": 16, "INT32": 32, "INT48": 48}
# The element of an array of objects, which NumPy's types do not tell.
Int = Any


def evaluate(graph: OldGraph, *inputs: np.ndarray) -> list[np.ndarray]:
    """The outputs of a graph of integer operators, in the order of its nodes."""
    values = dict(zip(graph.inputs, map(whole, inputs), strict=True))
    for node in graph.nodes:
        if node.op == "CONST":
            (name,) = node.outputs
            values[name] = whole(np.asarray(graph.tensors[name].values))
        else:
            run: Callable[..., np.ndarray] = globals()[f"_{node.op.lower()}"]
            (name,) = node.outputs
            values[name] = run(Call(node, graph, values))
            assert values[name].shape == graph.tensors[name].shape, node.title
    return [values[name] for name in graph.outputs]


def whole(values: np.ndarray) -> np.ndarray:
    """The same numbers as Python integers."""
    found = np.empty(values.shape, object)
    found[...] = np.asarray(values.astype(np.int64).tolist(), object).reshape(values.shape)
    return found


class Call:
    """A node with the values of its inputs, the types, and its attributes."""

    def __init__(self, node: OldNode, graph: OldGraph, values: Mapping[str, np.ndarray]) -> None:
        self.inputs = [values[name] for name in node.inputs]
        self.types = [graph.tensors[name].dtype for name in node.inputs]
        self.type = graph.tensors[node.outputs[0]].dtype
        self.shape: tuple[int, ...] = graph.tensors[node.outputs[0]].shape or ()
        self.attributes = node.attributes

    def __getattr__(self, name: str) -> Any:
        return self.attributes[name]

    def zero_point(self, name: str) -> int:
        return self.attributes.get(name, 0)

    def is_unsigned(self, side: str) -> bool:
        dtype = self.types[0] if side == "input" else self.type
        return dtype.startswith("U") or bool(self.attributes.get(f"{side}_unsigned"))


def bits_of(dtype: str) -> int:
    return _BITS[dtype]


def limits(dtype: str, *, unsigned: bool = False) -> tuple[int, int]:
    bits = _BITS[dtype]
    if unsigned or dtype.startswith("U"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def wrapped(value: int, dtype: str) -> int:
    bits = _BITS[dtype]
    value &= (1 << bits) - 1
    return value - (value >> (bits - 1) << bits)


def required(value: Int, dtype: str) -> Int:
    """The value where the type holds it."""
    low, high = limits(dtype)
    return value if value is not None and low <= value <= high else None


def _made(shape: Sequence[int], element: Callable[..., Int]) -> np.ndarray:
    found = np.empty(shape, object)
    for index in np.ndindex(*shape):
        found[index] = element(*index)
    return found


def _each(call: Call, function: Callable[..., Int]) -> np.ndarray:
    """A function of elements of inputs that broadcast."""
    inputs = np.broadcast_arrays(*call.inputs)
    return _made(call.shape, lambda *index: function(*(x[index] for x in inputs)))


# Scaling.


def apply_scale_32(value: int, multiplier: int, shift: int, double_round: bool) -> Int:
    if not (multiplier >= 0 and 2 <= shift <= 62):
        return None
    if not -(1 << (shift - 1)) <= value < 1 << (shift - 1):
        return None
    rounding = 1 << (shift - 1)
    if double_round and shift > 31:
        rounding += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * multiplier + rounding) >> shift


def apply_scale_16(value: int, multiplier: int, shift: int) -> Int:
    if not (multiplier >= 0 and 2 <= shift <= 62):
        return None
    return required((value * multiplier + (1 << (shift - 1))) >> shift, "INT32")


def _rescale(c: Call) -> np.ndarray:
    low, high = limits(c.type, unsigned=c.is_unsigned("output"))

    def element(*index: int) -> Int:
        value = c.inputs[0][index]
        if value is None:
            return None
        if c.is_unsigned("input"):
            value &= (1 << _BITS[c.types[0]]) - 1
        value -= c.zero_point("input_zp")
        channel = index[-1] if c.attributes.get("per_channel") else 0
        scale = c.multiplier[channel], c.shift[channel]
        if c.scale32:
            result = apply_scale_32(value, *scale, c.attributes.get("double_round", False))
        else:
            result = apply_scale_16(value, *scale)
        result = None if result is None else required(result + c.zero_point("output_zp"), "INT32")
        return None if result is None else min(max(result, low), high)

    return _made(c.shape, element)


def _cast(c: Call) -> np.ndarray:
    if "BOOL" in (c.type, c.types[0]):
        return _each(c, lambda value: int(value != 0))
    return _each(c, lambda value: wrapped(value, c.type))


# Sums of products.


def _sum(terms: Iterator[int], bias: int, dtype: str) -> Int:
    """A sum whose parts all fit the type."""
    total = 0
    for term in terms:
        total += term
        if required(total, dtype) is None:
            return None
    return required(total + bias, dtype)


def _bias(c: Call, channel: int) -> int:
    bias = c.inputs[2]
    return bias[0 if bias.size == 1 else channel]


def _conv(c: Call, weight: Callable[..., Int], kernel: Sequence[int], ins: Callable) -> np.ndarray:
    """A convolution of any number of spatial dimensions."""
    x = c.inputs[0]
    sizes = x.shape[1:-1]
    starts = c.pad[::2]

    def element(n: int, *at: int) -> Int:
        *place, oc = at

        def terms() -> Iterator[int]:
            for offset in itertools.product(*map(range, kernel)):
                spots = [
                    p * stride - start + k * dilation
                    for p, stride, start, k, dilation in zip(
                        place, c.stride, starts, offset, c.dilation, strict=True
                    )
                ]
                if all(0 <= spot < size for spot, size in zip(spots, sizes, strict=True)):
                    for ic in ins(oc):
                        value = x[(n, *spots, ic)] - c.zero_point("input_zp")
                        yield value * (weight(oc, *offset, ic) - c.zero_point("weight_zp"))

        return _sum(terms(), _bias(c, oc), c.type)

    return _made(c.shape, element)


def _conv2d(c: Call) -> np.ndarray:
    weight = c.inputs[1]
    channels = weight.shape[-1]
    return _conv(c, lambda *index: weight[index], weight.shape[1:-1], lambda oc: range(channels))


_conv3d = _conv2d


def _depthwise_conv2d(c: Call) -> np.ndarray:
    weight = c.inputs[1]
    multiplier = weight.shape[-1]
    return _conv(
        c,
        lambda oc, ky, kx, ic: weight[ky, kx, ic, oc % multiplier],
        weight.shape[:2],
        lambda oc: [oc // multiplier],
    )


def _transpose_conv2d(c: Call) -> np.ndarray:
    x, weight = c.inputs[:2]
    found = _made(c.shape, lambda n, y, x, oc: _bias(c, oc))
    _, rows, columns, _ = c.shape
    for n, iy, ix, ic in np.ndindex(*x.shape):
        for oc, ky, kx in np.ndindex(*weight.shape[:3]):
            oy = iy * c.stride[0] + c.out_pad[0] + ky
            ox = ix * c.stride[1] + c.out_pad[2] + kx
            if 0 <= oy < rows and 0 <= ox < columns and found[n, oy, ox, oc] is not None:
                value = x[n, iy, ix, ic] - c.zero_point("input_zp")
                value *= weight[oc, ky, kx, ic] - c.zero_point("weight_zp")
                found[n, oy, ox, oc] = required(found[n, oy, ox, oc] + value, c.type)
    return found


def _fully_connected(c: Call) -> np.ndarray:
    x, weight = c.inputs[:2]

    def element(n: int, oc: int) -> Int:
        terms = (
            (a - c.zero_point("input_zp")) * (b - c.zero_point("weight_zp"))
            for a, b in zip(x[n], weight[oc], strict=True)
        )
        return _sum(terms, _bias(c, oc), c.type)

    return _made(c.shape, element)


def _matmul(c: Call) -> np.ndarray:
    a, b = c.inputs

    def element(n: int, h: int, w: int) -> Int:
        terms = (
            (x - c.zero_point("a_zp")) * (y - c.zero_point("b_zp"))
            for x, y in zip(a[n, h], b[n, :, w], strict=True)
        )
        return _sum(terms, 0, c.type)

    return _made(c.shape, element)


# Windows.


def _window(c: Call, n: int, oy: int, ox: int, channel: int) -> list[int]:
    x = c.inputs[0]
    return [
        x[n, y, z, channel]
        for ky, kx in np.ndindex(*c.kernel)
        for y, z in [(oy * c.stride[0] - c.pad[0] + ky, ox * c.stride[1] - c.pad[2] + kx)]
        if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]
    ]


def _max_pool2d(c: Call) -> np.ndarray:
    return _made(c.shape, lambda *index: max(_window(c, *index)))


def _avg_pool2d(c: Call) -> np.ndarray:
    low, high = limits(c.type)

    def element(*index: int) -> Int:
        values = _window(c, *index)
        total = sum(value - c.zero_point("input_zp") for value in values)
        k = (len(values) - 1).bit_length()
        multiplier = (((1 << 30) + 1) << k) // len(values)
        scaled = apply_scale_32(total, multiplier, 30 + k, False)
        if scaled is None:
            return None
        return min(max(scaled + c.zero_point("output_zp"), low), high)

    return _made(c.shape, element)


def _resize(c: Call) -> np.ndarray:
    x = c.inputs[0]
    _, height, width, _ = x.shape
    y_n, y_d, x_n, x_d = c.scale

    def element(n: int, oy: int, ox: int, channel: int) -> Int:
        row, column = oy * y_d + c.offset[0], ox * x_d + c.offset[1]
        iy, dy = divmod(row, y_n)
        ix, dx = divmod(column, x_n)
        rows = max(iy, 0), min(iy + 1, height - 1)
        columns = max(ix, 0), min(ix + 1, width - 1)
        if c.mode == "NEAREST":
            return x[n, rows[2 * dy >= y_n], columns[2 * dx >= x_n], channel]
        parts = (
            x[n, rows[i], columns[j], channel] * (dy if i else y_n - dy) * (dx if j else x_n - dx)
            for i, j in np.ndindex(2, 2)
        )
        return required(sum(parts), c.type)

    return _made(c.shape, element)


# Elements.


def _clamp(c: Call) -> np.ndarray:
    return _each(c, lambda value: min(max(value, c.min_int), c.max_int))


def _add(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: required(a + b, c.type))


def _sub(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: required(a - b, c.type))


def _mul(c: Call) -> np.ndarray:
    shift = c.shift

    def element(a: int, b: int) -> Int:
        if not shift:
            return wrapped(a * b, c.type)
        return required((a * b + (1 << (shift - 1))) >> shift, c.type)

    return _each(c, element)


def _intdiv(c: Call) -> np.ndarray:
    def element(a: int, b: int) -> Int:
        if b == 0:
            return None
        return required(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), c.type)

    return _each(c, element)


def _arithmetic_right_shift(c: Call) -> np.ndarray:
    def element(a: int, b: int) -> Int:
        if not 0 <= b < _BITS[c.type]:
            return None
        return (a >> b) + (1 if c.round and b > 0 and (a >> (b - 1)) & 1 else 0)

    return _each(c, element)


def _logical_left_shift(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: wrapped(a << b, c.type) if 0 <= b <= 31 else None)


def _logical_right_shift(c: Call) -> np.ndarray:
    mask = (1 << _BITS[c.type]) - 1
    return _each(c, lambda a, b: wrapped((a & mask) >> b, c.type) if 0 <= b <= 31 else None)


def _bitwise_and(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: a & b)


def _bitwise_or(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: a | b)


def _bitwise_xor(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: a ^ b)


_logical_and, _logical_or, _logical_xor = _bitwise_and, _bitwise_or, _bitwise_xor


def _maximum(c: Call) -> np.ndarray:
    return _each(c, max)


def _minimum(c: Call) -> np.ndarray:
    return _each(c, min)


def _equal(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: int(a == b))


def _greater(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: int(a > b))


def _greater_equal(c: Call) -> np.ndarray:
    return _each(c, lambda a, b: int(a >= b))


def _abs(c: Call) -> np.ndarray:
    return _each(c, lambda a: required(abs(a), c.type))


def _bitwise_not(c: Call) -> np.ndarray:
    return _each(c, lambda a: ~a)


def _logical_not(c: Call) -> np.ndarray:
    return _each(c, lambda a: 1 - a)


def _clz(c: Call) -> np.ndarray:
    return _each(c, lambda a: 32 - (a & 0xFFFFFFFF).bit_length())


def _negate(c: Call) -> np.ndarray:
    low, high = limits(c.type)
    middle = "INT32"

    def element(value: int) -> Int:
        found = required(c.zero_point("input1_zp") - value, middle)
        return None if found is None else min(max(found + c.zero_point("output_zp"), low), high)

    return _each(c, element)


def _select(c: Call) -> np.ndarray:
    return _each(c, lambda choice, a, b: a if choice else b)


def _identity(c: Call) -> np.ndarray:
    return c.inputs[0]


def _table(c: Call) -> np.ndarray:
    def element(value: int) -> Int:
        if c.types[0] == "INT8":
            return c.table[value + 128]
        index, fraction = divmod(value + 32768, 128)
        slope = required(c.table[index + 1] - c.table[index], "INT16")
        return None if slope is None else (c.table[index] << 7) + slope * fraction

    return _each(c, element)


# Reductions.


def _reduced(c: Call, function: Callable[[list[int]], Int]) -> np.ndarray:
    rows = np.moveaxis(c.inputs[0], c.axis, -1)
    found = np.empty(rows.shape[:-1], object)
    for index in np.ndindex(*found.shape):
        found[index] = function(list(rows[index]))
    return found.reshape(c.shape)


def _argmax(c: Call) -> np.ndarray:
    return _reduced(c, lambda row: row.index(max(row)))


def _reduce_all(c: Call) -> np.ndarray:
    return _reduced(c, min)


def _reduce_any(c: Call) -> np.ndarray:
    return _reduced(c, max)


_reduce_min, _reduce_max = _reduce_all, _reduce_any


def _reduce_sum(c: Call) -> np.ndarray:
    return _reduced(c, lambda row: _sum(iter(row), 0, c.type))


# Moves.


def _concat(c: Call) -> np.ndarray:
    return np.concatenate(c.inputs, c.axis)


def _pad(c: Call) -> np.ndarray:
    x = c.inputs[0]
    starts = c.padding[::2]
    number = int(bool(c.pad_const_int)) if c.type == "BOOL" else c.pad_const_int

    def element(*index: int) -> Int:
        place = tuple(i - start for i, start in zip(index, starts, strict=True))
        inside = all(0 <= i < size for i, size in zip(place, x.shape, strict=True))
        return x[place] if inside else number

    return _made(c.shape, element)


def _reshape(c: Call) -> np.ndarray:
    return c.inputs[0].reshape(c.shape)


def _reverse(c: Call) -> np.ndarray:
    return np.flip(c.inputs[0], c.axis)


def _slice(c: Call) -> np.ndarray:
    return _made(
        c.shape,
        lambda *index: c.inputs[0][tuple(i + s for i, s in zip(index, c.start, strict=True))],
    )


def _tile(c: Call) -> np.ndarray:
    return np.tile(c.inputs[0], c.multiples)


def _transpose(c: Call) -> np.ndarray:
    return np.transpose(c.inputs[0], c.perms)


def _gather(c: Call) -> np.ndarray:
    values, indices = c.inputs
    return _made(c.shape, lambda n, w, channel: values[n, indices[n, w], channel])


def _scatter(c: Call) -> np.ndarray:
    found = c.inputs[0].copy()
    for n, w, channel in np.ndindex(*c.inputs[2].shape):
        found[n, c.inputs[1][n, w], channel] = c.inputs[2][n, w, channel]
    return found


def _dim(c: Call) -> np.ndarray:
    return _made((), lambda: c.inputs[0].shape[c.axis])
