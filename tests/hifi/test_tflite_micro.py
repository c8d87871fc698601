"""The kernels that TFLite Micro's operators stand on, compared with these as they run.

Scales are drawn as float32, which TFLite keeps them in; multipliers and shifts follow from them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.hifi_oracle import draw

pytest.importorskip("tflite_micro")
from hifi.tflite_model import Model, Tensor, constant, quantize_multiplier

from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant, SigmoidQuant, SoftmaxQuant

PER_CHAN = "per_chan_sym8sxasym8s"
ZERO_POINTS = [-128, -127, 0, 127]
SAME, VALID = PADDINGS = 0, 1  # as the schema has them
SEEDS = range(4)


def draw_scale(rng, low=2.0**-9, high=2.0**-3, shape=()):
    """Scales of which every third is a power of two, whose multipliers meet ties."""
    scale = np.exp(rng.uniform(np.log(low), np.log(high), shape))
    powers = 2.0 ** np.round(np.log2(scale))
    return np.where(rng.random(shape) < 0.3, powers, scale).astype(np.float32)


def draw_zero_point(rng):
    return int(rng.choice([*ZERO_POINTS, int(rng.integers(-128, 128))]))


def draw_input(rng, shape, dtype=np.int8):
    return Tensor(dtype, shape, draw_scale(rng), draw_zero_point(rng))


def draw_output(rng, shape, deviation):
    """An output whose range is of the size of results, given their deviation."""
    scale = np.float32(deviation * np.exp(rng.uniform(-4.5, -2.5)))
    return Tensor(np.int8, shape, scale, draw_zero_point(rng))


def weights_and_bias(rng, inp, weight_shape, axis, depth, scales):
    """Constants, and the deviation of the sums of `depth` products that they make."""
    weight = constant(draw(rng, np.int8, weight_shape), scales, axis)
    channels = weight_shape[axis]
    size = 2 ** rng.choice([1, 10, 17], channels)
    values = rng.integers(-size, size, channels, endpoint=True).astype(np.int32)
    bias = constant(values, inp.scale * scales)
    return weight, bias, float(np.max(inp.scale * scales)) * 80 * 80 * math.sqrt(depth)


def quant_of(inp, output, scales) -> Quant:
    pairs = [quantize_multiplier(float(s)) for s in np.atleast_1d(scales)]
    multiplier, shift = np.array(pairs, np.int32).T
    if np.ndim(scales) == 0:
        multiplier, shift = multiplier[0], shift[0]
    return Quant(-inp.zero_point, 0, multiplier, shift, output.zero_point)


def double(scale) -> Any:
    return np.asarray(scale, np.float64)


# Sums of products.


@pytest.mark.parametrize("seed", SEEDS)
def test_fully_connected(seed):
    rng = np.random.default_rng(seed)
    depth, out_depth, batch = int(rng.integers(1, 200)), int(rng.integers(1, 40)), 256
    inp = draw_input(rng, (batch, depth))
    weight, bias, size = weights_and_bias(rng, inp, (out_depth, depth), 0, depth, draw_scale(rng))
    out = draw_output(rng, (batch, out_depth), size)
    model = Model("FULLY_CONNECTED", [inp, weight, bias], out, "FullyConnectedOptions")
    # The product of the scales is rounded to float32.
    quant = quant_of(inp, out, double(inp.scale * weight.scale) / double(out.scale))

    @jax.jit
    def kernel(x):
        precision = "sym8sxasym8s_asym8s"
        return kernels.fully_connected(
            weight.values, x, bias.values, precision=precision, quant=quant
        )

    for _ in range(8):
        x = draw(rng, np.int8, inp.shape)
        np.testing.assert_array_equal(jax.vmap(kernel)(x), model(x))


def windows_of(rng, kind, square=False):
    """Height and width, kernel, strides, padding and size of the output."""
    size = rng.integers(1, 12, 2)
    kernel = np.minimum(rng.integers(1, 5, 2), size)
    strides = np.minimum(rng.integers(1, 4, 2), kernel)
    strides = np.full(2, strides.min()) if square else strides
    out = -(-size // strides) if kind == SAME else (size - kernel) // strides + 1
    total = np.maximum((out - 1) * strides + kernel - size, 0)
    padding = total // 2 if kind == SAME else 0 * total
    return tuple(tuple(x.tolist()) for x in (size, kernel, strides, padding, out))


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_conv_2d(kind, seed):
    rng = np.random.default_rng(seed)
    size, kernel, strides, padding, out_size = windows_of(rng, kind)
    channels, out_channels = (int(n) for n in rng.integers(1, 9, 2))
    inp = draw_input(rng, (1, *size, channels))
    shape = (out_channels, *kernel, channels)
    scales = draw_scale(rng, shape=(out_channels,))
    weight, bias, deviation = weights_and_bias(rng, inp, shape, 0, math.prod(shape[1:]), scales)
    out = draw_output(rng, (1, *out_size, out_channels), deviation)
    fields: dict[str, Any] = {"padding": kind, "strideH": strides[0], "strideW": strides[1]}
    model = Model("CONV_2D", [inp, weight, bias], out, "Conv2DOptions", **fields)
    quant = quant_of(inp, out, double(inp.scale) * double(scales) / double(out.scale))

    @jax.jit
    def conv2d(x):
        window: dict[str, Any] = {"strides": strides, "padding": padding, "out_size": out_size}
        return kernels.conv2d_std(
            x, weight.values, bias.values, precision=PER_CHAN, quant=quant, **window
        )

    for _ in range(50):
        x = draw(rng, np.int8, inp.shape)
        np.testing.assert_array_equal(conv2d(x[0]), model(x)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_conv_2d_pointwise(seed):
    rng = np.random.default_rng(seed)
    height, width, channels, out_channels = (int(n) for n in rng.integers(1, 9, 4))
    inp = draw_input(rng, (1, height, width, channels))
    scales = draw_scale(rng, shape=(out_channels,))
    shape = (out_channels, 1, 1, channels)
    weight, bias, deviation = weights_and_bias(rng, inp, shape, 0, channels, scales)
    out = draw_output(rng, (1, height, width, out_channels), deviation)
    fields: dict[str, Any] = {"padding": VALID, "strideH": 1, "strideW": 1}
    model = Model("CONV_2D", [inp, weight, bias], out, "Conv2DOptions", **fields)
    quant = quant_of(inp, out, double(inp.scale) * double(scales) / double(out.scale))
    matrix = weight.values[:, 0, 0]

    @jax.jit
    def pointwise(x):
        return kernels.conv2d_pointwise(
            x, matrix, bias.values, precision=PER_CHAN, quant=quant, out_format="DWH"
        )

    for _ in range(50):
        x = draw(rng, np.int8, inp.shape)
        np.testing.assert_array_equal(pointwise(x[0]), model(x)[0])


@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_depthwise_conv_2d(kind, seed):
    rng = np.random.default_rng(seed)
    # Strides of both axes are equal, as the operator's are.
    size, kernel, strides, padding, out_size = windows_of(rng, kind, square=True)
    channels, multiplier = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    out_channels = channels * multiplier
    inp = draw_input(rng, (1, *size, channels))
    shape = (1, *kernel, out_channels)
    scales = draw_scale(rng, shape=(out_channels,))
    weight, bias, deviation = weights_and_bias(rng, inp, shape, 3, math.prod(kernel), scales)
    out = draw_output(rng, (1, *out_size, out_channels), deviation)
    fields: dict[str, Any] = {"padding": kind, "strideH": strides[0], "strideW": strides[1]}
    fields["depthMultiplier"] = multiplier
    options = "DepthwiseConv2DOptions"
    model = Model("DEPTHWISE_CONV_2D", [inp, weight, bias], out, options, **fields)
    quant = quant_of(inp, out, double(inp.scale) * double(scales) / double(out.scale))

    @jax.jit
    def depthwise(x):
        window: dict[str, Any] = {"strides": strides, "padding": padding, "out_size": out_size}
        return kernels.conv2d_depthwise(
            x, weight.values[0], bias.values, precision=PER_CHAN, quant=quant, **window
        )

    for _ in range(50):
        x = draw(rng, np.int8, inp.shape)
        np.testing.assert_array_equal(depthwise(x[0]), model(x)[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_svdf(seed):
    rng = np.random.default_rng(seed)
    depth, units, rank, memory = (int(n) for n in rng.integers(1, (40, 8, 4, 9)))
    filters = units * rank
    inp = draw_input(rng, (1, depth))
    features = constant(draw(rng, np.int8, (filters, depth)), draw_scale(rng))
    values = draw(rng, np.int16, (filters, memory))
    times = constant(values, draw_scale(rng, 2**-15, 2**-12))
    reach = float(inp.scale * features.scale) * 80 * 80 * math.sqrt(depth)
    scale = np.float32(reach * np.exp(rng.uniform(-10.5, -8)))
    state = Tensor(np.int16, (1, filters * memory), scale, is_variable=True)
    bias = rng.integers(-(2**24), 2**24, units, endpoint=True).astype(np.int32)
    product = state.scale * times.scale
    deviation = float(product) * 2**14 * 2**15 * math.sqrt(memory * rank)
    out = draw_output(rng, (1, units), deviation)
    inputs = [inp, features, times, constant(bias, product), state]
    model = Model("SVDF", inputs, out, "SVDFOptions", rank=rank)
    first = quant_of(inp, state, double(inp.scale) * double(features.scale) / double(state.scale))
    second = quant_of(state, out, double(state.scale) * double(times.scale) / double(out.scale))
    weights = jnp.asarray(values.reshape(units, -1))

    @jax.jit
    def step(kept, x):
        newest = kernels.matXvec_out_stride(features.values, x, quant=first)
        kept = jnp.concatenate([kept[:, 1:], newest[:, None]], axis=1)
        vectors = kept.reshape(units, -1)
        dot = functools.partial(kernels.dot_prod, precision="16x16_asym8s", quant=second)
        return kept, dot(vectors, weights, jnp.asarray(bias), overflow="wrap")

    kept = jnp.zeros((filters, memory), jnp.int16)
    for _ in range(200):
        x = draw(rng, np.int8, inp.shape)
        kept, result = step(kept, x[0])
        np.testing.assert_array_equal(result, model(x)[0])


# Pooling.


@pytest.mark.parametrize(
    ("operator", "kernel_of"),
    [("AVERAGE_POOL_2D", kernels.avgpool), ("MAX_POOL_2D", kernels.maxpool)],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("kind", PADDINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_pool(operator, kernel_of, dtype, kind, seed):
    # Areas are below 50: up to there means also agree at ties.
    rng = np.random.default_rng(seed)
    size, kernel, strides, padding, out_size = windows_of(rng, kind)
    channels = int(rng.integers(1, 9))
    zero_point = draw_zero_point(rng) if dtype is np.int8 else 0
    inp = Tensor(dtype, (1, *size, channels), draw_scale(rng), zero_point)
    out = inp._replace(shape=(1, *out_size, channels))
    fields: dict[str, Any] = {"padding": kind, "strideH": strides[0], "strideW": strides[1]}
    fields |= {"filterHeight": kernel[0], "filterWidth": kernel[1]}
    model = Model(operator, [inp], out, "Pool2DOptions", **fields)

    @jax.jit
    def pool(x):
        window: dict[str, Any] = {"strides": strides, "padding": padding, "out_size": out_size}
        precision = "8" if dtype is np.int8 else "16"
        return kernel_of(x, precision=precision, kernel=kernel, **window)

    for _ in range(6):
        x = draw(rng, dtype, inp.shape)
        # Means of small numbers are often at ties.
        for values in (x, np.clip(x, -2, 2)):
            np.testing.assert_array_equal(pool(values[0]), model(values)[0])


# Activations.


def input_scale(scale, bits):
    """Multiplier and shift from int8 of a scale to Q(31-bits).bits, and how far it reaches."""
    multiplier, shift = quantize_multiplier(min(float(scale) * 2.0**bits, 2.0**31 - 1))
    integer_bits = 31 - bits
    return multiplier, shift, math.floor((2**integer_bits - 1) * 2.0**bits / 2.0**shift)


@pytest.mark.parametrize("precision", ["asym8s_asym8s", "asym8s_16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_softmax(precision, seed):
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, 100))
    inp = Tensor(np.int8, (16, depth), draw_scale(rng, high=1.0), draw_zero_point(rng))
    out = Tensor(np.int8, inp.shape, 2.0**-8, -128)
    if precision == "asym8s_16":
        out = Tensor(np.int16, inp.shape, 2.0**-16, -32768)
    model = Model("SOFTMAX", [inp], out, "SoftmaxOptions", beta=1.0)
    multiplier, shift, radius = input_scale(inp.scale, 26)
    quant = SoftmaxQuant(-radius, shift, multiplier)
    softmax = jax.jit(lambda x: kernels.softmax(x, precision=precision, quant=quant))
    for _ in range(6):
        x = draw(rng, np.int8, inp.shape)
        close = rng.integers(-4, 5, inp.shape).astype(np.int8)
        for values in (x, close, np.full_like(x, -128)):
            np.testing.assert_array_equal(softmax(values), model(values))


@pytest.mark.parametrize("zero_point", ZERO_POINTS)
@pytest.mark.parametrize("scale", [2.0**-9, 2.0**-5, 0.0423, 2.0**-4, 0.1, 0.5])
def test_logistic(scale, zero_point):
    x = np.arange(-128, 128).astype(np.int8)
    inp = Tensor(np.int8, (1, 256), np.float32(scale), zero_point)
    model = Model("LOGISTIC", [inp], Tensor(np.int8, (1, 256), 2.0**-8, -128))
    multiplier, shift, radius = input_scale(inp.scale, 27)
    quant = SigmoidQuant(zero_point + 128, min(radius, 255), multiplier, shift)
    # The kernel is of uint8, all of it higher by 128.
    shifted = jnp.asarray((x.astype(np.int32) + 128).astype(np.uint8))
    result = kernels.sigmoid(shifted, precision="asym8u_asym8u", quant=quant)
    expected = model(x[None])[0].astype(np.int32) + 128
    np.testing.assert_array_equal(result, expected)


# Element by element.


def all_pairs():
    first, second = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    return first.astype(np.int8).reshape(1, -1), second.astype(np.int8).reshape(1, -1)


def scale_arguments(name, scale):
    multiplier, shift = quantize_multiplier(float(scale))
    return {f"{name}_multiplier": multiplier, f"{name}_shift": shift}


RANGE = {"out_activation_min": -128, "out_activation_max": 127}


@pytest.mark.parametrize("seed", range(8))
def test_add(seed):
    rng = np.random.default_rng(seed)
    x, y = all_pairs()
    first, second = draw_input(rng, x.shape), draw_input(rng, y.shape)
    reach = float(first.scale + second.scale)
    out = Tensor(np.int8, x.shape, np.float32(reach * rng.uniform(0.2, 1.5)), draw_zero_point(rng))
    model = Model("ADD", [first, second], out, "AddOptions", potScaleInt16=False)
    widest = 2 * max(double(first.scale), double(second.scale))
    result = jax.jit(kernels.elm_add)(
        x,
        y,
        left_shift=20,
        inp1_zero_bias=-first.zero_point,
        inp2_zero_bias=-second.zero_point,
        out_zero_bias=out.zero_point,
        **scale_arguments("inp1", double(first.scale) / widest),
        **scale_arguments("inp2", double(second.scale) / widest),
        **scale_arguments("out", widest / (2**20 * double(out.scale))),
        **RANGE,
    )
    np.testing.assert_array_equal(result, model(x, y))


@pytest.mark.parametrize("seed", range(8))
def test_mul(seed):
    rng = np.random.default_rng(seed)
    x, y = all_pairs()
    first, second = draw_input(rng, x.shape), draw_input(rng, y.shape)
    reach = float(first.scale * second.scale) * 2**7
    out = Tensor(np.int8, x.shape, np.float32(reach * rng.uniform(0.2, 1.5)), draw_zero_point(rng))
    model = Model("MUL", [first, second], out, "MulOptions")
    result = jax.jit(kernels.elm_mul)(
        x,
        y,
        inp1_zero_bias=-first.zero_point,
        inp2_zero_bias=-second.zero_point,
        out_zero_bias=out.zero_point,
        **scale_arguments("out", double(first.scale) * double(second.scale) / double(out.scale)),
        **RANGE,
    )
    np.testing.assert_array_equal(result, model(x, y))


@pytest.mark.parametrize("inp_zero_point", [-32768, 0, 32767])
@pytest.mark.parametrize("ratio", [2.0**-8, 2.0**-7, 0.00391, 0.0123, 0.5, 1.0, 1.7, 4.0])
def test_quantize(ratio, inp_zero_point):
    x = np.arange(-(2**15), 2**15).astype(np.int16).reshape(1, -1)
    inp = Tensor(np.int16, x.shape, np.float32(0.0123 * ratio), inp_zero_point)
    out = Tensor(np.int8, x.shape, np.float32(0.0123), -7)
    model = Model("QUANTIZE", [inp], out, "QuantizeOptions")
    result = jax.jit(kernels.elm_quantize)(
        x,
        inp_zero_bias=inp_zero_point,
        out_zero_bias=out.zero_point,
        **scale_arguments("out", double(inp.scale) / double(out.scale)),
    )
    np.testing.assert_array_equal(result, model(x))
