"""Activations: vectors of other implementations, definitions, accuracy of integers, and limits."""

from __future__ import annotations

import functools
import importlib.util
from decimal import Decimal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import elementwise_oracle as elementwise
from oracle import float_bounds
from oracle import hifi_activation_oracle as oracle
from oracle import hifi_activations as definition
from oracle.hifi_oracle import draw, round_half_away
from oracle.transforms import assert_transforms
from paths import ROOT

from tosajax.hifi import NNLibParamError
from tosajax.hifi.kernels import _gemmlowp, activations, basic
from tosajax.hifi.kernels.activations import (
    FIXED,
    ActivationCoefficients,
    SigmoidQuant,
    SoftmaxQuant,
)

# Here they also take NumPy arrays.
sigmoid: Any = activations.sigmoid
tanh: Any = activations.tanh
softmax: Any = activations.softmax
relu: Any = activations.relu
activation_min_max: Any = activations.activation_min_max

TOOL = ROOT / "tools" / "derive_activations.py"
FUNCTIONS = {"sigmoid": sigmoid, "tanh": tanh}
# Fraction bits of the output, and the type whose range it has.
OUTPUTS: dict[str, tuple[int, type]] = {
    "32_32": (15, np.int16),
    "32_16": (15, np.int16),
    "32_8": (7, np.int8),
}


def type_of_output(precision):
    return np.int32 if precision == "32_32" else OUTPUTS[precision][1]


LOWEST, HIGHEST = -(2**31), 2**31 - 1
ENDS = [LOWEST, LOWEST + 1, -(2**30), -2, -1, 0, 1, 2, 2**30, HIGHEST - 1, HIGHEST]
# Of all int32 the inputs whose results are nearest to the middle of two outputs, found by
# comparison of all; the next ones are 2.4e-10 units away or more.
NEAREST_TO_TIES = {
    "sigmoid": [2048, 148498354, 372130047, 298399328, 148806430, 74609685, 185933951, 131399660],
    "tanh": [512, 1536, 2560, 170691832, 40957983, 61197525, 77495187, 52880471],
}
# Where tanh in Q31 is at the middle of two outputs of 16 bits, and of 8.
TIES = [-32987729, -32406020, -31400660, -54627852, -52880498, -36936261]
# Coefficients such that sums and products saturate, and such that nothing is as in FIXED.
OTHERS = {
    "saturating": ActivationCoefficients(
        HIGHEST,
        HIGHEST,
        (2**29, 2**30, 2**30, 2**31 - 1),
        (2**30, 2**31 - 1),
    ),
    "linear-seed": ActivationCoefficients(
        774541003,
        1549082000,
        (-(2**30), HIGHEST),
        (-1010580540, 2021161080),
    ),
    "constant-seed": ActivationCoefficients(2**29, 2**30, (2**30,), (2**30 + 2**29,)),
}


@pytest.fixture
def rng():
    return np.random.default_rng(53)


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("derive_activations", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both_signs(values):
    return np.array(sorted({*values, *(-v for v in values)}), np.int32)


@functools.cache
def jitted(function, **static) -> Any:
    return jax.jit(functools.partial(function, **static))


def compiled(function, *inputs, **static):
    return np.asarray(jitted(function, **static)(*inputs))


def octaves():
    """Q6.25 next to where the exponent of 2 changes, for sigmoid and for tanh."""
    multiples = np.round(np.arange(1, 93) * np.log(2) * 2**25).astype(np.int64)
    near = np.concatenate([multiples, multiples // 2, multiples * 2])
    near = (near[:, None] + np.arange(-3, 4)).ravel()
    return near[near <= HIGHEST]


# Vectors of other implementations.


@pytest.mark.parametrize("precision", ["asym8s_asym8s", "asym8s_16"])
def test_vectors_of_softmax(precision, data):
    v = np.load(data / f"hifi/tflm_softmax_{precision}.npz")
    names = ("diffmin", "input_left_shift", "input_multiplier")
    quant = SoftmaxQuant(*(int(v[name]) for name in names))
    result = compiled(softmax, v["x"], precision=precision, quant=quant)
    assert result.dtype == v["out"].dtype
    np.testing.assert_array_equal(result, v["out"])


def test_vectors_of_logistic(data):
    """TFLite Micro's is of int8: 128 less than asym8u on either side."""
    v = np.load(data / "hifi/tflm_logistic_int8.npz")
    names = ("zero_point", "input_range_radius", "input_multiplier", "input_left_shift")
    quant = SigmoidQuant(*(int(v[name]) for name in names))
    quant = quant._replace(zero_point=quant.zero_point + 128)
    x = v["x"].view(np.uint8) ^ np.uint8(128)
    result = compiled(sigmoid, x, precision="asym8u_asym8u", quant=quant)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal((result ^ np.uint8(128)).view(np.int8), v["out"])


@pytest.mark.parametrize("precision", ["16x16", "8x16"])
def test_vectors_of_gru(precision, data):
    """A step of a layer by its definition, with ideal activations."""
    v = np.load(data / f"hifi/ideal_gru_{precision}.npz")
    h, io = v["h0"], int(v["io_Qformat"])

    def gate(function, name, x, h):
        total = _gate(v, x, h, name, ("w_", "u_"))
        return compiled(function, total, activation="ideal")

    for x, expected in zip(v["x"], v["y"], strict=True):
        r, z = gate(sigmoid, "r", x, h), gate(sigmoid, "z", x, h)
        reset = (r.astype(np.int32) * h >> 15).astype(np.int16)
        g = gate(tanh, "h", x, reset) >> np.int16(15 - io)
        h = compiled(basic.interpolation_q15, z, h, g)
        np.testing.assert_array_equal(h, expected)


@pytest.mark.parametrize("precision", ["16x16", "8x16"])
def test_vectors_of_lstm(precision, data):
    """A step of a layer by its definition, with ideal activations."""
    v = np.load(data / f"hifi/ideal_lstm_{precision}.npz")
    h, c, io = v["h0"], v["c0"].astype(np.int64), int(v["io_Qformat"])

    def gate(function, name, x, h):
        total = _gate(v, x, h, name, ("w_x", "w_h"))
        return compiled(function, total, activation="ideal").astype(np.int64)

    for x, y, cell in zip(v["x"], v["y"], v["c"], strict=True):
        f, i, o = (gate(sigmoid, name, x, h) for name in "fio")
        kept = np.array([round_half_away(p, 2**15) for p in (c * f).tolist()])
        c = np.clip(kept + (2 * i * gate(tanh, "c", x, h) >> 6), LOWEST, HIGHEST)
        np.testing.assert_array_equal(c, cell)
        out = compiled(tanh, c.astype(np.int32), activation="ideal").astype(np.int64)
        h = ((o * out >> 15) >> (15 - io)).astype(np.int16)
        np.testing.assert_array_equal(h, y)


def _gate(v, x, h, name, matrices):
    """The products with the two matrices of a gate and its bias, in Q6.25."""
    of_x, of_h = (matrix + name for matrix in matrices)
    fraction = int(v["coeff_Qformat"]) + int(v["io_Qformat"])
    sums = v[of_x].astype(np.int64) @ x + v[of_h].astype(np.int64) @ h
    sums += np.left_shift(v[f"b_{name}"].astype(np.int64), fraction - 15)
    shifted = [
        round_half_away(s, 2 ** (fraction - 25)) if fraction > 25 else s << (25 - fraction)
        for s in sums.tolist()
    ]
    return np.clip(shifted, LOWEST, HIGHEST).astype(np.int32)


# Ideal.


@pytest.mark.parametrize("precision", OUTPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ideal_is_correctly_rounded(name, precision, rng):
    fraction, dtype = OUTPUTS[precision]
    drawn = rng.integers(-(2**29), 2**29, 300)
    x = both_signs([*ENDS[1:], *NEAREST_TO_TIES[name], *drawn.tolist()])
    x = np.append(x, np.int32(LOWEST))
    result = compiled(FUNCTIONS[name], x, precision=precision, activation="ideal")
    assert result.dtype == type_of_output(precision)
    function = getattr(oracle, name)
    expected = [oracle.exact(function, value, fraction, dtype) for value in x.tolist()]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("precision", OUTPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_ideal_of_many(name, precision, rng):
    fraction, dtype = OUTPUTS[precision]
    x = np.concatenate([rng.integers(-(2**29), 2**29, 200_000), np.arange(-50_000, 50_000)])
    result = compiled(FUNCTIONS[name], x.astype(np.int32), precision=precision, activation="ideal")
    info = np.iinfo(dtype)
    expected = np.floor(definition.in_float64(name, x) * 2**fraction + 0.5)
    np.testing.assert_array_equal(result, np.clip(expected, info.min, info.max))


def test_limits():
    x = np.array([LOWEST, 0, HIGHEST], np.int32)
    for activation in ("ideal", "fixed"):
        for precision, one in (("32_32", 2**15 - 1), ("32_16", 2**15 - 1), ("32_8", 127)):
            half = 64 if precision == "32_8" else 2**14
            result = compiled(sigmoid, x, precision=precision, activation=activation)
            np.testing.assert_array_equal(result, [0, half, one])
            result = compiled(tanh, x, precision=precision, activation=activation)
            np.testing.assert_array_equal(result, [-2 * half, 0, one])


# Fixed point.


def grid():
    """More than 4 million inputs in order: the whole range, its ends, and all around 0."""
    parts = [
        np.arange(LOWEST, HIGHEST, 1021),
        np.arange(-(2**17), 2**17),
        both_signs(octaves()),
        np.array(ENDS),
    ]
    return np.unique(np.concatenate(parts)).astype(np.int32)


@pytest.mark.parametrize("precision", OUTPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fixed_is_within_one_unit_of_ideal(name, precision):
    x = grid()
    assert x.size > 4_000_000
    ideal = compiled(FUNCTIONS[name], x, precision=precision, activation="ideal")
    fixed = compiled(FUNCTIONS[name], x, precision=precision, activation="fixed")
    assert fixed.dtype == type_of_output(precision)
    off = fixed.astype(np.int32) - ideal
    assert np.abs(off).max() <= 1
    within = np.abs(x) < 12 * 2**25
    assert np.mean(off[within] != 0) < 0.004
    assert not off[~within].any()
    # Monotone, without as much as the one unit that would be allowed.
    assert np.diff(fixed.astype(np.int32)).min() >= 0


@pytest.mark.parametrize("coefficients", ["FIXED", *OTHERS])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fixed_is_what_its_definition_says(name, coefficients, rng):
    used = OTHERS.get(coefficients, FIXED)
    drawn = rng.integers(LOWEST, HIGHEST, 400) >> rng.integers(0, 31, 400)
    x = np.concatenate([ENDS, TIES, both_signs(octaves()), drawn]).astype(np.int32)
    given = "fixed" if coefficients == "FIXED" else used
    define = getattr(definition, f"fixed_{name}")
    for precision, (fraction, dtype) in OUTPUTS.items():
        result = compiled(FUNCTIONS[name], x, precision=precision, activation=given)
        assert result.dtype == type_of_output(precision)
        expected = define(x, used, fraction, dtype)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_bit_before_the_last_rounding(name, rng):
    x = np.concatenate([ENDS, both_signs(octaves()), rng.integers(-(2**29), 2**29, 1000)])
    function = getattr(activations, f"_{name}_q31")
    result = jax.jit(lambda x: function(x, FIXED))(x.astype(np.int32))
    define = getattr(definition, f"fixed_{name}")
    expected = define(x, FIXED, 31, np.int32)
    np.testing.assert_array_equal(result, expected)


def test_coefficients_are_traced(rng):
    """One program for all of one degree, arrays or numbers; and one of each example by vmap."""
    x = rng.integers(-(2**28), 2**28, 50).astype(np.int32)
    coefficients = [
        jax.tree.map(lambda c, less=less: np.int32(c - less), FIXED) for less in (0, 2**22)
    ]
    coefficients = [c._replace(exponential=np.array(c.exponential)) for c in coefficients]

    def both(coefficients):
        return tanh(x, activation=coefficients), softmax(x, activation=coefficients)

    function: Any = jax.jit(both)
    results = [function(c) for c in coefficients]
    assert function._cache_size() == 1
    np.testing.assert_array_equal(results[0][0], compiled(tanh, x))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *coefficients)
    by_vmap = jax.vmap(function)(stacked)
    for n, result in enumerate(results):
        for found, expected in zip(by_vmap, result, strict=True):
            np.testing.assert_array_equal(found[n], expected)
    for a, b in zip(*results, strict=True):
        assert np.any(np.asarray(a) != b)


def test_constants_are_those_of_the_tool(tool, capsys):
    exponential, reciprocal = tool.exponential(), tool.reciprocal()
    polynomials = tuple(exponential.integers), tuple(reciprocal.integers)
    assert (*tool.scales(), *polynomials) == FIXED
    # The bounds in the comment at FIXED.
    assert exponential.integer_error < 2**-18.67
    assert reciprocal.integer_error < 1.0001 / 99
    tool.main()
    printed = capsys.readouterr().out
    for fit in (exponential, reciprocal):
        assert str(fit.integers) in printed


def test_fits_are_the_best(tool):
    """Errors that alternate at full height, one more than there are free coefficients."""
    at = np.linspace(0, 1, 100_001)
    exponential, reciprocal = tool.exponential(), tool.reciprocal()
    for fit, error in (
        (exponential, np.polyval(exponential.coefficients, at) - 2.0**-at),
        (reciprocal, np.polyval(reciprocal.coefficients, at) * (1 + at) - 1),
    ):
        high = np.sign(error) * (np.abs(error) > 0.999 * fit.error)
        turns = high[high != 0]
        assert np.count_nonzero(np.diff(turns)) == 3
        assert np.abs(error).max() <= fit.error * (1 + 1e-6)


# Softmax of Q6.25.


@pytest.fixture(params=[1, 2, 7, 100, 255, 256, 300])
def rows(request, rng):
    """Vectors of one length, from all but equal ones to those of which one is all."""
    length = request.param
    drawn = [rng.integers(-spread, spread, length) for spread in (2**20, 2**25, 2**28, 2**31)]
    one = np.where(np.arange(length) == length // 2, HIGHEST, LOWEST)
    return np.stack([*drawn, np.full(length, LOWEST), one]).astype(np.int32)


def test_softmax_is_what_its_definition_says(rows):
    result = compiled(softmax, rows)
    assert result.dtype == np.int32
    expected = definition.fixed_softmax(rows, FIXED)
    np.testing.assert_array_equal(result, expected)


def test_softmax_of_many_pairs(rng):
    """Enough to meet sums whose last bit decides."""
    rows = rng.integers(-(2**25), 2**25, (5000, 2)).astype(np.int32)
    expected = definition.fixed_softmax(rows, FIXED)
    np.testing.assert_array_equal(compiled(softmax, rows), expected)


def test_softmax_is_near_the_exact_one(rows):
    ideal = compiled(softmax, rows, activation="ideal")
    expected = [
        [oracle.rounded(value, 15, np.int32) for value in oracle.real_softmax(row)]
        for row in rows.tolist()
    ]
    np.testing.assert_array_equal(ideal, expected)
    if rows.shape[1] < 256:
        assert np.abs(compiled(softmax, rows) - ideal).max() <= 1


def test_sums_of_exponentials_saturate():
    zeros = np.zeros(300, np.int32)
    np.testing.assert_array_equal(compiled(softmax, zeros), 128)
    np.testing.assert_array_equal(compiled(softmax, zeros, activation="ideal"), 109)
    np.testing.assert_array_equal(compiled(softmax, zeros[:255]), 129)
    # Far beyond, where a sum of 32 bits has wrapped.
    np.testing.assert_array_equal(compiled(softmax, np.zeros(1000, np.int32)), 128)


# Floats.


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats(name, rng):
    x = np.concatenate([rng.uniform(-20, 20, 2000), rng.uniform(-1, 1, 2000) * 1e-3, [0, 90]])
    x = x.astype(np.float32)
    result = compiled(FUNCTIONS[name], x, precision="f32_f32")
    assert result.dtype == np.float32
    reference, bound = {
        "sigmoid": (elementwise.sigmoid, elementwise.sigmoid_bound),
        "tanh": (np.tanh, elementwise.tanh_bound),
    }[name]
    float_bounds.assert_within(result, (x,), reference, bound)


def test_softmax_of_floats(rng):
    x = (rng.normal(size=(20, 33)) * 5).astype(np.float32)
    below = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    powers = np.exp(below)
    result = compiled(softmax, x, precision="f32_f32")
    assert result.dtype == np.float32
    expected = powers / powers.sum(axis=1, keepdims=True)
    # Relative errors in units of 2**-24: x less the maximum is rounded once, which its exponential
    # takes over as an absolute error of the exponent; then comes the error of EXP itself (TOSA
    # 1.0.1). The sum has those of its terms by their share and a rounding for each addition.
    of_power = np.abs(below) + 2 * (3 + 2 * np.abs(below))
    of_sum = np.sum(expected * of_power, axis=1, keepdims=True) + x.shape[1] - 1
    units = of_power + of_sum + 1
    # The products of these errors are of the second order.
    bound = np.expm1(units * 2.0**-24 * (1 + 2.0**-10)) * expected
    assert (np.abs(result - expected) <= bound).all()
    large = compiled(softmax, np.array([3e38, -3e38], np.float32), precision="f32_f32")
    np.testing.assert_array_equal(large, [1, 0])


# Quantized sigmoid and softmax.


@pytest.mark.parametrize("integer_bits", [4, 5])
def test_every_bit_of_exponentials(integer_bits, rng):
    quarter = 1 << (29 - integer_bits)
    near = np.arange(0, 65)[:, None] * quarter + [-1, 0, 1]
    x = -np.concatenate([near.ravel(), rng.integers(0, 2**31, 1000) >> rng.integers(0, 31, 1000)])
    x = np.append(x[(x <= 0) & (x > LOWEST)], LOWEST)
    result = compiled(_gemmlowp.exp_of_negative, x.astype(np.int32), integer_bits=integer_bits)
    expected = definition.exp_of_negative(x, integer_bits)
    np.testing.assert_array_equal(result, expected)


def test_every_bit_of_reciprocals_and_logistic(rng):
    t = np.array([*ENDS[5:], *rng.integers(0, 2**31, 1000)])
    result = compiled(_gemmlowp.one_over_one_plus, t.astype(np.int32))
    np.testing.assert_array_equal(result, definition.one_over_one_plus(t))
    x = np.array([*ENDS, *(rng.integers(LOWEST, HIGHEST, 1000) >> rng.integers(0, 31, 1000))])
    result = compiled(_gemmlowp.logistic, x.astype(np.int32))
    np.testing.assert_array_equal(result, definition.logistic(x))


def test_sigmoid_of_bytes():
    x = np.arange(256, dtype=np.uint8)
    function = jax.jit(lambda quant: sigmoid(x, precision="asym8u_asym8u", quant=quant))
    found = set()
    for zero_point in (0, 1, 131, 255):
        for radius in (0, 1, 127, 255):
            for shift, multiplier in (
                (23, 1_717_986_944),
                (26, 2**31 - 1),
                (22, 2**30),
                (0, 1),
                (-3, 2**30),
                (31, 0),
            ):
                quant = (zero_point, radius, multiplier, shift)
                result = function(SigmoidQuant(*map(np.int32, quant)))
                assert result.dtype == np.uint8
                expected = definition.sigmoid_asym8u(x, *quant)
                np.testing.assert_array_equal(result, expected)
                found.update(expected.tolist())
    assert len(found) > 200


@pytest.mark.parametrize("precision", ["asym8u_asym8u", "asym8s_asym8s", "asym8s_16"])
def test_softmax_of_bytes(precision, rng):
    dtype = np.uint8 if precision == "asym8u_asym8u" else np.int8
    out = np.int16 if precision == "asym8s_16" else dtype
    info = np.iinfo(dtype)
    rows = np.concatenate(
        [
            draw(rng, dtype, (6, 40)),
            np.full((1, 40), info.max, dtype),
            np.arange(info.min, info.max + 1).astype(dtype)[None, :40],
            np.where(np.arange(40) == 7, info.max, info.min).astype(dtype)[None],
        ]
    )
    function: Any = jax.jit(lambda quant: softmax(rows, precision=precision, quant=quant))
    for shift, multiplier in (
        (23, 1_717_986_944),
        (22, 2**30),
        (19, 2**31 - 1),
        (10, 2**30 + 1),
        (-2, 2**31 - 1),
        (20, 0),
    ):
        for diffmin in (-255, -248, -39, -38, -1, 0):
            quant = SoftmaxQuant(*map(np.int32, (diffmin, shift, multiplier)))
            result = function(quant)
            assert result.dtype == out
            expected = definition.softmax_quantized(rows, diffmin, shift, multiplier, out)
            np.testing.assert_array_equal(result, expected)
    assert function._cache_size() == 1


@pytest.mark.parametrize("length", [1, 4096, 8191])
def test_long_softmax_of_bytes(length):
    """Up to the length at which Q12.19 is full, without a sign."""
    row = np.full(length, -128, np.int8)
    quant = (-255, 23, 1_717_986_944)
    result = compiled(softmax, row, precision="asym8s_16", quant=SoftmaxQuant(*quant))
    np.testing.assert_array_equal(result, definition.softmax_quantized(row, *quant, np.int16))


# Rectifiers.


@pytest.mark.parametrize("kind", ["relu", "relu1", "relu6", "relu_std"])
def test_relu_of_q6_25(kind):
    thresholds = {"relu1": [1 << 15], "relu6": [6 << 15], "relu_std": [HIGHEST]}
    near = [k * 2**25 + n for k in (1, 6) for n in (-1025, -1, 0, 1023, 1024, 2048)]
    x = np.array([*ENDS, *near, 1023, 1024, 1025, -1023, -1024, -1025], np.int32)
    for threshold in thresholds.get(kind, [LOWEST, -1, 0, 1, 1 << 15, HIGHEST]):
        result = relu(x, *([threshold] if kind == "relu" else []), kind=kind)
        assert result.dtype == np.int32
        expected = [max(0, min(value // 1024, threshold)) for value in x.tolist()]
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32])
def test_relu_of_one_type(dtype: Any, rng):
    bits = {np.int8: "8_8", np.int16: "16_16", np.float32: "f32_f32"}[dtype]
    is_float = dtype is np.float32
    x = draw(rng, dtype, (50,)) * dtype(5 if is_float else 1)
    for threshold in (-1, 0, 1, 5, 100, 127 if is_float else np.iinfo(np.dtype(dtype)).max):
        result = relu(x, threshold, precision=bits)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.maximum(np.minimum(x, dtype(threshold)), 0))
    result = relu(x, kind="relu_std", precision=bits)
    np.testing.assert_array_equal(result, np.maximum(x, 0))
    if is_float:
        for kind, limit in (("relu1", 1), ("relu6", 6)):
            result = relu(x, kind=kind, precision=bits)
            np.testing.assert_array_equal(result, np.clip(x, 0, limit))


MIN_MAX = {"f32_f32": np.float32, "asym8u_asym8u": np.uint8, "16_16": np.int16, "8_8": np.int8}


@pytest.mark.parametrize("precision", activations.ACTIVATION_MIN_MAX)
def test_min_max(precision, rng):
    dtype = MIN_MAX[precision]
    x = draw(rng, dtype, (4, 25))
    ends = [-0.5, 0.25, 3] if dtype is np.float32 else draw(rng, dtype, (5,)).tolist()
    for low in ends:
        for high in (end for end in ends if end >= low):
            result = activation_min_max(x, low, high, precision=precision)
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, np.clip(x, dtype(low), dtype(high)))


# Transforms.


@pytest.mark.parametrize("activation", ["fixed", "ideal"])
@pytest.mark.parametrize("precision", OUTPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms(name, precision, activation):
    x = jnp.asarray(both_signs([*ENDS[1:], *NEAREST_TO_TIES[name]]))
    function = functools.partial(FUNCTIONS[name], precision=precision, activation=activation)
    assert_transforms(function, x)
    # A compiled function under vmap keeps its 64 bits, and a user's own do not matter.
    expected = np.asarray(function(x))
    by_vmap = jax.vmap(jax.jit(function))(x[:, None])
    np.testing.assert_array_equal(by_vmap[:, 0], expected)
    with jax.enable_x64(True):
        result = jax.jit(function)(x)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_transforms_of_the_others(rng):
    rows = jnp.asarray(rng.integers(-(2**27), 2**27, (3, 9)).astype(np.int32))
    for activation in ("fixed", "ideal"):
        assert_transforms(jitted(softmax, activation=activation), rows)
    assert_transforms(relu, rows, jnp.int32(5000))
    floats = jnp.asarray(draw(rng, np.float32, (3, 9)))
    for function in (softmax, sigmoid, tanh):
        assert_transforms(jitted(function, precision="f32_f32"), floats, exact=False)
    bounds = jnp.float32(-0.5), jnp.float32(3)
    assert_transforms(
        lambda x, low, high: activation_min_max(x, low, high, precision="f32_f32"), floats, *bounds
    )


def test_transforms_of_quantized(rng):
    """Their parameters may be traced, and differ from example to example."""
    x = jnp.asarray(draw(rng, np.uint8, (30,)))
    quant = [jnp.int32(n) for n in (128, 100, 1_717_986_944, 22)]
    function = jax.jit(lambda x, *q: sigmoid(x, precision="asym8u_asym8u", quant=SigmoidQuant(*q)))
    assert_transforms(function, x, *quant)
    quant = [jnp.int32(n) for n in (-200, 21, 1_717_986_944)]
    function = jax.jit(lambda x, *q: softmax(x, precision="asym8u_asym8u", quant=SoftmaxQuant(*q)))
    assert_transforms(function, x, *quant)


@pytest.mark.parametrize("function", [sigmoid, tanh, softmax])
def test_fixed_point_has_no_floats(function):
    text = jitted(function, precision="32_32").lower(jnp.zeros(8, jnp.int32)).as_text()
    assert "f64" not in text
    assert "f32" not in text


# Parameters that are rejected.

Q6_25, BYTES = np.zeros(4, np.int32), np.zeros(4, np.uint8)
ASYM8U: Any = {"precision": "asym8u_asym8u"}
SIGMOID = SigmoidQuant(0, 10, 2**30, 20)
SOFTMAX = SoftmaxQuant(-10, 20, 2**30)
REJECTED = {
    "sigmoid-precision": ("precision", lambda: sigmoid(Q6_25, precision="16_16")),
    "sigmoid-empty": ("p_vec", lambda: sigmoid(Q6_25[:0])),
    "sigmoid-activation": ("activation", lambda: sigmoid(Q6_25, activation="exact")),
    "sigmoid-quant-missing": ("quant", lambda: sigmoid(BYTES, **ASYM8U)),
    "sigmoid-quant-given": ("quant", lambda: sigmoid(Q6_25, quant=SIGMOID)),
    "tanh-precision": ("precision", lambda: tanh(BYTES, **ASYM8U)),
    "tanh-empty": ("p_vec", lambda: tanh(Q6_25[:0])),
    "tanh-activation": ("activation", lambda: tanh(Q6_25, activation="exact")),
    "softmax-precision": ("precision", lambda: softmax(Q6_25, precision="32_16")),
    "softmax-empty": ("p_vec", lambda: softmax(Q6_25[:0])),
    "softmax-scalar": ("p_vec", lambda: softmax(Q6_25[0])),
    "softmax-activation": ("activation", lambda: softmax(Q6_25, activation="exact")),
    "softmax-quant-missing": ("quant", lambda: softmax(BYTES, **ASYM8U)),
    "softmax-quant-given": ("quant", lambda: softmax(Q6_25, quant=SOFTMAX)),
    "relu-kind": ("kind", lambda: relu(Q6_25, kind="relu2")),
    "relu-precision": ("precision", lambda: relu(BYTES, kind="relu6", precision="8_8")),
    "relu-threshold-missing": ("threshold", lambda: relu(Q6_25)),
    "relu-threshold-given": ("threshold", lambda: relu(Q6_25, 1, kind="relu6")),
    "relu-threshold-range": (
        "threshold",
        lambda: relu(BYTES.astype(np.int8), 128, precision="8_8"),
    ),
    "min-max-precision": ("precision", lambda: activation_min_max(Q6_25, 0, 1, precision="32_32")),
    "min-max-empty": ("p_vec", lambda: activation_min_max(BYTES[:0], 0, 1, **ASYM8U)),
    "min-max-order": ("activation_max", lambda: activation_min_max(BYTES, 3, 2, **ASYM8U)),
    "min-max-low": ("activation_min", lambda: activation_min_max(BYTES, -1, 2, **ASYM8U)),
    "min-max-high": ("activation_max", lambda: activation_min_max(BYTES, 0, 256, **ASYM8U)),
}


@pytest.mark.parametrize("case", REJECTED)
def test_rejected(case):
    argument, call = REJECTED[case]
    with pytest.raises(NNLibParamError) as error:
        call()
    assert error.value.argument == argument
    assert error.value.code == -1


@pytest.mark.parametrize(
    ("function", "legal", "outside"),
    [
        (
            sigmoid,
            SIGMOID,
            {
                "zero_point": (-1, 256),
                "input_range_radius": (-1, 256),
                "input_multiplier": (-1, 2**31),
                "input_left_shift": (-32, 32),
            },
        ),
        (softmax, SOFTMAX, {"input_multiplier": (-1, 2**31), "input_left_shift": (-32, 32)}),
    ],
)
def test_rejected_quant(function, legal, outside):
    for argument, values in outside.items():
        for value in values:
            quant = legal._replace(**{argument: value})
            with pytest.raises(NNLibParamError, match=argument):
                function(BYTES, quant=quant, **ASYM8U)


def test_types_that_do_not_match():
    for call in (
        lambda: sigmoid(BYTES),
        lambda: tanh(Q6_25, precision="f32_f32"),
        lambda: softmax(BYTES, precision="asym8s_16", quant=SOFTMAX),
        lambda: relu(BYTES, 1),
        lambda: activation_min_max(Q6_25, 0, 1),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()


def test_the_oracle_itself():
    """Its Decimals, against values that are known."""
    assert str(oracle.tanh(Decimal(1)))[:12] == "0.7615941559"
    assert str(oracle.sigmoid(Decimal(1)))[:12] == "0.7310585786"
