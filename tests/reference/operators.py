"""Growing a graph by each operator: `grow_` and its name, or else its chapter.

Each function takes the growing graph, the operator, the type row, and the tensor to grow from. It
chooses the other operands and the attributes so that the graph stays legal and predictable.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from oracle import float_bounds

from reference.values import LARGEST
from tosajax import DType
from tosajax.spec import Operator, ResizeMode, RoundingMode, TypeRow

if TYPE_CHECKING:
    from reference.growth import Growth, Value

_INT32 = DType.INT32


def _acc(row: TypeRow) -> DType:
    found = row.types["acc_t"]
    assert isinstance(found, DType)
    return found


def _out(operator: Operator, row: TypeRow) -> DType:
    found = row.types[str(operator.outputs[0].dtype)]
    assert isinstance(found, DType)
    return found


def _largest(value: Value, zero_point: int = 0) -> int:
    """The largest magnitude of an integer tensor less its zero point."""
    return max(abs(value.least - zero_point), abs(value.most - zero_point))


def _zero_point(g: Growth, dtype: DType) -> tuple[Value, int]:
    """A zero point, 0 except for int8, and its value."""
    number = g.random.choice([0, -128, 127, 1, g.random.randint(-128, 127)])
    number = number if dtype is DType.INT8 else 0
    return g.hold([number], dtype), number


# Tensor operators.


def grow_argmax(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    axis = g.random.randrange(len(x.shape))
    g.add("ARGMAX", x.tensor, axis=axis, low=0, high=x.shape[axis] - 1)


def grow_avg_pool2d(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 4, 4)
    (input_zp, _), (output_zp, _) = _zero_point(g, x.dtype), _zero_point(g, x.dtype)
    g.add(
        "AVG_POOL2D",
        x.tensor,
        input_zp.tensor,
        output_zp.tensor,
        acc_type=_acc(row),
        **_pool_window(g, x),
    )


def grow_max_pool2d(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 4, 4)
    g.add("MAX_POOL2D", x.tensor, like=[x], **_pool_window(g, x))


def _pool_window(g: Growth, x: Value) -> dict[str, Any]:
    kernel, stride, pad = [], [], []
    for size in x.shape[1:3]:
        k = g.random.randint(1, min(size + 2, 5))
        before, after = (g.random.randint(0, k - 1) for _ in range(2))
        after = max(after, k - size - before)
        kernel.append(k)
        pad += [before, after]
        stride.append(_divisor(g, size + before + after - k))
    return {"kernel": tuple(kernel), "stride": tuple(stride), "pad": tuple(pad)}


def _divisor(g: Growth, span: int) -> int:
    """A stride whose last window ends exactly at the end of a span."""
    return g.random.choice([n for n in range(1, max(span, 3) + 1) if span % n == 0])


def grow_conv(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    """CONV2D and CONV3D."""
    rank = 5 if operator.name == "CONV3D" else 4
    x = g.at_rank(x, rank, rank)
    kernel, attributes = _conv_window(g, x)
    outputs = g.random.randint(1, 3)
    weight = _weight(g, row, (outputs, *kernel, x.shape[-1]))
    _convolve(g, operator, row, x, weight, outputs, attributes)


def grow_depthwise_conv2d(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 4, 4)
    kernel, attributes = _conv_window(g, x)
    multiplier = g.random.randint(1, 2)
    weight = _weight(g, row, (*kernel, x.shape[-1], multiplier))
    _convolve(g, operator, row, x, weight, x.shape[-1] * multiplier, attributes)


def grow_transpose_conv2d(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 4, 4)
    kernel, stride, pad = [], [], []
    for size in x.shape[1:3]:
        k = g.random.randint(1, 4)
        step = g.random.randint(1, 3) if size < 5 else 1
        before, after = (g.random.randint(1 - k, 2) for _ in range(2))
        after = max(after, 1 - ((size - 1) * step + before + k))
        kernel.append(k)
        stride.append(step)
        pad += [before, after]
    outputs = g.random.randint(1, 2)
    weight = _weight(g, row, (outputs, *kernel, x.shape[-1]))
    attributes = {"out_pad": tuple(pad), "stride": tuple(stride)}
    _convolve(g, operator, row, x, weight, outputs, attributes)


def _conv_window(g: Growth, x: Value) -> tuple[list[int], dict[str, Any]]:
    kernel, stride, dilation, pad = [], [], [], []
    for size in x.shape[1:-1]:
        k, step = g.random.randint(1, 3), g.random.choice([1, 1, 2, 3])
        before, after = (g.random.choice([0, 0, 1, 2, 3]) for _ in range(2))
        span = size - 1 + before + after - (k - 1) * step
        after, span = after + max(-span, 0), max(span, 0)
        kernel.append(k)
        dilation.append(step)
        pad += [before, after]
        stride.append(_divisor(g, span))
    return kernel, {"pad": tuple(pad), "stride": tuple(stride), "dilation": tuple(dilation)}


def _weight(g: Growth, row: TypeRow, shape: tuple[int, ...]) -> Value:
    dtype = row.types["weight_t"]
    assert isinstance(dtype, DType)
    return g.leaf(dtype, shape, constant=0.8)


def _convolve(
    g: Growth,
    operator: Operator,
    row: TypeRow,
    x: Value,
    weight: Value,
    channels: int,
    attributes: dict[str, Any],
) -> None:
    out = _out(operator, row)
    (input_zp, x_zp), (weight_zp, w_zp) = _zero_point(g, x.dtype), _zero_point(g, weight.dtype)
    length = g.random.choice([1, channels])
    low = high = None
    if out.is_integer:
        most = weight.size * _largest(x, x_zp) * _largest(weight, w_zp)
        low, high = out.minimum + most, out.maximum - most
    bias = g.leaf(out, (length,), low, high, constant=0.8)
    operands = (v.tensor for v in (x, weight, bias, input_zp, weight_zp))
    g.add(operator.name, *operands, dtypes=[out], acc_type=_acc(row), **attributes)


def grow_matmul(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 3, 3)
    n, height, c = x.shape
    width = g.random.randint(1, max(min(5, LARGEST // max(n * height, n * c)), 1))
    found = [v for v in g.values if v.dtype is x.dtype and v.shape[:2] == (n, c)]
    found = [v for v in found if len(v.shape) == 3 and n * height * v.shape[2] <= LARGEST]
    other = g.random.choice(found) if found else g.leaf(x.dtype, (n, c, width))
    (a_zp, a), (b_zp, b) = _zero_point(g, x.dtype), _zero_point(g, x.dtype)
    most = c * _largest(x, a) * _largest(other, b) if x.dtype.is_integer else None
    operands = (v.tensor for v in (x, other, a_zp, b_zp))
    low = None if most is None else -most
    g.add("MATMUL", *operands, dtypes=[_out(operator, row)], low=low, high=most)


def grow_matmul_t(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    """MATMUL_T by a leaf, of one matrix or of one for each batch."""
    x = g.at_rank(x, 3, 3)
    n, height, c = x.shape
    width = g.random.randint(1, max(min(5, LARGEST // max(n * height, n * c)), 1))
    b_type = row.types["b_t"]
    assert isinstance(b_type, DType)
    other = g.leaf(b_type, (g.random.choice([1, n]), width, c))
    (a_zp, a), (b_zp, b) = _zero_point(g, x.dtype), _zero_point(g, b_type)
    most = c * _largest(x, a) * _largest(other, b) if x.dtype.is_integer else None
    operands = (v.tensor for v in (x, other, a_zp, b_zp))
    low = None if most is None else -most
    g.add("MATMUL_T", *operands, dtypes=[_out(operator, row)], low=low, high=most)


def grow_fft(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    """FFT2D and RFFT2D, of sizes that are powers of two."""
    sizes = [g.random.choice([1, 2, 4, 8]) for _ in range(2)]
    shape = (g.random.randint(1, 3), *sizes)
    x = x if x.shape == shape else g.leaf(x.dtype, shape)
    if operator.name == "RFFT2D":
        g.add("RFFT2D", x.tensor)
        return
    found = [v for v in g.values if v.dtype is x.dtype and v.shape == shape]
    other = g.random.choice([*found, g.leaf(x.dtype, shape)])
    g.add("FFT2D", x.tensor, other.tensor, inverse=g.random.random() < 0.5)


# Activation functions.


def grow_activation(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add(operator.name, x.tensor)


def grow_clamp(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    drawn = g.leaf(x.dtype, (7,), constant=1.0).tensor.values
    assert drawn is not None
    if x.dtype.is_integer:
        low, high = sorted(g.random.sample(list(drawn), 2))
        limits = [min(max(v, int(low)), int(high)) for v in (x.least, x.most)]
        g.add("CLAMP", x.tensor, min_val=low, max_val=high, low=limits[0], high=limits[1])
        return
    numbers = drawn[~np.isnan(float_bounds.widen(drawn))]
    numbers = numbers if numbers.size else np.zeros(1, drawn.dtype)
    low, high = sorted(g.random.choices(list(numbers), k=2))
    g.add("CLAMP", x.tensor, min_val=low, max_val=high)


# Elementwise operators.


def grow_elementwise_binary(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    operands = [x.tensor, g.partner(x).tensor]
    g.random.shuffle(operands)
    g.add(operator.name, *operands)


def grow_add(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    if x.dtype.is_float:
        return grow_elementwise_binary(g, operator, row, x)
    assert x.low is not None
    assert x.high is not None
    y = g.partner(x, _INT32.minimum - np.minimum(x.low, 0), _INT32.maximum - np.maximum(x.high, 0))
    g.add("ADD", x.tensor, y.tensor, low=x.least + y.least, high=x.most + y.most)


def grow_sub(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    if x.dtype.is_float:
        return grow_elementwise_binary(g, operator, row, x)
    assert x.low is not None
    assert x.high is not None
    y = g.partner(
        x, np.maximum(x.high, -1) - _INT32.maximum, np.minimum(x.low, -1) - _INT32.minimum
    )
    g.add("SUB", x.tensor, y.tensor, low=x.least - y.most, high=x.most - y.least)


def grow_arithmetic_right_shift(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    y = _shift_amount(g, x)
    low, high = min(x.least, 0), max(x.most, 0)
    round = g.random.random() < 0.5
    g.add(operator.name, x.tensor, y.tensor, round=round, low=low, high=high)


def grow_logical_left_shift(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add(operator.name, x.tensor, _shift_amount(g, x).tensor)


grow_logical_right_shift = grow_logical_left_shift


def _shift_amount(g: Growth, x: Value) -> Value:
    most = x.dtype.bits - 1
    y = g.partner(x)
    if y.least >= 0 and y.most <= most:
        return y
    if g.random.random() < 0.5:
        return g.leaf(x.dtype, g.broadcastable(x.shape), 0, most)
    mask = g.hold(np.full((1,) * len(y.shape), most), x.dtype)
    return g.add("BITWISE_AND", y.tensor, mask.tensor, low=0, high=most)


def grow_intdiv(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    y = g.partner(x)
    if g.random.random() < 0.5:
        values = np.asarray(g.leaf(_INT32, g.broadcastable(x.shape), constant=1).tensor.values)
        values = np.where((values == 0) | ((values == -1) & (x.least == _INT32.minimum)), 1, values)
        y = g.hold(values, _INT32, constant=0.5)
    elif y.least <= 0 <= y.most or (y.least <= -1 <= y.most and x.least == _INT32.minimum):
        one = g.hold(np.ones((1,) * len(y.shape)), _INT32)
        y = g.add("MAXIMUM", y.tensor, one.tensor, low=max(y.least, 1), high=max(y.most, 1))
    most = _largest(x)
    g.add("INTDIV", x.tensor, y.tensor, low=-most, high=most)


def grow_maximum(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    y = g.partner(x)
    g.add(operator.name, x.tensor, y.tensor, like=[x, y] if x.dtype.is_integer else [])


grow_minimum = grow_maximum


def grow_mul(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    shift, low, high = 0, None, None
    if x.dtype is _INT32:
        shift = g.random.choice([0, 0, 1, 2, 30, 31, 32, 33, 62, 63, g.random.randint(0, 63)])
        # Without a shift only the low bits of the product count.
        most = (_INT32.maximum << shift) // max(_largest(x), 1)
        low, high = (
            (-min(most, -_INT32.minimum), min(most, _INT32.maximum)) if shift else (None,) * 2
        )
    y = g.partner(x, low, high)
    range_low = range_high = None
    if x.dtype.is_integer and shift == 0:
        most = _largest(x) * _largest(y)
        range_low, range_high = (-most, most) if most <= _INT32.maximum else (None, None)
    count = g.hold([shift], DType.INT8)
    operands = (x.tensor, y.tensor, count.tensor)
    g.add("MUL", *operands, low=range_low, high=range_high)


def grow_pow(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    """A base of at least 0, and an exponent above 0 if the base may be 0."""
    base = g.random.choice([0.0, 2.0**-3, 1.0])
    wide = float_bounds.normal_max(x.dtype.storage)
    x = g.finite(x, base, g.random.choice([1.0, 16.0, wide]))
    least = -g.random.choice([1.0, 8.0, wide]) if base else 0.25
    y = g.finite(g.partner(x), least, wide)
    g.add("POW", x.tensor, y.tensor)


def grow_table(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    size = row.types["TABLE_SIZE"]
    assert isinstance(size, int)
    low = high = None
    if x.dtype is DType.INT16:
        # The difference of neighbours must fit int16.
        low = g.random.choice([-(1 << 15), -(1 << 14), 0])
        high = low + DType.INT16.maximum
    g.add("TABLE", x.tensor, g.leaf(x.dtype, (size,), low, high, constant=0.85).tensor)


def grow_elementwise_unary(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add(operator.name, x.tensor)


def grow_abs(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    if x.dtype.is_float:
        return grow_elementwise_unary(g, operator, row, x)
    x = _above_minimum(g, x)
    g.add("ABS", x.tensor, low=0, high=_largest(x))


def grow_clz(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add("CLZ", x.tensor, low=0, high=32)


def grow_negate(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = _above_minimum(g, x) if x.dtype is _INT32 else x
    (input_zp, _), (output_zp, _) = _zero_point(g, x.dtype), _zero_point(g, x.dtype)
    g.add("NEGATE", x.tensor, input_zp.tensor, output_zp.tensor)


def _above_minimum(g: Growth, x: Value) -> Value:
    """int32 without the minimum, whose negative does not fit."""
    if x.least > _INT32.minimum:
        return x
    least = g.hold(np.full((1,) * len(x.shape), _INT32.minimum + 1), _INT32)
    low, high = (max(v, _INT32.minimum + 1) for v in (x.least, x.most))
    return g.add("MAXIMUM", x.tensor, least.tensor, low=low, high=high)


def grow_elementwise_ternary(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    y = g.partner(x)
    joined = tuple(max(a, b) for a, b in zip(x.shape, y.shape, strict=True))
    found = [v for v in g.values if v.dtype is DType.BOOL and v.shape == joined]
    condition = g.random.choice([*found, g.leaf(DType.BOOL, g.broadcastable(joined))])
    like = [] if x.dtype is DType.BOOL else [x, y]
    operands = (condition.tensor, x.tensor, y.tensor)
    g.add("SELECT", *operands, like=like)


def grow_comparison(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add(operator.name, x.tensor, g.partner(x).tensor)


# Reductions.


def grow_reduction(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    axis = g.random.randrange(len(x.shape))
    like = [x] if operator.name in ("REDUCE_MAX", "REDUCE_MIN") else []
    g.add(operator.name, x.tensor, axis=axis, like=like)


def grow_reduce_sum(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    if x.dtype.is_float:
        return grow_reduction(g, operator, row, x)
    x = g.at_rank(x, 1)
    axis = g.random.randrange(len(x.shape))
    count = x.shape[axis]
    if _largest(x) * count > _INT32.maximum:
        bits = count.bit_length()
        shift = g.hold(np.full((1,) * len(x.shape), bits), _INT32)
        low, high = x.least >> bits, x.most >> bits
        operands = (x.tensor, shift.tensor)
        x = g.add("ARITHMETIC_RIGHT_SHIFT", *operands, round=False, low=low, high=high)
    g.add("REDUCE_SUM", x.tensor, axis=axis, low=x.least * count, high=x.most * count)


# Data layout.


def grow_concat(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    axis = g.random.randrange(len(x.shape))
    parts = [x]
    for _ in range(g.random.randint(0, 3)):
        dims = list(x.shape)
        dims[axis] = g.random.randint(1, 3)
        found = [v for v in g.values if v.dtype is x.dtype and v.shape == x.shape]
        part = g.random.choice([*found, g.leaf(x.dtype, dims)])
        if sum(v.size for v in parts) + part.size <= LARGEST:
            parts.append(part)
    g.random.shuffle(parts)
    g.add("CONCAT", *(v.tensor for v in parts), axis=axis, like=parts)


def grow_pad(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    padding = [0] * (2 * len(x.shape))
    for _ in range(g.random.randint(0, 4)):
        wider = list(padding)
        wider[g.random.randrange(len(padding))] += g.random.randint(1, 2)
        dims = zip(x.shape, wider[0::2], wider[1::2], strict=True)
        padding = wider if math.prod(sum(d) for d in dims) <= LARGEST else padding
    constant = g.leaf(x.dtype, (1,), constant=0.85)
    operands = (x.tensor, g.builder.const_shape(padding), constant.tensor)
    g.add("PAD", *operands, like=[x, constant])


def grow_reshape(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    if x.size == 1 and g.random.random() < 0.5:
        g.reshape(x, ())
        return
    other = 1 + len(x.shape) % 6
    g.at_rank(x, other, other)


def grow_reverse(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    g.add("REVERSE", x.tensor, axis=g.random.randrange(len(x.shape)), like=[x])


def grow_slice(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    start = [g.random.randrange(dim) for dim in x.shape]
    size = [g.random.randint(1, dim - s) for dim, s in zip(x.shape, start, strict=True)]
    shapes = (g.builder.const_shape(start), g.builder.const_shape(size))
    g.add("SLICE", x.tensor, *shapes, like=[x])


def grow_tile(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    multiples = [1] * len(x.shape)
    for _ in range(g.random.randint(1, 3)):
        axis, times = g.random.randrange(len(multiples)), g.random.randint(2, 3)
        if x.size * math.prod(multiples) * times <= LARGEST:
            multiples[axis] *= times
    g.add("TILE", x.tensor, g.builder.const_shape(multiples), like=[x])


def grow_transpose(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 1)
    perms = tuple(g.random.sample(range(len(x.shape)), len(x.shape)))
    g.add("TRANSPOSE", x.tensor, perms=perms, like=[x])


def grow_data_nodes(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    g.add(operator.name, x.tensor, like=[x])


# Scatter and gather.


def grow_gather(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 3, 3)
    n, k, c = x.shape
    width = g.random.randint(1, max(min(6, LARGEST // (n * c)), 1))
    indices = _indices(g, (n, width), k)
    g.add("GATHER", x.tensor, indices.tensor, like=[x])


def _indices(g: Growth, shape: tuple[int, ...], count: int) -> Value:
    """Numbers below `count`: a leaf, or the result of two operators for any int32."""
    if g.random.random() < 0.6:
        return g.leaf(_INT32, shape, 0, count - 1)
    found = [v for v in g.values if v.dtype is _INT32 and v.shape == shape]
    x = g.random.choice([*found, g.leaf(_INT32, shape)])
    least, most = (g.hold(np.full((1, 1), v), _INT32) for v in (0, count - 1))
    x = g.add("MAXIMUM", x.tensor, least.tensor, low=0)
    return g.add("MINIMUM", x.tensor, most.tensor, low=0, high=count - 1)


def grow_scatter(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    x = g.at_rank(x, 3, 3)
    n, k, c = x.shape
    width = g.random.randint(1, k)
    chosen = [g.random.sample(range(k), width) for _ in range(n)]
    indices = g.hold(np.array(chosen).reshape(n, width), _INT32, constant=0.5)
    found = [v for v in g.values if v.dtype is x.dtype and v.shape == (n, width, c)]
    source = g.random.choice([*found, g.leaf(x.dtype, (n, width, c))])
    g.add("SCATTER", x.tensor, indices.tensor, source.tensor, like=[x, source])


# Image operators.


def grow_image(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    """RESIZE."""
    x = g.at_rank(x, 4, 4)
    n, *sizes, c = x.shape
    axes = [_resize_axis(g, size, n * c * sizes[1 - i]) for i, size in enumerate(sizes)]
    if math.prod(x.shape[::3]) * axes[0][4] * axes[1][4] > LARGEST:
        axes = [(1, 1, 0, 0, size) for size in sizes]
    mode = g.random.choice(list(ResizeMode))
    if x.dtype.is_integer:
        mode = ResizeMode.BILINEAR if row.mode.endswith("bilinear") else ResizeMode.NEAREST_NEIGHBOR
    lists = (
        (axes[0][0], axes[0][1], axes[1][0], axes[1][1]),
        (axes[0][2], axes[1][2]),
        (axes[0][3], axes[1][3]),
    )
    shapes = (g.builder.const_shape(values) for values in lists)
    like = [x] if mode is ResizeMode.NEAREST_NEIGHBOR else []
    g.add("RESIZE", x.tensor, *shapes, dtypes=[_out(operator, row)], mode=mode, like=like)


def _resize_axis(g: Growth, size: int, others: int) -> tuple[int, int, int, int, int]:
    """Numerator, denominator, offset and border of one axis, and the resulting size."""
    for _ in range(20):
        numerator = g.random.choice([1, 2, 3, 4, 6, 10, 16, 2048])
        denominator = g.random.randint(1, min(16 * numerator - 1, 8))
        if numerator == 2048:
            denominator = g.random.choice([256, 512, 1024, 2048, 2047])
        offset = g.random.choice([0, 0, -1, -numerator, g.random.randint(-numerator, numerator)])
        border = g.random.choice([0, 0, numerator - 1, g.random.randint(-numerator, numerator - 1)])
        span = (size - 1) * numerator - offset + border
        border, span = border - span % denominator, span - span % denominator
        result = span // denominator + 1
        legal = span >= 0 and border >= -16 * numerator
        if legal and others * result <= LARGEST:
            return numerator, denominator, offset, border, result
    return 1, 1, 0, 0, size


# Type conversion.


def grow_cast(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    out = _out(operator, row)
    if x.dtype.is_float and out.is_integer:
        limit = float_bounds.normal_max(x.dtype.storage)
        x = g.finite(x, -limit, limit)
    integers = x.dtype.is_integer and out.is_integer
    kept = integers and out.minimum <= x.least and x.most <= out.maximum
    g.add("CAST", x.tensor, dtypes=[out], like=[x] if kept else [])


def grow_rescale(g: Growth, operator: Operator, row: TypeRow, x: Value) -> None:
    out = _out(operator, row)
    signs = [(False, False)]
    if x.dtype not in (_INT32, DType.INT48) and out is not _INT32:
        signs += [(True, False), (False, True)]
    input_unsigned, output_unsigned = g.random.choice(signs)
    scale32 = x.dtype is not DType.INT48 and g.random.random() < 0.6
    modes = [m for m in RoundingMode if scale32 or m is not RoundingMode.DOUBLE_ROUND]
    per_channel = bool(x.shape) and g.random.random() < 0.5
    input_zp, in_zp = _scaled_zero_point(g, x.dtype, input_unsigned)
    output_zp, out_zp = _scaled_zero_point(g, out, output_unsigned)
    low, high = (0, (1 << x.dtype.bits) - 1) if input_unsigned else (x.least, x.most)
    most = max(abs(low - in_zp), abs(high - in_zp), 1)
    pairs = [_scale(g, most, out_zp, scale32) for _ in range(x.shape[-1] if per_channel else 1)]
    multiplier = g.hold([m for m, _ in pairs], _INT32 if scale32 else DType.INT16)
    shift = g.hold([s for _, s in pairs], DType.INT8)
    operands = (v.tensor for v in (x, multiplier, shift, input_zp, output_zp))
    g.add(
        "RESCALE",
        *operands,
        dtypes=[out],
        scale32=scale32,
        rounding_mode=g.random.choice(modes),
        per_channel=per_channel,
        input_unsigned=input_unsigned,
        output_unsigned=output_unsigned,
    )


def _scaled_zero_point(g: Growth, dtype: DType, unsigned: bool) -> tuple[Value, int]:
    """A zero point as its bits, and its value."""
    number = 0
    if dtype is DType.INT8:
        low = 0 if unsigned else -128
        number = g.random.choice([low, low + 255, 0, g.random.randint(low, low + 255)])
    if dtype is DType.INT16 and unsigned:
        number = g.random.choice([0, 1 << 15])
    bits = number - (1 << dtype.bits) if number > dtype.maximum else number
    return g.hold([bits], dtype), number


def _scale(g: Growth, most: int, out_zp: int, scale32: bool) -> tuple[int, int]:
    """Multiplier and shift under which values up to `most` and the zero point fit int32."""
    least = max(most.bit_length() + 1, 2) if scale32 else 2
    near = [s for s in (2, 14, 15, 30, 31, 32, 33, 47, 61, 62) if s >= least]
    shift = g.random.choice([least, g.random.randint(least, 62), *near])
    largest = (1 << 31) - 1 if scale32 else (1 << 15) - 1
    room = _INT32.maximum - abs(out_zp) - 4
    largest = min(largest, (room << shift) // most)
    one = 1 << min(shift, 30 if scale32 else 14)
    chosen = g.random.choice([largest, g.random.randint(0, largest), one, 1, 0])
    return min(chosen, largest), shift
