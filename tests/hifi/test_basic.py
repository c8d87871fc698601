"""Basic kernels: vectors of TFLite Micro, definitions in Python integers, and limits."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_oracle as oracle
from oracle.hifi_oracle import draw
from oracle.transforms import assert_transforms

from tosajax.hifi import NNLibParamError
from tosajax.hifi.kernels import Quant, basic
from tosajax.hifi.kernels.matxvec import matXvec_out_stride

# Here they also take NumPy arrays.
interpolation_q15: Any = basic.interpolation_q15
dot_prod: Any = basic.dot_prod
elm_quantize: Any = basic.elm_quantize
elm_floor: Any = basic.elm_floor
elm_add: Any = basic.elm_add
elm_mul: Any = basic.elm_mul

SIGNED, UNSIGNED = "asym8sxasym8s_asym8s", "asym8uxasym8u_asym8u"
DTYPES = {SIGNED: np.int8, UNSIGNED: np.uint8}
MULTIPLIERS = (1, 2**30, 1_717_986_919, 2**31 - 1)
INT16 = np.array([-(2**15), 1 - 2**15, -16384, -2, -1, 0, 1, 2, 16384, 2**15 - 2, 2**15 - 1])


@pytest.fixture
def rng():
    return np.random.default_rng(41)


def scalars(parameters):
    """Parameters as arrays, to be traced."""
    return {name: jnp.asarray(value, jnp.int32) for name, value in parameters.items()}


# Vectors of TFLite Micro.


def test_vectors_of_quantize(data):
    v = np.load(data / "hifi/tflm_elm_quantize_asym16s_asym8s.npz")
    names = ("inp_zero_bias", "out_zero_bias", "out_shift", "out_multiplier")
    result = elm_quantize(v["x"], **{name: int(v[name]) for name in names})
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"])


def test_vectors_of_add(data):
    v = np.load(data / "hifi/tflm_elm_add_asym8sxasym8s_asym8s.npz")
    parameters = {"left_shift": v["left_shift"], **_whole_range(SIGNED)}
    for of, values in (("inp1", v["inp1"]), ("inp2", v["inp2"]), ("out", v["outp"])):
        for name, value in zip(("zero_bias", "shift", "multiplier"), values, strict=True):
            parameters[f"{of}_{name}"] = int(value)
    result = elm_add(v["a"], v["b"], **parameters)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"])


def test_vectors_of_mul(data):
    v = np.load(data / "hifi/tflm_elm_mul_asym8sxasym8s_asym8s.npz")
    zero_bias, shift, multiplier = v["outp"].tolist()
    result = elm_mul(
        v["a"],
        v["b"],
        out_zero_bias=zero_bias,
        out_shift=shift,
        out_multiplier=multiplier,
        inp1_zero_bias=v["inp1_zero_bias"],
        inp2_zero_bias=v["inp2_zero_bias"],
        **_whole_range(SIGNED),
    )
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"])


def test_vectors_of_svdf(data):
    """A product with the features, into a memory of each filter; a product with the memories.

    Some sums of the second leave int32: TFLite Micro lets them wrap, and the library saturates.
    """
    v = np.load(data / "hifi/tflm_svdf_int8.npz")
    features = Quant(v["input_zero_bias"], 0, v["m1"][0], v["m1"][1], 0)
    times = Quant(0, 0, v["m2"][0], v["m2"][1], v["out_zero_bias"])
    units, filters = v["out"].shape[1], len(v["weights_feature"])
    weights = v["weights_time"].reshape(units, -1)

    @jax.jit
    def step(memory, x):
        newest = matXvec_out_stride(v["weights_feature"], x, quant=features)
        memory = jnp.concatenate([memory[:, 1:], newest[:, None]], axis=1)
        vectors = memory.reshape(units, -1)
        dot = functools.partial(dot_prod, precision="16x16_asym8s", quant=times)
        wrapped = dot(vectors, weights, v["bias"], overflow="wrap")
        return memory, wrapped, dot(vectors, weights, v["bias"])

    memory = jnp.zeros((filters, v["weights_time"].shape[1]), jnp.int16)
    beyond = 0
    for x, expected in zip(v["x"], v["out"], strict=True):
        memory, wrapped, saturated = step(memory, x)
        assert wrapped.dtype == np.int8
        np.testing.assert_array_equal(wrapped, expected)
        vectors = np.asarray(memory, np.int64).reshape(units, -1)
        sums = np.sum(vectors * weights, axis=1) + v["bias"]
        fits = sums == sums.astype(np.int32)
        ends = np.where(sums > 0, 127, -128)
        np.testing.assert_array_equal(saturated, np.where(fits, expected, ends))
        beyond += int(np.sum(~fits))
    assert beyond == 20


def _whole_range(precision):
    info = np.iinfo(DTYPES[precision])
    return {"out_activation_min": int(info.min), "out_activation_max": int(info.max)}


# Definitions.


def test_interpolation(rng):
    grid = np.meshgrid(INT16, INT16, INT16)
    ends = np.stack([axis.ravel() for axis in grid])[:, :1328]  # a multiple of 4
    operands = np.concatenate([ends, rng.integers(-(2**15), 2**15, (3, 1000))], axis=1)
    operands = np.concatenate([operands, np.full((3, 4), -(2**15))], axis=1)
    factor, inp1, inp2 = operands
    rest = oracle.saturate(32767 - factor, np.int16)
    products = (oracle.saturate(a * b >> 15, np.int16) for a, b in ((factor, inp1), (rest, inp2)))
    expected = oracle.saturate(sum(products), np.int16)
    result = jax.jit(interpolation_q15)(*operands.astype(np.int16))
    assert result.dtype == np.int16
    np.testing.assert_array_equal(result, expected)


def test_interpolation_ends():
    """A factor of 0 keeps 32767/32768 of the second, one of 0x7FFF that of the first."""
    first, second = (np.array(x, np.int16) for x in ([1000, -1000, 5, 7], [-32768, 32767, -1, 0]))
    factor = np.zeros(4, np.int16)
    result = interpolation_q15(factor, first, second)
    np.testing.assert_array_equal(result, [-32767, 32766, -1, 0])
    result = interpolation_q15(factor + np.int16(0x7FFF), first, second)
    np.testing.assert_array_equal(result, [999, -1000, 4, 6])


def test_interpolation_saturates_its_products():
    """-1 * -1 is 0x7FFF in Q15, as each product is of 16 bits; 0x8000 would carry into the sum."""
    factor = np.full(4, -(2**15), np.int16)
    first = np.array([-(2**15), -(2**15), -(2**15), 1 - 2**15], np.int16)
    second = np.array([-1, -(2**15), 0, -1], np.int16)
    result = interpolation_q15(factor, first, second)
    np.testing.assert_array_equal(result, [32766, 0, 32767, 32766])


def test_dot_of_floats(rng):
    first, second = draw(rng, np.float32, (5, 100)), draw(rng, np.float32, (5, 100))
    expected = np.sum(first.astype(np.float64) * second, axis=1)
    result = dot_prod(first, second)
    assert result.dtype == np.float32
    bound = 100 * 2.0**-24 * np.sum(np.abs(first.astype(np.float64) * second), axis=1)
    assert np.all(np.abs(np.asarray(result) - expected) <= bound)


def test_dot_of_integers(rng):
    first, second = (draw(rng, np.int16, (16, 24)) for _ in range(2))
    # Sums beyond int32 on either side, and biases that take them there.
    first[:2] = second[:3] = -(2**15)
    first[2] = 2**15 - 1
    bias = rng.choice([-(2**31), -1, 0, 1, 2**31 - 1], 16).astype(np.int32)
    bias[:4] = -(2**31), 2**31 - 1, 2**31 - 1, -(2**31)

    @jax.jit
    def function(bias, multiplier, shift, zero_point):
        quant = Quant(0, 0, multiplier, shift, zero_point)
        return dot_prod(first, second, bias, precision="16x16_asym8s", quant=quant)

    sums = (oracle.wide(first) * oracle.wide(second)).sum(1)
    total = oracle.add_saturating(sums, bias)
    for multiplier in MULTIPLIERS:
        for shift in (-31, -25, -24, -20, -1, 0, 3, 31):
            for zero_point in (-128, 0, 127):
                result = function(bias, *(np.int32(n) for n in (multiplier, shift, zero_point)))
                assert result.dtype == np.int8
                quant = Quant(0, 0, multiplier, shift, zero_point)
                expected = oracle.quantized(total, 0, quant, np.int8)
                np.testing.assert_array_equal(result, expected)
    quant = Quant(0, 0, 2**30, -20, 3)
    no_bias = dot_prod(first, second, precision="16x16_asym8s", quant=quant)
    expected = oracle.quantized(oracle.saturate(sums, np.int32), 0, quant, np.int8)
    np.testing.assert_array_equal(no_bias, expected)


def test_quantize(rng):
    x = np.concatenate([INT16, rng.integers(-(2**15), 2**15, 50)]).astype(np.int16)
    function = jax.jit(lambda p: elm_quantize(x, **p))
    for zero_point in (-(2**15), -1, 0, 2**15 - 1):
        for multiplier in MULTIPLIERS:
            for shift in (-31, -9, -8, -1, 0, 2, 15, 31):
                p = {
                    "inp_zero_bias": zero_point,
                    "out_zero_bias": (-128, 0, 5, 127)[shift % 4],
                    "out_shift": shift,
                    "out_multiplier": multiplier,
                }
                quant = Quant(0, 0, multiplier, shift, p["out_zero_bias"])
                expected = oracle.quantized(x, -zero_point, quant, np.int8)
                np.testing.assert_array_equal(function(scalars(p)), expected)


def test_floor():
    x = np.array([-np.inf, -2.5, -1.0, -0.25, -0.0, 0.0, 0.75, 2.0**23 + 1, np.inf], np.float32)
    result = elm_floor(x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.floor(x))
    assert np.isnan(elm_floor(np.array([np.nan], np.float32))[0])


def parameters_of_add(rng, precision):
    """Parameters at the ends of their ranges and elsewhere, scales such as converters make."""
    info = np.iinfo(DTYPES[precision])
    zero_biases = (-127, -5, 0, 128) if info.min else (-255, -128, -5, 0)
    low, high = sorted(rng.choice([info.min, info.min + 1, 0, 5, info.max], 2, replace=False))
    return {
        "out_zero_bias": int(rng.choice([info.min, 3, info.max])),
        "out_shift": int(rng.choice([-31, -20, -19, -18, 0, 2])),
        "out_multiplier": int(rng.choice(MULTIPLIERS)),
        "out_activation_min": int(low),
        "out_activation_max": int(high),
        "inp1_zero_bias": int(rng.choice(zero_biases)),
        "inp1_shift": int(rng.choice([-31, -3, -1, 0])),
        "inp1_multiplier": int(rng.choice(MULTIPLIERS[:3])),
        "inp2_zero_bias": int(rng.choice(zero_biases)),
        "inp2_shift": int(rng.choice([-31, -2, 0, 1])),
        "inp2_multiplier": int(rng.choice(MULTIPLIERS[:3])),
        "left_shift": int(rng.choice([0, 1, 19, 20])),
    }


def bytes_of(rng, precision):
    info = np.iinfo(DTYPES[precision])
    ends = np.array([info.min, info.min + 1, 0, 1, info.max])
    pairs = np.stack([axis.ravel() for axis in np.meshgrid(ends, ends)])
    drawn = rng.integers(info.min, info.max, (2, 40), endpoint=True)
    return np.concatenate([pairs, drawn], axis=1).astype(DTYPES[precision])


@pytest.mark.parametrize("precision", basic.ELM_ADD)
def test_add(precision, rng):
    a, b = bytes_of(rng, precision)
    function = jax.jit(lambda p: elm_add(a, b, precision=precision, **p))
    results = set()
    for _ in range(150):
        p = parameters_of_add(rng, precision)
        expected = oracle.add(a, b, p)
        result = np.asarray(function(scalars(p)))
        assert result.dtype == DTYPES[precision]
        np.testing.assert_array_equal(result, expected)
        results.update(expected.tolist())
    assert len(results) > 100


@pytest.mark.parametrize("left_shift", [22, 23, 24, 30, 31])
def test_add_saturates_what_it_shifts(left_shift, rng):
    a, b = bytes_of(rng, SIGNED)
    p = {**ADD, "left_shift": left_shift, "out_shift": -23, "inp1_shift": -2, "inp2_shift": -3}
    expected = oracle.add(a, b, p)
    np.testing.assert_array_equal(elm_add(a, b, **p), expected)


@pytest.mark.parametrize("precision", basic.ELM_MUL)
def test_mul(precision, rng):
    a, b = bytes_of(rng, precision)
    function = jax.jit(lambda p: elm_mul(a, b, precision=precision, **p))
    results = set()
    for _ in range(150):
        p = parameters_of_add(rng, precision)
        p = {name: p[name] for name in p if name[:3] == "out" or name[4:] == "_zero_bias"}
        p["out_shift"] = int(rng.choice([-31, -8, -7, -1, 0, 1, 31]))
        expected = oracle.multiply(a, b, p)
        result = np.asarray(function(scalars(p)))
        assert result.dtype == DTYPES[precision]
        np.testing.assert_array_equal(result, expected)
        results.update(expected.tolist())
    assert len(results) > 100


# Transforms, and parameters that are rejected.

ADD = {
    "out_zero_bias": 1,
    "out_shift": -18,
    "out_multiplier": 1_717_986_919,
    "out_activation_min": -100,
    "out_activation_max": 100,
    "inp1_zero_bias": 3,
    "inp1_shift": 0,
    "inp1_multiplier": 2**30,
    "inp2_zero_bias": -2,
    "inp2_shift": -1,
    "inp2_multiplier": 2**30 + 12345,
    "left_shift": 20,
}
MUL = {k: v for k, v in ADD.items() if k[:3] == "out" or k[4:] == "_zero_bias"} | {"out_shift": -7}
QUANTIZE = {"inp_zero_bias": 3, "out_zero_bias": 1, "out_shift": -7, "out_multiplier": 2**30 + 1}
SCALE = ("out_zero_bias", "out_shift", "out_multiplier")


def test_transforms_of_tensors(rng):
    vectors = [jnp.asarray(draw(rng, np.int16, (8,))) for _ in range(3)]
    assert_transforms(interpolation_q15, *vectors)
    floats = [jnp.asarray(draw(rng, np.float32, (4, 30))) for _ in range(2)]
    assert_transforms(dot_prod, *floats, exact=False)
    assert_transforms(elm_floor, floats[0])
    pair = [jnp.asarray(x) for x in bytes_of(rng, SIGNED)]
    assert_transforms(lambda a, b: elm_add(a, b, **ADD), *pair)
    assert_transforms(lambda a, b: elm_mul(a, b, **MUL), *pair)
    integers = [jnp.asarray(draw(rng, np.int16, (4, 6))) for _ in range(2)]
    quant = Quant(0, 0, 2**30, -20, 3)
    bias = jnp.arange(4, dtype=jnp.int32)
    function = functools.partial(dot_prod, precision="16x16_asym8s", quant=quant)
    assert_transforms(function, *integers, bias)


def test_transforms_of_parameters(rng):
    """All of them may be traced, and differ from example to example."""
    pair = [jnp.asarray(x) for x in bytes_of(rng, SIGNED)]
    for function, legal in ((elm_add, ADD), (elm_mul, MUL)):
        values = scalars(legal).values()
        names = tuple(legal)

        def of_values(*values, function=function, names=names):
            return function(*pair, **dict(zip(names, values, strict=True)))

        assert_transforms(of_values, *values)
    x = jnp.asarray(draw(rng, np.int16, (9,)))
    names = tuple(QUANTIZE)
    assert_transforms(
        lambda *values: elm_quantize(x, **dict(zip(names, values, strict=True))),
        *scalars(QUANTIZE).values(),
    )


OUTSIDE = {
    "out_zero_bias": (-129, 128),
    "out_shift": (-32, 32),
    "out_multiplier": (0, 2**31),
    "out_activation_min": (-129, 100),
    "out_activation_max": (128, -100),
    "inp1_zero_bias": (-128, 129),
    "inp1_shift": (-32, 32),
    "inp1_multiplier": (0, -1),
    "inp2_zero_bias": (-128, 129),
    "inp2_shift": (-32, 32),
    "inp2_multiplier": (0, -1),
    "left_shift": (-1, 32),
}


@pytest.mark.parametrize("argument", ADD)
def test_add_rejects(argument):
    _rejects(elm_add, argument, ADD)


@pytest.mark.parametrize("argument", MUL)
def test_mul_rejects(argument):
    _rejects(elm_mul, argument, MUL)


def _rejects(function, argument, legal):
    x = np.zeros(4, np.int8)
    for value in OUTSIDE[argument]:
        with pytest.raises(NNLibParamError, match=argument[:14]) as error:
            function(x, x, **{**legal, argument: value})
        assert error.value.code == -1
        # An activation_min that is not below the maximum is reported as the maximum.
        assert error.value.argument[:14] == argument[:14]


@pytest.mark.parametrize("function", [elm_add, elm_mul])
def test_unsigned_ranges(function):
    x = np.zeros(4, np.uint8)
    legal = dict(ADD if function is elm_add else MUL, inp1_zero_bias=-255, inp2_zero_bias=0)
    legal |= {"out_activation_min": 0, "out_activation_max": 255, "out_zero_bias": 255}
    function(x, x, precision=UNSIGNED, **legal)
    for argument, value in (
        ("inp1_zero_bias", 1),
        ("inp2_zero_bias", -256),
        ("out_activation_min", -1),
        ("out_activation_max", 256),
        ("out_zero_bias", -1),
    ):
        with pytest.raises(NNLibParamError, match=argument):
            function(x, x, precision=UNSIGNED, **{**legal, argument: value})


@pytest.mark.parametrize("argument", QUANTIZE)
def test_quantize_rejects(argument):
    for value in {**OUTSIDE, "inp_zero_bias": (-(2**15) - 1, 2**15)}[argument]:
        with pytest.raises(NNLibParamError, match=argument) as error:
            elm_quantize(np.zeros(4, np.int16), **{**QUANTIZE, argument: value})
        assert error.value.argument == argument


@pytest.mark.parametrize("argument", SCALE)
def test_dot_rejects(argument):
    legal = Quant(0, 0, 2**30, 0, 0)
    vectors = np.zeros((2, 4), np.int16)
    for value in OUTSIDE[argument]:
        quant = legal._replace(**{argument: value})
        with pytest.raises(NNLibParamError, match=argument):
            dot_prod(vectors, vectors, precision="16x16_asym8s", quant=quant)


def test_rejected_operands():
    short, legal = np.zeros(4, np.int16), Quant(0, 0, 2**30, 0, 0)
    rows = np.zeros((2, 4), np.int16)
    floats = rows.astype(np.float32)
    a = np.zeros(4, np.int8)
    cases = {
        "num_elements": lambda: interpolation_q15(short[:3], short[:3], short[:3]),
        "p_ifact": lambda: interpolation_q15(short[:0], short[:0], short[:0]),
        "p_inp1": lambda: interpolation_q15(short, rows[0, :3], short),
        "p_inp2": lambda: elm_add(a, a[:3], **ADD),
        "precision": lambda: elm_mul(a, a, precision="8x8", **MUL),
        "quant": lambda: dot_prod(rows, rows, precision="16x16_asym8s"),
        "bias or quant": lambda: dot_prod(floats, floats, quant=legal),
        "bias_ptr": lambda: dot_prod(
            rows, rows, np.zeros(3, np.int32), precision="16x16_asym8s", quant=legal
        ),
        "input_zero_bias": lambda: dot_prod(
            rows, rows, precision="16x16_asym8s", quant=legal._replace(input_zero_bias=1)
        ),
        "weight_zero_bias": lambda: dot_prod(
            rows, rows, precision="16x16_asym8s", quant=legal._replace(weight_zero_bias=1)
        ),
    }
    for argument, call in cases.items():
        with pytest.raises(NNLibParamError) as error:
            call()
        assert error.value.argument == argument
    with pytest.raises(NNLibParamError, match="p_inp"):
        elm_quantize(short[:0], **QUANTIZE)
    for call in (
        lambda: interpolation_q15(short, short.astype(np.int32), short),
        lambda: elm_floor(short),
        lambda: dot_prod(rows, rows),
        lambda: elm_quantize(a, **QUANTIZE),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()
