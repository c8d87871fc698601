"""Convolutions of one image: standard, over height alone, depthwise and pointwise."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_oracle
from oracle.hifi_oracle import draw, draw_quant

from tosajax.hifi import NNLibParamError
from tosajax.hifi.kernels import (
    Quant,
    conv1d_std,
    conv2d_depthwise,
    conv2d_pointwise,
    conv2d_std,
)
from tosajax.hifi.kernels._precision import PRECISIONS

FIXED = ["16x16", "8x16", "8x8"]
QUANTIZED = ["asym8uxasym8u", "per_chan_sym8sxasym8s"]
SHIFTS = [(-31, 31), (-24, 5), (-18, 12), (-12, 3), (-9, -2), (-1, -31), (0, 0), (2, 1), (31, 0)]
# Height, width, channels, kernel, strides, padding, size of the output.
PLAIN = (5, 4, 3), (3, 2), (1, 1), (0, 0), (3, 3)
PADDED = (5, 4, 3), (3, 2), (2, 1), (2, 1), (4, 5)
CROPPED = (6, 7, 2), (2, 3), (2, 2), (1, 0), (2, 2)
OUTSIDE = (3, 3, 1), (1, 1), (1, 1), (4, 0), (2, 5)
FAR = (2, 2, 2), (2, 2), (2, 1), (0, 3), (4, 2)
WINDOWS = {"plain": PLAIN, "padded": PADDED, "cropped": CROPPED, "outside": OUTSIDE, "far": FAR}


@pytest.fixture
def rng():
    return np.random.default_rng(31)


def bias_of(rng, precision, channels):
    types = PRECISIONS[precision]
    if not types.is_quantized:
        return draw(rng, types.bias, (channels,))
    size = 2 ** rng.choice([0, 10, 17, 30], channels)
    return rng.integers(-size, size, channels, endpoint=True).astype(np.int32)


def parameters(rng, precision, channels) -> list[tuple[dict[str, Any], Quant, Any]]:
    """A case: keyword arguments of a kernel, and the oracle that finishes its sums."""
    types = PRECISIONS[precision]
    per_channel = precision.startswith("per_chan")
    if types.is_quantized:
        quants = [Quant(*draw_quant(rng, types.out, (channels,) * per_channel)) for _ in range(12)]
        finish = functools.partial(hifi_oracle.quantized, dtype=types.out)
        return [({"quant": q}, q, functools.partial(finish, quant=q)) for q in quants]
    return [
        (
            {"acc_shift": acc_shift, "bias_shift": bias_shift},
            Quant(0, 0, 0, 0, 0),
            functools.partial(
                hifi_oracle.fixed, acc_shift=acc_shift, bias_shift=bias_shift, dtype=types.out
            ),
        )
        for acc_shift, bias_shift in SHIFTS
    ]


def check(function, precision, inp, ker, bias, sums_of, rng, *, constant=False):
    """Equality with the oracle, of a kernel compiled once."""
    if constant:
        compiled = jax.jit(lambda x, **traced: function(x, ker, bias, **traced))
        call = functools.partial(compiled, inp)
    else:
        call = functools.partial(jax.jit(function), inp, ker, bias)
    for keywords, quant, finish in parameters(rng, precision, bias.size):
        result = call(**keywords)
        sums = sums_of(quant.input_zero_bias, quant.weight_zero_bias)
        assert result.dtype == PRECISIONS[precision].out
        np.testing.assert_array_equal(result, finish(sums, bias))


# Vectors of other implementations.


@pytest.mark.parametrize("precision", FIXED)
def test_vectors_of_a_numpy_model(precision, data):
    v = np.load(data / f"hifi/model_conv2d_std_{precision}_hwc.npz")
    function = functools.partial(
        conv2d_std,
        precision=precision,
        strides=tuple(v["strides_yx"].tolist()),
        padding=tuple(v["pad_yx"].tolist()),
        out_size=v["y"].shape[:2],
        acc_shift=int(v["acc_shift"]),
        bias_shift=int(v["bias_shift"]),
    )
    result = jax.jit(function)(v["x"], v["kernel"], v["bias"])
    assert result.dtype == v["y"].dtype
    np.testing.assert_array_equal(result, v["y"])


def quant_of(v):
    return Quant(v["input_zero_bias"], 0, v["out_multiplier"], v["out_shift"], v["out_zero_bias"])


def test_vectors_of_tflite_micro(data):
    v = np.load(data / "hifi/tflm_conv2d_std_per_chan_sym8sxasym8s.npz")
    function = functools.partial(
        conv2d_std,
        precision="per_chan_sym8sxasym8s",
        strides=tuple(v["strides_yx"].tolist()),
        out_size=v["out"].shape[1:3],
        quant=quant_of(v),
    )
    result = jax.jit(function)(v["x"][0], v["kernel"], v["bias"])
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"][0])


@pytest.mark.parametrize("inp_format", ["DWH", "WHD"])
def test_depthwise_vectors_of_tflite_micro(inp_format, data):
    v = np.load(data / "hifi/tflm_conv2d_depthwise_per_chan_sym8sxasym8s.npz")
    order = (0, 1, 2) if inp_format == "DWH" else (2, 0, 1)
    function = functools.partial(
        conv2d_depthwise,
        precision="per_chan_sym8sxasym8s",
        out_size=v["out"].shape[1:3],
        quant=quant_of(v),
        inp_format=inp_format,
    )
    x, kernel = v["x"][0].transpose(order), v["kernel"][0].transpose(order)
    result = jax.jit(function)(x, kernel, v["bias"])
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"][0])


# conv2d_std.


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_conv2d(precision, window, rng):
    types = PRECISIONS[precision]
    shape, kernel, *geometry = WINDOWS[window]
    inp, ker = draw(rng, types.input, shape), draw(rng, types.weight, (4, *kernel, shape[2]))
    function = functools.partial(
        conv2d_std,
        precision=precision,
        **dict(zip(("strides", "padding", "out_size"), geometry, strict=True)),
    )
    bias = bias_of(rng, precision, 4)
    sums_of = functools.partial(hifi_oracle.conv2d, inp, ker, *geometry)
    check(function, precision, inp, ker, bias, sums_of, rng)


@pytest.mark.parametrize("padding", [(1, 1), (0, 0), (5, 1)], ids=["same", "cropped", "outside"])
@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_conv2d_of_a_constant_kernel(precision, padding, rng):
    """Channels enough for the route that prepares constants."""
    types = PRECISIONS[precision]
    inp, ker = draw(rng, types.input, (4, 4, 20)), draw(rng, types.weight, (18, 3, 3, 20))
    # Without padding, less than the image has room for.
    out_size = (4, 4) if padding == (1, 1) else (1, 2)
    geometry = (1, 1), padding, out_size
    function = functools.partial(
        conv2d_std, precision=precision, padding=padding, out_size=out_size
    )
    bias = bias_of(rng, precision, 18)
    sums_of = functools.cache(functools.partial(hifi_oracle.conv2d, inp, ker, *geometry))
    check(function, precision, inp, ker, bias, sums_of, rng, constant=True)


@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_extreme_sums(precision):
    """The largest magnitudes there are, in every element."""
    types = PRECISIONS[precision]
    quant = Quant(0, 0, 2**30, -9, 7)
    keywords: dict[str, Any] = {"quant": quant} if types.is_quantized else {"acc_shift": -18}
    bias = np.zeros(2, types.bias)
    function = functools.partial(conv2d_std, precision=precision, out_size=(1, 1), **keywords)
    compiled = jax.jit(lambda inp, ker: function(inp, ker, bias))
    for x in _ends(types.input):
        for w in _ends(types.weight):
            inp, ker = np.full((5, 5, 16), x, types.input), np.full((2, 5, 5, 16), w, types.weight)
            total = np.full((1, 1, 2), x * w * 400, object)
            if types.is_quantized:
                expected = hifi_oracle.quantized(total, bias, quant, types.out)
            else:
                expected = hifi_oracle.fixed(total, bias, -18, 0, types.out)
            np.testing.assert_array_equal(compiled(inp, ker), expected)


def _ends(dtype):
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


@pytest.mark.parametrize("precision", FIXED)
def test_ties_round_away_from_zero(precision):
    types = PRECISIONS[precision]
    ker = np.array([1, -1, 3, -3, 5, -5], types.weight).reshape(6, 1, 1, 1)
    bias, inp = np.zeros(6, types.bias), np.full((1, 1, 1), 8, types.input)
    for kernel in (conv2d_std, conv1d_std):
        size = {"out_size": (1, 1)} if kernel is conv2d_std else {"out_height": 1}
        function = functools.partial(kernel, precision=precision, acc_shift=-4, **size)
        result = jax.jit(function)(inp, ker, bias)
        np.testing.assert_array_equal(result.ravel(), [1, -1, 2, -2, 3, -3])


def test_output_formats(rng):
    inp, ker = draw(rng, np.int8, (5, 4, 3)), draw(rng, np.int8, (2, 3, 4, 3))
    call = {"bias": np.zeros(2, np.int8), "precision": "8x8", "acc_shift": -9}
    for kernel, size in ((conv2d_std, {"out_size": (3, 1)}), (conv1d_std, {"out_height": 3})):
        result, first = (
            jax.jit(functools.partial(kernel, **call, **size, out_format=out_format))(inp, ker)
            for out_format in ["DWH", "WHD"]
        )
        assert first.shape[0] == 2
        np.testing.assert_array_equal(jnp.moveaxis(first, 0, -1), result)


# conv1d_std.


@pytest.mark.parametrize("precision", FIXED)
@pytest.mark.parametrize("geometry", [(1, 0, 4), (2, 1, 5), (3, 2, 1)])
def test_conv1d(geometry, precision, rng):
    stride, padding, out_height = geometry
    types = PRECISIONS[precision]
    inp, ker = draw(rng, types.input, (6, 3, 2)), draw(rng, types.weight, (4, 3, 3, 2))
    function = functools.partial(
        conv1d_std, precision=precision, stride=stride, padding=padding, out_height=out_height
    )
    bias = bias_of(rng, precision, 4)

    def sums_of(*zero_biases):
        window = (stride, 1), (padding, 0), (out_height, 1)
        return hifi_oracle.conv2d(inp, ker, *window, *zero_biases)[:, 0]

    check(function, precision, inp, ker, bias, sums_of, rng)


# conv2d_depthwise.


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_depthwise(precision, multiplier, window, rng):
    types = PRECISIONS[precision]
    shape, kernel, *geometry = WINDOWS[window]
    channels = shape[2] * multiplier
    inp, ker = draw(rng, types.input, shape), draw(rng, types.weight, (*kernel, channels))
    function = functools.partial(
        conv2d_depthwise,
        precision=precision,
        **dict(zip(("strides", "padding", "out_size"), geometry, strict=True)),
    )
    bias = bias_of(rng, precision, channels)
    sums_of = functools.partial(hifi_oracle.depthwise, inp, ker, *geometry)
    check(function, precision, inp, ker, bias, sums_of, rng, constant=multiplier == 3)


@pytest.mark.parametrize("precision", ["16x16", "8x8"])
def test_depthwise_of_a_large_kernel(precision, rng):
    types = PRECISIONS[precision]
    inp, ker = draw(rng, types.input, (9, 10, 2)), draw(rng, types.weight, (9, 9, 2))
    inp[:, :, 0], ker[:, :, 0] = np.iinfo(types.input).min, np.iinfo(types.weight).min
    geometry = (1, 1), (0, 0), (1, 2)
    function = functools.partial(conv2d_depthwise, precision=precision, out_size=(1, 2))
    bias = bias_of(rng, precision, 2)
    sums_of = functools.cache(functools.partial(hifi_oracle.depthwise, inp, ker, *geometry))
    check(function, precision, inp, ker, bias, sums_of, rng)


# conv2d_pointwise.


@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_pointwise(precision, rng):
    types = PRECISIONS[precision]
    inp, ker = draw(rng, types.input, (3, 2, 8)), draw(rng, types.weight, (5, 8))
    bias = bias_of(rng, precision, 5)

    def sums_of(*zero_biases):
        window = (1, 1), (0, 0), (3, 2)
        sums = hifi_oracle.conv2d(inp, ker[:, None, None], *window, *zero_biases)
        return sums

    def by_rows(*operands, **keywords):
        result = conv2d_pointwise(*operands, precision=precision, **keywords)
        assert result.shape == (5, 3, 2)
        if types.input is not np.int16:
            same = conv2d_pointwise(*operands, precision=precision, out_format="DWH", **keywords)
            assert same.shape == (3, 2, 5)
            return same
        return jnp.moveaxis(result, 0, -1)

    check(by_rows, precision, inp, ker, bias, sums_of, rng)


@pytest.mark.parametrize("precision", ["8x8", "per_chan_sym8sxasym8s"])
def test_pointwise_formats(precision, rng):
    inp, ker = draw(rng, np.int8, (3, 2, 5)), draw(rng, np.int8, (4, 5))
    bias = bias_of(rng, precision, 4)
    keywords, *_ = parameters(rng, precision, 4)[2]
    call = functools.partial(conv2d_pointwise, inp, ker, bias, precision=precision, **keywords)
    np.testing.assert_array_equal(
        jnp.moveaxis(call(out_format="WHD"), 0, -1), call(out_format="DWH")
    )


# Floats.


def test_float32(rng):
    inp, bias = draw(rng, np.float32, (6, 5, 4)), draw(rng, np.float32, (3,))
    ker, deep = draw(rng, np.float32, (3, 3, 2, 4)), draw(rng, np.float32, (3, 2, 4))
    wide, point = draw(rng, np.float32, (3, 3, 5, 4)), draw(rng, np.float32, (3, 4))
    window: dict[str, Any] = {"strides": (2, 1), "padding": (1, 1), "out_size": (4, 6)}
    exact = functools.partial(_exact_float, inp, bias)
    cases = [
        (conv2d_std(inp, ker, bias, precision="f32", **window), exact(ker, **window)),
        (
            conv1d_std(inp, wide, bias, precision="f32", stride=2, padding=1, out_height=4),
            exact(wide, strides=(2, 1), padding=(1, 0), out_size=(4, 1))[:, 0],
        ),
        (
            jnp.moveaxis(conv2d_pointwise(inp, point, bias, precision="f32"), 0, -1),
            exact(point[:, None, None], strides=(1, 1), padding=(0, 0), out_size=(6, 5)),
        ),
    ]
    four = np.append(bias, np.float32(1))
    # A kernel for each channel is one over all channels, 0 but at its own.
    one_each = np.einsum("yxc,cd->cyxd", deep, np.eye(4, dtype=np.float32))
    depthwise = conv2d_depthwise(inp, deep, four, precision="f32", **window)
    cases.append((depthwise, _exact_float(inp, four, one_each, **window)))
    for result, expected in cases:
        assert result.dtype == np.float32
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=0, atol=60 * 2.0**-24 * 64)
    gradient = jax.grad(lambda k: conv2d_std(inp, k, bias, precision="f32", **window)[2, 3, 1])(ker)
    np.testing.assert_array_equal(gradient[1], inp[3:6, 2:4])


def _exact_float(inp, bias, ker, *, strides, padding, out_size):
    padded = np.pad(inp.astype(np.float64), [(p, 9) for p in padding] + [(0, 0)])
    kh, kw = ker.shape[1:3]
    out = np.zeros((*out_size, ker.shape[0]))
    for h, w in np.ndindex(*out_size):
        y, x = h * strides[0], w * strides[1]
        out[h, w] = np.einsum("yxc,dyxc->d", padded[y : y + kh, x : x + kw], ker) + bias
    return out


# Transforms and routes.


@pytest.mark.parametrize("precision", ["16x16", "8x16", "per_chan_sym8sxasym8s"])
def test_transforms(precision, rng):
    types = PRECISIONS[precision]
    inputs = draw(rng, types.input, (3, 5, 4, 3))
    ker, deep = draw(rng, types.weight, (4, 3, 2, 3)), draw(rng, types.weight, (3, 2, 3))
    keywords, *_ = parameters(rng, precision, 3)[2]
    window: dict[str, Any] = {"precision": precision, "padding": (1, 1), "out_size": (4, 4)}

    def function(x):
        bias = np.ones(3, types.bias)
        standard = conv2d_std(x, ker[:3], bias, **window, **keywords)
        return standard, conv2d_depthwise(x, deep, bias, **window, **keywords)

    single = jax.jit(function)
    expected = [np.stack(parts) for parts in zip(*map(single, inputs), strict=True)]
    for result in (
        jax.vmap(single)(inputs),
        jax.jit(jax.vmap(function))(inputs),
        jax.lax.scan(lambda carry, x: (carry, function(x)), 0, inputs)[1],
    ):
        for found, wanted in zip(result, expected, strict=True):
            assert found.dtype == types.out
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_integers_take_int8_products(precision, rng):
    types = PRECISIONS[precision]
    inp, ker = draw(rng, types.input, (4, 4, 20)), draw(rng, types.weight, (18, 3, 3, 20))
    quant = Quant(0, 0, 2**30, 0, 0) if types.is_quantized else None
    function = functools.partial(
        conv2d_std, bias=np.zeros(18, types.bias), precision=precision, out_size=(2, 2), quant=quant
    )
    for text in (
        jax.jit(function).lower(inp, ker).as_text(),
        jax.jit(lambda x: function(x, ker)).lower(inp).as_text(),
    ):
        products = [t for t in text.splitlines() if "dot_general" in t or ".convolution" in t]
        assert products
        assert all("xi8>" in line for line in products)
        assert "f64" not in text
        assert "f32" not in text


# Errors.


def _valid(kernel, precision):
    types = PRECISIONS[precision]
    call: dict[str, Any] = {"inp": np.ones((5, 4, 8), types.input), "bias": np.ones(8, types.bias)}
    call["precision"] = precision
    if kernel is not conv1d_std:
        call["quant"] = Quant(0, 0, 2**30, 0, 0) if types.is_quantized else None
    if kernel is conv1d_std:
        return {**call, "ker": np.ones((8, 3, 4, 8), types.weight), "out_height": 3}
    if kernel is conv2d_pointwise:
        return {**call, "ker": np.ones((8, 8), types.weight)}
    shape = (8, 3, 2, 8) if kernel is conv2d_std else (3, 2, 8)
    return {**call, "ker": np.ones(shape, types.weight), "out_size": (3, 3)}


def _scale(**changed):
    return {"quant": Quant(0, 0, 2**30, 0, 0)._replace(**changed)}


ERRORS = [
    (conv2d_std, "8x8", {"precision": "8x8_8"}, "precision"),
    (conv2d_std, "8x8", {"out_format": "HWC"}, "out_data_format"),
    (conv2d_std, "8x8", {"inp": np.ones((5, 4), np.int8)}, "p_inp"),
    (conv2d_std, "8x8", {"inp": np.ones((0, 4, 8), np.int8)}, "p_inp"),
    (conv2d_std, "8x8", {"ker": np.ones((8, 3, 2, 7), np.int8)}, "p_ker"),
    (conv2d_std, "8x8", {"ker": np.ones((8, 6, 2, 8), np.int8)}, "kernel_height"),
    (conv2d_std, "8x8", {"ker": np.ones((8, 3, 5, 8), np.int8)}, "kernel_width"),
    (conv2d_std, "8x8", {"bias": None}, "p_bias"),
    (conv2d_std, "8x8", {"bias": np.ones(1, np.int8)}, "p_bias"),
    (conv2d_std, "8x8", {"strides": (0, 1)}, "y_stride"),
    (conv2d_std, "8x8", {"strides": (1, 0)}, "x_stride"),
    (conv2d_std, "8x8", {"strides": (1, 3)}, "x_stride"),
    (conv2d_std, "8x8", {"padding": (-1, 0)}, "y_padding"),
    (conv2d_std, "8x8", {"padding": (0, -1)}, "x_padding"),
    (conv2d_std, "8x8", {"out_size": (0, 1)}, "out_height"),
    (conv2d_std, "8x8", {"out_size": (1, 0)}, "out_width"),
    (conv2d_std, "8x8", {"acc_shift": -32}, "acc_shift"),
    (conv2d_std, "8x8", {"bias_shift": 32}, "bias_shift"),
    (conv2d_std, "8x8", _scale(), "quant"),
    (conv2d_std, "asym8uxasym8u", {"quant": None}, "quant"),
    (conv2d_std, "asym8uxasym8u", _scale(out_shift=np.zeros(8, np.int32)), "out_shift"),
    (conv2d_std, "per_chan_sym8sxasym8s", _scale(out_shift=np.zeros(7, np.int32)), "out_shift"),
    (conv2d_std, "per_chan_sym8sxasym8s", _scale(out_shift=np.full(8, 32)), "out_shift"),
    (conv2d_std, "per_chan_sym8sxasym8s", _scale(out_multiplier=-1), "out_multiplier"),
    (conv2d_std, "per_chan_sym8sxasym8s", _scale(input_zero_bias=129), "input_zero_bias"),
    (conv1d_std, "8x8", {"precision": "asym8uxasym8u"}, "precision"),
    (conv1d_std, "8x8", {"ker": np.ones((8, 3, 3, 8), np.int8)}, "p_ker"),
    (conv1d_std, "8x8", {"stride": 4}, "y_stride"),
    (conv1d_std, "8x8", {"padding": -1}, "y_padding"),
    (conv1d_std, "8x8", {"out_height": 0}, "out_height"),
    (conv1d_std, "8x8", {"out_format": "D"}, "out_data_format"),
    (conv1d_std, "8x8", {"acc_shift": 32}, "acc_shift"),
    (conv2d_depthwise, "8x8", {"ker": np.ones((3, 2, 9), np.int8)}, "channels of ker"),
    (conv2d_depthwise, "8x8", {"strides": (4, 1)}, "y_stride"),
    (conv2d_depthwise, "8x8", {"strides": (1, 3)}, "x_stride"),
    (conv2d_depthwise, "8x8", {"inp_format": "HWC"}, "inp_data_format"),
    (conv2d_depthwise, "8x8", {"bias": np.ones(9, np.int8)}, "p_bias"),
    (conv2d_depthwise, "asym8uxasym8u", _scale(input_zero_bias=1), "input_zero_bias"),
    (conv2d_depthwise, "asym8uxasym8u", {"strides": (1, 3)}, "x_stride"),
    (conv2d_pointwise, "16x16", {"out_format": "DWH"}, "out_data_format"),
    (conv2d_pointwise, "f32", {"out_format": "DWH"}, "out_data_format"),
    (conv2d_pointwise, "8x8", {"out_format": "HWC"}, "out_data_format"),
    (conv2d_pointwise, "8x16", {"inp": np.ones((5, 4, 6), np.int16)}, "input_channels"),
    (conv2d_pointwise, "f32", {"inp": np.ones((5, 4, 6), np.float32)}, "input_channels"),
    (conv2d_pointwise, "8x8", {"ker": np.ones((8, 7), np.int8)}, "p_ker"),
    (conv2d_pointwise, "8x8", {"bias": None}, "p_bias"),
    (conv2d_pointwise, "8x8", {"bias_shift": -32}, "bias_shift"),
]


@pytest.mark.parametrize(("kernel", "precision", "changed", "argument"), ERRORS)
def test_invalid_parameters(kernel, precision, changed, argument):
    call = _valid(kernel, precision)
    jax.eval_shape(lambda: kernel(**call))
    with pytest.raises(NNLibParamError) as error:
        kernel(**{**call, **changed})
    assert error.value.argument == argument
    assert kernel.__name__ in str(error.value)


def test_a_channel_may_have_no_scale():
    """As TFLite gives a channel whose weights are all 0: its output is the zero point."""
    call = _valid(conv2d_std, "per_chan_sym8sxasym8s")
    multiplier = np.array([0] + [2**30] * 7)
    quant = Quant(0, 0, multiplier, 0, -5)
    result = jax.jit(lambda: conv2d_std(**{**call, "quant": quant}))()
    np.testing.assert_array_equal(result[0, 0], [-5] + [20] * 7)


@pytest.mark.parametrize("precision", [*QUANTIZED, "f32"])
def test_strides_may_be_wider_than_kernels_but_in_fixed_point(precision):
    call = _valid(conv2d_std, precision)
    result = jax.eval_shape(lambda: conv2d_std(**{**call, "strides": (1, 3)}))
    assert result.shape == (3, 3, 8)
