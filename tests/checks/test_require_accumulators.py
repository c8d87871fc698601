"""Run-time rules of sums: convolutions, MATMUL, MATMUL_T, AVG_POOL2D, REDUCE_SUM.

Against Python integers.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import conv_oracle
from oracle.device import to_device
from oracle.required import check, fits, terms, wrap

from tosajax.checks.require import conv, pool, products, reduction
from tosajax.checks.require._common import sum_overflows
from tosajax.dtypes import DType
from tosajax.report import UnsupportedError

pytestmark = pytest.mark.usefixtures("quick")

RNG = np.random.default_rng(1)
MAX32, MAX48 = 2**31 - 1, 2**47 - 1
# Just legal, then just illegal, on either side.
LIMITS32 = (MAX32, MAX32 + 1, -MAX32 - 1, -MAX32 - 2)
LIMITS48 = (MAX48, MAX48 + 1, -MAX48 - 1, -MAX48 - 2)


def _summands(total, length):
    """int32 numbers with this sum; partial sums overflow and come back."""
    values = RNG.integers(-(2**31), 2**31 - 1, length, endpoint=True).tolist()
    while not -(2**31) <= total - sum(values[1:]) < 2**31:
        rest = total - sum(values)
        i = int(RNG.integers(length))
        values[i] = min(max(values[i] + rest, -(2**31)), 2**31 - 1)
    values[0] = total - sum(values[1:])
    return RNG.permutation(np.array(values))


@pytest.mark.parametrize("length", [2, 3, 15, 16, 32767, 32768])
def test_reduce_sum_at_the_limits(length):
    totals = [*LIMITS32, 0, 2**32, -(2**32), 2**32 - 1, -(2**32) + 1]
    totals = [t for t in totals if abs(t) <= length * 2**31 - length]
    rows = np.array([_summands(total, length) for total in totals]).astype(np.int32)
    assert [sum(row) for row in rows.tolist()] == totals
    wanted = [{"r1": not fits(total, 32)} for total in totals]
    check(reduction.reduce_sum_require, (rows,), wanted, axis=0)


@pytest.mark.parametrize("value", [-(2**31), 2**31 - 1, -1, 1])
def test_reduce_sum_of_equal_extremes(value):
    for length in (2, 2**15 - 1, 2**15, 2**16, 2**19):
        x = jnp.full((1, length), value, jnp.int32)
        found = reduction.reduce_sum_require(x, axis=1)
        assert bool(found["r1"]) == (not fits(value * length, 32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reduce_sum_axes(axis):
    x = RNG.integers(-(2**31), 2**31, (40, 2, 3, 2)).astype(np.int32)
    x[::2] //= 3
    sums = x.astype(object).sum(axis=1 + axis).reshape(40, -1)
    wanted = [{"r1": any(not fits(s, 32) for s in row)} for row in sums]
    assert {w["r1"] for w in wanted} == {False, True}
    check(reduction.reduce_sum_require, (x,), wanted, axis=axis)


def test_reduce_sum_of_a_column():
    for value, wanted in ((2**30 - 1, False), (2**30, True)):
        x = jnp.full((2, 1), value, jnp.int32)
        assert bool(reduction.reduce_sum_require(x, axis=0)["r1"]) == wanted


def test_reduce_sum_without_rules():
    assert reduction.reduce_sum_require(jnp.ones((3, 1), jnp.int32), axis=1) == {}
    assert reduction.reduce_sum_require(jnp.ones((3, 2), jnp.float32), axis=1) == {}


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("width", [9, 16, 32])
def test_digits(width, sign):
    """Sums of equal values: every size of digits, with gains that fill them and that do not."""
    info = np.iinfo(np.int32)
    low = -(1 << (width - 1))
    for bits in range(max(32 - width, 1), 31):
        for gain in (1 << (bits - 1), (1 << bits) - 1):
            near = [limit // gain + d for limit in (info.min, info.max) for d in (-1, 0, 1, 2)]
            values = [low, low + 1, -1, 0, 1, -low - 2, -low - 1, *near, *(-n for n in near)]
            values = np.array([v for v in values if low <= v < -low], np.int32)
            coefficient = np.int32(sign * gain)
            traced, sums = jax.device_put(values), lambda x, c=coefficient: x * c
            found = sum_overflows(sums, traced, gain=gain, width=width)
            wanted = [not fits(int(v) * sign * gain, 32) for v in values]
            np.testing.assert_array_equal(found, wanted, f"{gain} times {values}")


def test_sums_that_are_too_long_say_so():
    x = jax.ShapeDtypeStruct((2**30,), jnp.int32)
    with pytest.raises(UnsupportedError, match="1073741824"):
        jax.eval_shape(functools.partial(reduction.reduce_sum_require, axis=0), x)


def _int8_operands(total):
    """Two rows of int8 and their zero points, with a dot product of `total`."""
    a, b = terms(total, 255 if total > 0 else -255, 255)
    a_zp, b_zp = (-128 if total > 0 else 127), -128
    return (
        (a + a_zp).astype(np.int8),
        (b + b_zp).astype(np.int8),
        np.array([a_zp], np.int8),
        np.array([b_zp], np.int8),
    )


def _same_length(rows, fill):
    """Rows filled up at the end, each with its own value."""
    length = max(map(len, rows))
    return np.stack(
        [
            np.concatenate([row, np.full(length - len(row), f, row.dtype)])
            for row, f in zip(rows, fill, strict=True)
        ]
    )


def _int8_limits():
    """The rows of `_int8_operands` for each limit: [4, n], [4, n], [4, 1], [4, 1]."""
    a, b, a_zp, b_zp = zip(*map(_int8_operands, LIMITS32), strict=True)
    zps = np.stack(a_zp), np.stack(b_zp)
    rows = [_same_length(x, zp.ravel()) for x, zp in zip((a, b), zps, strict=True)]
    dots = [
        sum(((x.astype(object) - z.item()) * (y.astype(object) - w.item())).tolist())
        for x, y, z, w in zip(*rows, *zps, strict=True)
    ]
    assert dots == list(LIMITS32)
    return *rows, *zps


WANTED_AT_LIMITS = [{"r1": not fits(total, 32)} for total in LIMITS32]


def test_matmul_int8_at_the_limits():
    a, b, a_zp, b_zp = _int8_limits()
    # One of several results.
    a = np.stack([np.full_like(a, a_zp), a], axis=1)[:, None]
    b = np.stack([b, np.full_like(b, b_zp), np.full_like(b, b_zp)], axis=-1)[:, None]
    inputs = a, b, a_zp, b_zp
    check(products.matmul_require, inputs, WANTED_AT_LIMITS, out_type=DType.INT32)
    inputs = a, b[..., ::-1].swapaxes(-1, -2), a_zp, b_zp
    check(products.matmul_t_require, inputs, WANTED_AT_LIMITS, out_type=DType.INT32)
    # One matrix for two batches, in the second of which sums are the zero point's.
    inputs = np.concatenate([a, np.full_like(a, 0) + a_zp[:, :, None, None]], axis=1), *inputs[1:]
    check(products.matmul_t_require, inputs, WANTED_AT_LIMITS, out_type=DType.INT32)


def test_matmul_int16_at_the_limits():
    pairs = [terms(t, 32767 if t > 0 else -32768, 32767) for t in LIMITS48]
    a, b = (_same_length(rows, [0] * 4).astype(np.int16) for rows in zip(*pairs, strict=True))
    sums = (a.astype(np.int64) * b.astype(np.int64)).sum(axis=1)
    assert sums.tolist() == list(LIMITS48)
    zp = np.zeros(1, np.int16)
    wanted = [{"r1": not fits(total, 48)} for total in LIMITS48]
    inputs = a[:, None, None], b[:, None, :, None], zp, zp
    check(products.matmul_require, inputs, wanted, shared=(2, 3), out_type=DType.INT48)
    inputs = a[:, None, None], b[:, None, None], zp, zp
    check(products.matmul_t_require, inputs, wanted, shared=(2, 3), out_type=DType.INT48)


def _rules(require, *shapes, **attributes):
    """The rules that some value of these shapes and types may break."""
    with jax.enable_x64(True):
        inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
        return set(jax.eval_shape(functools.partial(require, **attributes), *inputs))


@pytest.mark.parametrize(
    ("dtype", "out_type", "longest"),
    [
        (jnp.int8, DType.INT32, MAX32 // 255**2),
        (jnp.int16, DType.INT48, MAX48 // 2**30),
        (jnp.float32, DType.FP32, 10**9),
    ],
)
def test_matmul_rules(dtype, out_type, longest):
    for length, wanted in ((longest, set()), (longest + 1, {"r1"})):
        shapes = (1, 1, length), (1, length, 1), (1,), (1,)
        found = _rules(products.matmul_require, *((s, dtype) for s in shapes), out_type=out_type)
        assert found == (set() if out_type.is_float else wanted)
        shapes = (2, 1, length), (1, 1, length), (1,), (1,)
        found = _rules(products.matmul_t_require, *((s, dtype) for s in shapes), out_type=out_type)
        assert found == (set() if out_type.is_float else wanted)


CONVOLUTIONS = {
    "conv2d": (
        (2, 4, 5, 3),
        (2, 3, 2, 3),
        {"pad": (1, 1, 2, 1), "stride": (1, 2), "dilation": (1, 3)},
    ),
    "conv3d": (
        (1, 3, 4, 3, 2),
        (3, 2, 2, 1, 2),
        {"pad": (0, 1, 1, 0, 0, 0), "stride": (1, 1, 2), "dilation": (2, 1, 1)},
    ),
    "depthwise_conv2d": (
        (2, 5, 4, 3),
        (3, 2, 3, 2),
        {"pad": (1, 1, 0, 1), "stride": (2, 1), "dilation": (1, 2)},
    ),
    "transpose_conv2d": ((1, 3, 2, 2), (3, 3, 2, 2), {"out_pad": (-1, 2, 1, 0), "stride": (2, 3)}),
}
each = pytest.mark.parametrize("name", CONVOLUTIONS)


def _sums(name, x, weight, x_zp, weight_zp, **attributes):
    oracle = {
        "depthwise_conv2d": conv_oracle.depthwise,
        "transpose_conv2d": conv_oracle.transpose,
    }.get(name, conv_oracle.conv)
    wide = x.astype(object), weight.astype(object), 0, int(x_zp), int(weight_zp)
    return oracle(*wide, **attributes)


def _conv_flags(sums, bias, bits, *, both):
    """From sums [N, ..., OC] of Python integers."""
    r1 = any(not fits(s, bits) for s in sums.ravel())
    totals = sums + bias.astype(object)
    r2 = any(
        not fits(wrap(s, bits) + t - s, bits)
        for s, t in zip(sums.ravel(), totals.ravel(), strict=True)
    )
    return {"r1": r1, "r2": r2} if both else {"r2": r2}


def check_each(require, examples, wanted, **attributes):
    """The flags of every example by itself, in one program: `check` compiles three."""
    flags = jax.jit(functools.partial(require, **attributes))
    for at, (inputs, want) in enumerate(zip(examples, wanted, strict=True)):
        found = flags(*map(to_device, inputs))
        assert {rule: bool(flag) for rule, flag in found.items()} == want, at


def check_batch(require, inputs, wanted, *, shared, **attributes):
    """The flags of all examples at once, in one program."""
    axes = tuple(None if n in shared else 0 for n in range(len(inputs)))
    found = jax.jit(jax.vmap(functools.partial(require, **attributes), axes))(
        *map(to_device, inputs)
    )
    flags = {rule: np.asarray(flag).tolist() for rule, flag in found.items()}
    assert flags == {rule: [want[rule] for want in wanted] for rule in wanted[0]}


@each
@pytest.mark.parametrize(("wide", "per_channel"), [(False, False), (False, True), (True, True)])
def test_bias(name, wide, per_channel):
    """A bias with which the largest or the smallest sum just fits, and just does not."""
    shape, weight_shape, attributes = CONVOLUTIONS[name]
    in_type, bits, out_type = (np.int16, 48, np.int64) if wide else (np.int8, 32, np.int32)
    limit = 1 << (bits - 1)
    info = np.iinfo(in_type)
    x = RNG.integers(info.min, info.max, shape, endpoint=True).astype(in_type)
    weight = RNG.integers(-128, 127, weight_shape, endpoint=True).astype(np.int8)
    x_zp, weight_zp = np.array([0 if wide else -128], in_type), np.array([127], np.int8)
    sums = _sums(name, x, weight, x_zp[0], weight_zp[0], **attributes)
    channels = sums.shape[-1]
    columns = sums.reshape(-1, channels)
    biases = []
    for channel in range(channels) if per_channel else (None,):
        column = columns if channel is None else columns[:, channel]
        high, low = limit - 1 - int(column.max()), -limit - int(column.min())
        for extreme in (0, high, high + 1, low, low - 1, limit - 1, -limit):
            if fits(extreme, bits):
                bias = np.zeros(channels if per_channel else 1, out_type)
                bias[channel or 0] = extreme
                biases.append(bias)
    wanted = [_conv_flags(sums, bias, bits, both=False) for bias in biases]
    assert {w["r2"] for w in wanted} == {False, True}
    require = getattr(conv, f"{name}_require")
    acc_type = DType.INT48 if wide else DType.INT32
    examples = [(x, weight, bias, x_zp, weight_zp) for bias in biases]
    check_each(require, examples, wanted, acc_type=acc_type, **attributes)


@each
@pytest.mark.parametrize("wide", [False, True])
def test_bias_of_a_batch_of_inputs(name, wide):
    """Inputs of which some make the sum overflow with one bias, and zero points of their own."""
    shape, weight_shape, attributes = CONVOLUTIONS[name]
    in_type, bits, out_type = (np.int16, 48, np.int64) if wide else (np.int8, 32, np.int32)
    info = np.iinfo(in_type)
    x = RNG.integers(info.min, info.max, (12, *shape), endpoint=True).astype(in_type)
    weight = RNG.integers(-128, 127, weight_shape, endpoint=True).astype(np.int8)
    x_zp = np.zeros((12, 1), in_type)
    if not wide:
        x_zp[:, 0] = RNG.integers(-128, 127, 12, endpoint=True)
    weight_zp = np.array([-3], np.int8)
    sums = [
        _sums(name, v, weight, z[0], weight_zp[0], **attributes)
        for v, z in zip(x, x_zp, strict=True)
    ]
    middle = sorted(int(s.max()) for s in sums)[6]
    bias = np.array([(1 << (bits - 1)) - middle], out_type)
    wanted = [_conv_flags(s, bias, bits, both=False) for s in sums]
    assert {w["r2"] for w in wanted} == {False, True}
    inputs = x, weight, bias, x_zp, weight_zp
    require, acc_type = getattr(conv, f"{name}_require"), DType.INT48 if wide else DType.INT32
    check_batch(require, inputs, wanted, shared=(1, 2, 4), acc_type=acc_type, **attributes)


@pytest.mark.parametrize("side", range(4))
def test_transpose_conv2d_crops(side):
    """Only the row or column that a negative out_pad takes away has too large a sum."""
    weight = np.ones((1, 3, 3, 1), np.int8)
    weight[0, *[(0, slice(None)), (2, slice(None)), (slice(None), 0), (slice(None), 2)][side]] = 100
    x, zp = np.full((1, 1, 1, 1), 100, np.int8), np.zeros(1, np.int8)
    inputs = x, weight, np.array([MAX32 - 100], np.int32), zp, zp
    attributes = {"stride": (1, 1), "acc_type": DType.INT32}
    for crop in (0, -1):
        pad = tuple(crop * (i == side) for i in range(4))
        require, wanted = conv.transpose_conv2d_require, [{"r2": crop == 0}]
        check_each(require, [inputs], wanted, out_pad=pad, **attributes)


@each
def test_int8_products_at_the_limits(name):
    a, b, a_zp, b_zp = _int8_limits()
    count, length = a.shape
    ones, zeros = (1, 1), (0, 0, 0, 0)
    attributes = {"pad": zeros, "stride": ones, "dilation": ones}
    if name == "conv3d":
        attributes = {"pad": (*zeros, 0, 0), "stride": (1, 1, 1), "dilation": (1, 1, 1)}
        x, weight = a.reshape(count, 1, 1, 1, 1, length), b.reshape(count, 1, 1, 1, 1, length)
    elif name == "depthwise_conv2d":
        # Every tap is one product.
        height, width = 182, -(-length // 182)
        fill = height * width - length
        a = np.concatenate([a, np.repeat(a_zp, fill, axis=1)], axis=1)
        b = np.concatenate([b, np.repeat(b_zp, fill, axis=1)], axis=1)
        x, weight = a.reshape(count, 1, height, width, 1), b.reshape(count, height, width, 1, 1)
    else:
        x, weight = a.reshape(count, 1, 1, 1, length), b.reshape(count, 1, 1, 1, length)
    if name == "transpose_conv2d":
        attributes = {"out_pad": zeros, "stride": ones}
    # The bias brings the sum back into the range, or just out of it.
    biases = np.array([[-1], [-1], [1], [0]], np.int32)
    wanted = [
        {**flag, "r2": not fits(wrap(total, 32) + int(bias), 32)}
        for flag, total, bias in zip(WANTED_AT_LIMITS, LIMITS32, biases.ravel(), strict=True)
    ]
    assert [w["r2"] for w in wanted] == [False, True, False, False]
    inputs = x, weight, biases, a_zp, b_zp
    require = getattr(conv, f"{name}_require")
    check(require, inputs, wanted, acc_type=DType.INT32, **attributes)


def test_products_of_many_taps_and_channels():
    """Sums beyond int32 in some places only, over a kernel with strides and padding."""
    x = RNG.integers(-128, -100, (6, 1, 4, 3, 7000)).astype(np.int8)
    x[::2] //= 4
    weight = RNG.integers(-128, -100, (2, 3, 3, 7000)).astype(np.int8)
    attributes = {"pad": (1, 1, 1, 1), "stride": (1, 2), "dilation": (1, 1)}
    zps = np.array([127], np.int8), np.array([127], np.int8)
    bias = np.array([-5, 7], np.int32)
    wide = weight.astype(np.int64), 0, 127, 127
    sums = [conv_oracle.conv(v.astype(np.int64), *wide, **attributes).astype(object) for v in x]
    wanted = [_conv_flags(s, bias, 32, both=True) for s in sums]
    assert {w["r1"] for w in wanted} == {False, True}
    inputs = x, weight, bias, *zps
    check(
        conv.conv2d_require,
        inputs,
        wanted,
        shared=(1, 2, 3, 4),
        acc_type=DType.INT32,
        **attributes,
    )


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "acc_type", "most"),
    [
        (jnp.int8, jnp.int32, DType.INT32, MAX32 // 255**2),
        (jnp.int16, "int64", DType.INT48, MAX48 // (2**15 * 255)),
    ],
)
def test_convolution_rules(dtype, out_dtype, acc_type, most):
    attributes = {"pad": (0,) * 4, "stride": (1, 1), "dilation": (1, 1), "acc_type": acc_type}
    for channels, wanted in ((most, {"r2"}), (most + 1, {"r1", "r2"})):
        x, weight = ((1, 1, 1, channels), dtype), ((1, 1, 1, channels), jnp.int8)
        rest = ((1,), out_dtype), ((1,), dtype), ((1,), jnp.int8)
        assert _rules(conv.conv2d_require, x, weight, *rest, **attributes) == wanted


@each
def test_float_convolutions_have_none(name):
    shape, weight_shape, attributes = CONVOLUTIONS[name]
    x, weight, one = (jnp.ones(s, jnp.float32) for s in (shape, weight_shape, (1,)))
    require = getattr(conv, f"{name}_require")
    assert require(x, weight, one, one, one, acc_type=DType.FP32, **attributes) == {}


AVERAGE = {"stride": (1, 1), "acc_type": DType.INT32}


@pytest.mark.parametrize("size", [(260, 256), (256, 257), (65793, 1)])
def test_avg_pool2d_int16_at_the_limits(size):
    totals = LIMITS32
    rows = []
    for total in totals:
        value = 32767 if total > 0 else -32768
        count, rest = divmod(abs(total), abs(value))
        row = np.zeros(math.prod(size), np.int16)
        row[:count] = value
        row[count] = rest if total > 0 else -rest
        rows.append(RNG.permutation(row))
    x = np.stack(rows).reshape(4, 1, *size, 1)
    assert [int(v.astype(np.int64).sum()) for v in x] == list(totals)
    zp = np.zeros(1, np.int16)
    wanted = [{"r1": not fits(total, 32)} for total in totals]
    pad = {"kernel": size, "pad": (0, 0, 0, 0)}
    check(pool.avg_pool2d_require, (x, zp, zp), wanted, shared=(1, 2), **pad, **AVERAGE)


@pytest.mark.parametrize("pad", range(4))
def test_avg_pool2d_padding(pad):
    """All rows but the last are too much; with padding before them, a window has just these."""
    rows = np.full((258, 256), 32767, np.int16)
    rows[-1] = -32768
    x = np.stack([rows, rows[::-1]])
    x = x if pad < 2 else x.swapaxes(1, 2)
    wanted = [{"r1": pad % 2 == 0}, {"r1": pad % 2 == 1}]
    zp, pads = np.zeros(1, np.int16), tuple(int(i == pad) for i in range(4))
    inputs = x[:, None, ..., None], zp, zp
    attributes = {"kernel": x.shape[1:], "pad": pads, **AVERAGE}
    check(pool.avg_pool2d_require, inputs, wanted, shared=(1, 2), **attributes)


def test_avg_pool2d_strides():
    """One window is just too large, of all that start at rows 0 to 4 and columns 0 to 6."""
    x = np.zeros((35, 1, 264, 264, 2), np.int16)
    starts = [divmod(i, 7) for i in range(35)]
    for example, (top, left) in zip(x, starts, strict=True):
        example[0, top : top + 260, left : left + 258, 1] = (MAX32 // (260 * 258)) + 1
    zp = np.zeros(1, np.int16)
    wanted = [{"r1": top % 2 == 0 and left % 3 == 0} for top, left in starts]
    attributes = {"kernel": (260, 258), "pad": (0,) * 4, "stride": (2, 3), "acc_type": DType.INT32}
    check(pool.avg_pool2d_require, (x, zp, zp), wanted, shared=(1, 2), **attributes)


def test_avg_pool2d_int8_at_the_limits():
    # All of 255 but for one, which makes it fit.
    size = (2902, 2902)
    full = MAX32 // 255
    zp, out = jnp.full(1, -128, jnp.int8), jnp.zeros(1, jnp.int8)
    require = jax.jit(
        functools.partial(
            pool.avg_pool2d_require,
            kernel=size,
            pad=(0, 0, 0, 0),
            stride=(1, 1),
            acc_type=DType.INT32,
        )
    )
    for rest, wanted in ((MAX32 - 255 * full, False), (MAX32 - 255 * full + 1, True)):
        row = np.full(math.prod(size), -128, np.int8)
        row[:full] = 127
        row[full] = rest - 128
        found = require(jax.device_put(row.reshape(1, *size, 1)), zp, out)
        assert {rule: bool(flag) for rule, flag in found.items()} == {"r1": wanted}


@pytest.mark.parametrize(
    ("dtype", "most"), [(jnp.int8, MAX32 // 255), (jnp.int16, MAX32 // 2**15), (jnp.float32, 0)]
)
def test_avg_pool2d_rules(dtype, most):
    """Only as many elements count as a window has in the input."""
    acc_type = DType.FP32 if dtype == jnp.float32 else DType.INT32
    for size, kernel, wanted in (
        ((1, most), (1, most), set()),
        ((1, most + 1), (1, most), set()),
        ((1, most + 1), (1, most + 1), {"r1"}),
        ((1, most), (2, most), set()),
    ):
        shapes = ((1, *size, 1), dtype), ((1,), dtype), ((1,), dtype)
        attributes = {"kernel": kernel, "pad": (1, 1, 0, 0) if kernel[0] == 2 else (0,) * 4}
        found = _rules(
            pool.avg_pool2d_require, *shapes, **attributes, stride=(1, 1), acc_type=acc_type
        )
        assert found == (set() if acc_type.is_float else wanted)
