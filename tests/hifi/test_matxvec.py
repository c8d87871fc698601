"""Matrix times vector, its variants, and fully connected layers."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_oracle
from oracle.hifi_oracle import draw, draw_quant

from tosajax.hifi import NNLibParamError
from tosajax.hifi.kernels import Quant, matxvec
from tosajax.hifi.kernels._precision import PRECISIONS
from tosajax.hifi.kernels.dense import FULLY_CONNECTED, fully_connected
from tosajax.hifi.kernels.matxvec import (
    matmul,
    matXvec,
    matXvec_batch,
    matXvec_fused,
    matXvec_out_stride,
)

FIXED = [p for p in matxvec.MATXVEC if p[0] in "18"]
QUANTIZED = ["asym8uxasym8u_asym8u", "sym8sxasym8s_asym8s"]
SHIFTS = [-31, -30, -24, -20, -19, -18, -17, -16, -12, -9, -8, -7, -3, -2, -1, 0, 1, 2, 7, 30, 31]
ROWS, COLS1, COLS2 = 9, 12, 5


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def stacked(cases):
    """One array of each leaf, for vmap; numbers are int32."""

    def stack(*leaves):
        rows = np.stack([np.asarray(leaf) for leaf in leaves])
        return rows.astype(np.int32) if rows.dtype == np.int64 else rows

    return jax.tree.map(stack, *cases)


def operands(rng, types, cols=COLS1):
    return draw(rng, types.weight, (ROWS, cols)), draw(rng, types.input, (cols,))


def quantized_bias(rng):
    """Most of the size of the sums, some far beyond it."""
    size = 2 ** rng.choice([0, 10, 17, 30], ROWS)
    return rng.integers(-size, size, ROWS, endpoint=True).astype(np.int32)


def expected_fixed(tensors, acc_shift, bias_shift, out):
    mat1, vec1, mat2, vec2, bias = tensors
    sums = hifi_oracle.dot(mat1, vec1) + hifi_oracle.dot(mat2, vec2)
    return hifi_oracle.fixed(sums, bias, acc_shift, bias_shift, out)


# Vectors of other implementations.


@pytest.mark.parametrize("precision", FIXED)
def test_vectors_of_a_numpy_model(precision, data):
    vectors = np.load(data / f"hifi/model_matXvec_{precision}.npz")
    names = ("mat1", "vec1", "mat2", "vec2", "bias", "acc_shift", "bias_shift")
    case = [np.stack([vectors[f"{name}_{i}"] for i in range(6)]) for name in names]
    case[5:] = [shifts.astype(np.int32) for shifts in case[5:]]

    def function(*operands):
        *tensors, acc_shift, bias_shift = operands
        return matXvec(*tensors, precision=precision, acc_shift=acc_shift, bias_shift=bias_shift)

    expected = np.stack([vectors[f"out_{i}"] for i in range(6)])
    result = jax.jit(jax.vmap(function))(*case)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_vectors_of_tflite_micro(data):
    v = np.load(data / "hifi/tflm_fully_connected_sym8sxasym8s_asym8s.npz")
    quant = Quant(v["input_zero_bias"], 0, v["out_multiplier"], v["out_shift"], v["out_zero_bias"])
    layer = functools.partial(fully_connected, precision="sym8sxasym8s_asym8s", quant=quant)
    result = jax.jit(jax.vmap(lambda x: layer(v["weight"], x, v["bias"])))(v["x"])
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, v["out"])


# matXvec.


@pytest.mark.parametrize("precision", FIXED)
def test_fixed_point(precision, rng):
    types = PRECISIONS[precision]
    cases = [
        (
            *operands(rng, types),
            *operands(rng, types, COLS2),
            draw(rng, types.bias, (ROWS,)),
            np.int32(acc_shift),
            np.int32(bias_shift),
        )
        for acc_shift in SHIFTS
        for bias_shift in (-31, -2, 0, 5, 31)
    ]

    def function(*operands):
        *tensors, acc_shift, bias_shift = operands
        return matXvec(*tensors, precision=precision, acc_shift=acc_shift, bias_shift=bias_shift)

    result = jax.jit(jax.vmap(function))(*stacked(cases))
    assert result.dtype == types.out
    for found, case in zip(np.asarray(result), cases, strict=True):
        *tensors, acc_shift, bias_shift = case
        expected = expected_fixed(tensors, int(acc_shift), int(bias_shift), types.out)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("precision", FIXED)
def test_ties_round_away_from_zero(precision):
    types = PRECISIONS[precision]
    matrix = np.array([[1], [-1], [3], [-3], [5], [-5], [2], [-2]], types.weight)
    bias = np.zeros(8, types.bias)
    function = jax.jit(functools.partial(matXvec, precision=precision))
    half = {4: np.array([1, -1, 2, -2, 3, -3, 1, -1]), 8: np.array([0, -1, 1, -2, 2, -3, 1, -1])}
    for k in range(7):
        vector = np.array([1 << k], types.input)
        result = function(matrix, vector, bias=bias, acc_shift=-(k + 1))
        # 64-bit results are floored.
        np.testing.assert_array_equal(np.asarray(result), half[8 if types.out is np.int64 else 4])


@pytest.mark.parametrize("precision", ["16x16_64", "8x16_64", "8x8_32"])
def test_long_rows_are_exact(precision):
    types = PRECISIONS[precision]
    length = 100_000
    ends = np.iinfo(types.weight).min, np.iinfo(types.input).min
    matrix, vector = (
        np.full((2, length), ends[0], types.weight),
        np.full(length, ends[1], types.input),
    )
    bias = np.array([np.iinfo(types.bias).max, 0], types.bias)
    function = functools.partial(matXvec, precision=precision, bias_shift=31)
    result = jax.jit(lambda m, v, b: function(m, v, bias=b))(matrix, vector, bias)
    total = int(ends[0]) * int(ends[1]) * length
    expected = [total + (int(bias[0]) << 31), total]
    expected = [hifi_oracle.saturate(e, types.out) for e in expected]
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("precision", QUANTIZED)
def test_quantized(precision, rng):
    types = PRECISIONS[precision]
    cases = []
    for _ in range(120):
        quant = Quant(*draw_quant(rng, types.input))
        input2, weight2, *_ = draw_quant(rng, types.input)
        cases.append(
            (
                *operands(rng, types),
                *operands(rng, types, COLS2),
                quantized_bias(rng),
                quant._replace(input2_zero_bias=input2, weight2_zero_bias=weight2),
            )
        )
    function = functools.partial(matXvec, precision=precision)
    result = jax.jit(jax.vmap(lambda *x: function(*x[:-1], quant=x[-1])))(*stacked(cases))
    assert result.dtype == types.out
    for found, case in zip(np.asarray(result), cases, strict=True):
        mat1, vec1, mat2, vec2, bias, quant = case
        sums = hifi_oracle.dot(mat1, vec1, quant.weight_zero_bias, quant.input_zero_bias)
        sums += hifi_oracle.dot(mat2, vec2, quant.weight2_zero_bias, quant.input2_zero_bias)
        expected = hifi_oracle.quantized(sums, bias, quant, types.out)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("precision", QUANTIZED)
@pytest.mark.parametrize("known", [True, False], ids=["constant", "traced"])
def test_quantized_with_numbers(precision, known, rng):
    """Parameters that are Python numbers, and weights that are constants or not."""
    types = PRECISIONS[precision]
    high = 128 if types.input is np.int8 else 0
    for zero_bias in (high, high - 255):
        weight_zero_bias = 0 if types.weight is np.int8 else -255 - zero_bias
        quant = Quant(zero_bias, weight_zero_bias, 2**30 + 12345, -6, 3)
        matrix, vector = operands(rng, types)
        function = functools.partial(matXvec, precision=precision, quant=quant)
        if known:
            result = jax.jit(lambda v, f=function, m=matrix: f(m, v))(vector)
        else:
            result = jax.jit(function)(matrix, vector)
        sums = hifi_oracle.dot(matrix, vector, weight_zero_bias, zero_bias)
        expected = hifi_oracle.quantized(sums, np.zeros(ROWS, int), quant, types.out)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("precision", [*FIXED, "f32xf32_f32"])
def test_a_single_product_and_constants(precision, rng):
    """One matrix is as two of which one is 0; NumPy arrays, traced ones and jit agree."""
    types = PRECISIONS[precision]
    matrix, vector = operands(rng, types)
    bias = draw(rng, types.bias, (ROWS,))
    shifts = {} if types.is_float else {"acc_shift": -9, "bias_shift": 3}
    function = functools.partial(matXvec, precision=precision, **shifts)
    constant = jax.jit(lambda v: function(matrix, v, bias=bias))(vector)
    zero = np.zeros((ROWS, 2), types.weight), np.ones(2, types.input)
    for result in (
        function(matrix, vector, bias=bias),
        jax.jit(lambda m, v, b: function(m, v, bias=b))(matrix, vector, bias),
        jax.jit(function)(matrix, vector, *zero, bias),
    ):
        np.testing.assert_array_equal(np.asarray(result), np.asarray(constant))


def bound_of_float32(matrix, vector):
    """How far float32 sums may be off: half a unit for each addition, of the magnitudes."""
    size = np.abs(matrix).astype(np.float64) @ np.abs(vector).astype(np.float64)
    return (matrix.shape[1] + 2) * 2.0**-24 * (size + 1)


def test_float32(rng):
    types = PRECISIONS["f32xf32_f32"]
    mat1, vec1 = operands(rng, types, 40)
    mat2, vec2 = operands(rng, types, 3)
    bias = draw(rng, np.float32, (ROWS,))
    exact = mat1.astype(np.float64) @ vec1 + mat2.astype(np.float64) @ vec2 + bias
    bound = bound_of_float32(mat1, vec1) + bound_of_float32(mat2, vec2) + np.abs(bias) * 2**-23
    result = matXvec(mat1, vec1, mat2, vec2, bias, precision="f32xf32_f32")
    assert result.dtype == np.float32
    assert (np.abs(np.asarray(result) - exact) <= bound).all()
    single = fully_connected(mat1, vec1, bias, precision="f32")
    exact = mat1.astype(np.float64) @ vec1 + bias
    assert (np.abs(np.asarray(single) - exact) <= bound).all()
    gradient = jax.grad(lambda v: fully_connected(mat1, v, bias, precision="f32")[4])(vec1)
    np.testing.assert_array_equal(gradient, mat1[4])


# The variants.


@pytest.mark.parametrize("precision", matxvec.BATCH[:-1])
def test_batch(precision, rng):
    types = PRECISIONS[precision]
    matrix, vectors = draw(rng, types.weight, (ROWS, 12)), draw(rng, types.input, (7, 12))
    bias = draw(rng, types.bias, (ROWS,))
    batch = jax.jit(functools.partial(matXvec_batch, precision=precision))
    for acc_shift, bias_shift in ((-31, 31), (-9, -2), (-1, 0), (0, 5), (2, 1), (31, -31)):
        shifts = {"acc_shift": acc_shift, "bias_shift": bias_shift}
        result = batch(matrix, vectors, bias, **shifts)
        sums = np.stack([hifi_oracle.dot(matrix, vector) for vector in vectors])
        expected = hifi_oracle.fixed(sums, bias, acc_shift, bias_shift, types.out)
        assert result.dtype == types.out
        np.testing.assert_array_equal(np.asarray(result), expected)


def test_float32_batch(rng):
    matrix, vectors = draw(rng, np.float32, (ROWS, 12)), draw(rng, np.float32, (7, 12))
    bias = draw(rng, np.float32, (ROWS,))
    result = matXvec_batch(matrix, vectors, bias, precision="f32xf32_f32")
    for row, vector in zip(result, vectors, strict=True):
        exact = matrix.astype(np.float64) @ vector + bias
        assert (np.abs(np.asarray(row) - exact) <= bound_of_float32(matrix, vector) * 2).all()


def test_fixed_point_matmul(rng):
    matrix, vectors = draw(rng, np.int8, (ROWS, 11)), draw(rng, np.int8, (11, 4))
    bias = draw(rng, np.int8, (ROWS,))
    function = jax.jit(matmul)
    for acc_shift, bias_shift in ((-31, 31), (-9, 4), (-8, -2), (0, 0), (31, -31)):
        result = function(matrix, vectors, bias, acc_shift=acc_shift, bias_shift=bias_shift)
        sums = np.stack([hifi_oracle.dot(matrix, vector) for vector in vectors.T])
        expected = hifi_oracle.fixed(sums, bias, acc_shift, bias_shift, np.int8).T
        assert result.dtype == np.int8
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("precision", matxvec.MATMUL[1:])
@pytest.mark.parametrize("has_bias", [True, False])
def test_quantized_matmul(precision, has_bias, rng):
    types = PRECISIONS[precision]
    matrix, vectors = draw(rng, types.weight, (ROWS, 11)), draw(rng, types.input, (11, 4))
    channels = (ROWS,) if precision.startswith("per_chan") else ()
    bias = quantized_bias(rng) if has_bias else None
    function = jax.jit(functools.partial(matmul, precision=precision))
    for _ in range(25):
        quant = Quant(*draw_quant(rng, types.input, channels))
        result = function(matrix, vectors, bias, quant=quant)
        zero_biases = quant.weight_zero_bias, quant.input_zero_bias
        sums = np.stack([hifi_oracle.dot(matrix, v, *zero_biases) for v in vectors.T])
        added = np.zeros(ROWS, int) if bias is None else bias
        expected = hifi_oracle.quantized(sums, added, quant, types.out).T
        assert result.dtype == types.out
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("has_bias", [True, False])
def test_out_stride(has_bias, rng):
    function = jax.jit(matXvec_out_stride)
    bias = quantized_bias(rng) if has_bias else None
    for _ in range(25):
        matrix, vector = draw(rng, np.int8, (ROWS, 11)), draw(rng, np.int8, (11,))
        zero_bias, _, multiplier, shift, _ = draw_quant(rng, np.int8)
        # To int16, which is 8 bits wider.
        shift = np.int32(min(shift + 7, 31))
        quant = Quant(zero_bias, 0, multiplier, shift, 0)
        result = function(matrix, vector, bias, quant=quant)
        sums = hifi_oracle.dot(matrix, vector, 0, zero_bias)
        added = np.zeros(ROWS, int) if bias is None else bias
        expected = hifi_oracle.quantized(sums, added, quant, np.int16)
        assert result.dtype == np.int16
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("precision", [*matxvec.FUSED[:-1], "16x16_16-wide", "8x8_8-wide"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_fused(name, precision, rng):
    """As the correctly rounded function of the Q6.25 that the definition gives."""
    precision, *wide = precision.split("-")
    types = PRECISIONS[precision]
    matrix, vector = operands(rng, types)
    mat2, vec2 = operands(rng, types, COLS2)
    bias_type = (np.int32 if types.bias is np.int8 else np.int64) if wide else types.bias
    # A bias about as large as the sums, which are about 4 in Q6.25.
    size = {np.int8: 2**7, np.int16: 2**15, np.int32: 2**31, np.int64: 2**40}[bias_type]
    bias = rng.integers(-size, size, ROWS).astype(bias_type)
    acc_shift = {"16x16_16": -6, "8x16_16": 2, "8x8_8": 9}[precision]
    bias_shift = 26 - acc_shift - int(np.log2(size))
    shifts = {"acc_shift": acc_shift, "bias_shift": bias_shift}
    fused = functools.partial(matXvec_fused, function=name, precision=precision, **shifts)
    result = fused(matrix, vector, mat2, vec2, bias, activation="ideal")
    tensors = matrix, vector, mat2, vec2, bias
    expected = expected_fixed(tensors, acc_shift, bias_shift, np.int32)
    total = expected.astype(np.float64) / 2**25
    exact = np.tanh(total) if name == "tanh" else 1 / (1 + np.exp(-total))
    info = np.iinfo(types.out)
    expected = np.clip(np.rint(exact * (info.max + 1)), info.min, info.max)
    assert len(set(expected)) > ROWS // 2
    assert result.dtype == types.out
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_float32_fused(name, rng):
    matrix, vector = operands(rng, PRECISIONS["f32xf32_f32"])
    bias = draw(rng, np.float32, (ROWS,))
    result = matXvec_fused(matrix, vector, bias=bias, function=name, precision="f32xf32_f32")
    total = matrix.astype(np.float64) @ vector + bias
    exact = np.tanh(total) if name == "tanh" else 1 / (1 + np.exp(-total))
    bound = 2 * bound_of_float32(matrix, vector) + 2.0**-21
    assert (np.abs(np.asarray(result) - exact) <= bound).all()


@pytest.mark.parametrize("precision", FULLY_CONNECTED)
def test_fully_connected_is_a_single_product(precision, rng):
    types = PRECISIONS[precision]
    weight, inp = operands(rng, types)
    quant = Quant(*draw_quant(rng, types.input)) if types.is_quantized else None
    bias = quantized_bias(rng) if quant else draw(rng, types.bias, (ROWS,))
    rest = {"quant": quant} if quant or types.is_float else {"acc_shift": -12, "bias_shift": 2}
    layer = functools.partial(fully_connected, precision=precision, **rest)
    alone = "f32xf32_f32" if types.is_float else precision
    product = functools.partial(matXvec, precision=alone, **rest)
    result = jax.jit(layer)(weight, inp, bias)
    expected = jax.jit(lambda m, v, b: product(m, v, bias=b))(weight, inp, bias)
    assert result.dtype == types.out
    np.testing.assert_array_equal(result, expected)


# Transforms and types.


@pytest.mark.parametrize("precision", ["16x16_64", "8x16_32", "8x8_8"])
def test_transforms(precision, rng):
    types = PRECISIONS[precision]
    matrix, bias = draw(rng, types.weight, (ROWS, COLS1)), draw(rng, types.bias, (ROWS,))
    vectors = jnp.asarray(draw(rng, types.input, (3, COLS1)))
    shifts = jnp.asarray([-9, 0, 3], jnp.int32)

    def function(vector, shift):
        return matXvec(matrix, vector, bias=bias, precision=precision, acc_shift=shift)

    single = jax.jit(function)
    expected = np.stack([np.asarray(single(*x)) for x in zip(vectors, shifts, strict=True)])
    for result in (
        jax.vmap(single)(vectors, shifts),
        jax.jit(jax.vmap(function))(vectors, shifts),
        jax.lax.scan(lambda carry, xs: (carry, function(*xs)), 0, (vectors, shifts))[1],
    ):
        assert result.dtype == types.out
        np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("precision", [*FIXED, *QUANTIZED])
def test_integers_take_int8_dots(precision, rng):
    types = PRECISIONS[precision]
    matrix, vector = operands(rng, types)
    quant = Quant(0, 0, 2**30, 0, 0) if types.is_quantized else None
    bias = np.zeros(ROWS, types.bias)
    function = functools.partial(matXvec, bias=bias, precision=precision, quant=quant)
    text = jax.jit(function).lower(matrix, vector).as_text()
    dots = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert dots
    assert all("xi8>" in line for line in dots)
    assert "f64" not in text
    assert "f32" not in text


# Errors.


def valid(precision):
    types = PRECISIONS[precision]
    quant = Quant(0, 0, 2**30, 0, 0) if types.is_quantized else None
    tensors = {
        "mat1": np.ones((ROWS, 4), types.weight),
        "vec1": np.ones(4, types.input),
        "bias": np.ones(ROWS, types.bias),
    }
    return {**tensors, "precision": precision, "quant": quant}


def _quant(**changed):
    return {"quant": Quant(0, 0, 2**30, 0, 0)._replace(**changed)}


@pytest.mark.parametrize(
    ("precision", "changed", "argument"),
    [
        ("16x16_16", {"precision": "16x8_16"}, "precision"),
        ("16x16_16", {"acc_shift": 32}, "acc_shift"),
        ("16x16_16", {"acc_shift": -32}, "acc_shift"),
        ("8x8_8", {"bias_shift": 32}, "bias_shift"),
        ("8x8_8", {"bias_shift": np.int32(-32)}, "bias_shift"),
        ("sym8sxasym8s_asym8s", {"acc_shift": 1}, "acc_shift"),
        ("f32xf32_f32", {"bias_shift": -1}, "bias_shift"),
        ("8x16_16", {"bias": None}, "p_bias"),
        ("8x16_16", {"bias": np.ones(ROWS + 1, np.int16)}, "p_bias"),
        ("8x16_16", {"vec1": np.ones(5, np.int16)}, "p_vec1"),
        ("8x16_16", {"mat1": np.ones(4, np.int8)}, "p_mat1"),
        ("8x16_16", {"mat1": np.ones((0, 4), np.int8)}, "p_mat1"),
        ("8x8_8", {"mat2": np.ones((ROWS, 4), np.int8)}, "p_vec2"),
        ("8x8_8", {"vec2": np.ones(4, np.int8)}, "p_mat2"),
        ("8x8_8", {"mat2": np.ones((2, 4), np.int8), "vec2": np.ones(4, np.int8)}, "p_mat2"),
        ("8x8_8", _quant(), "quant"),
        ("sym8sxasym8s_asym8s", {"quant": None}, "quant"),
        ("sym8sxasym8s_asym8s", _quant(input_zero_bias=-128), "input_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(input_zero_bias=129), "input_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(input2_zero_bias=129), "vec2_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(weight_zero_bias=-1), "weight_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(out_zero_bias=128), "out_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(out_zero_bias=-129), "out_zero_bias"),
        ("sym8sxasym8s_asym8s", _quant(out_multiplier=0), "out_multiplier"),
        ("sym8sxasym8s_asym8s", _quant(out_multiplier=2**31), "out_multiplier"),
        ("sym8sxasym8s_asym8s", _quant(out_multiplier=np.ones(ROWS, np.int32)), "out_multiplier"),
        ("sym8sxasym8s_asym8s", _quant(out_shift=32), "out_shift"),
        ("asym8uxasym8u_asym8u", _quant(input_zero_bias=1), "input_zero_bias"),
        ("asym8uxasym8u_asym8u", _quant(input_zero_bias=-256), "input_zero_bias"),
        ("asym8uxasym8u_asym8u", _quant(weight_zero_bias=-256), "weight_zero_bias"),
        ("asym8uxasym8u_asym8u", _quant(weight2_zero_bias=1), "mat2_zero_bias"),
        ("asym8uxasym8u_asym8u", _quant(out_zero_bias=256), "out_zero_bias"),
        ("asym8uxasym8u_asym8u", _quant(out_zero_bias=-1), "out_zero_bias"),
    ],
)
def test_invalid_parameters(precision, changed, argument):
    call = valid(precision)
    jax.eval_shape(lambda: matXvec(**call))
    with pytest.raises(NNLibParamError, match=argument) as error:
        matXvec(**{**call, **changed})
    assert error.value.code == -1
    assert error.value.argument == argument


@pytest.mark.parametrize(
    ("function", "precision", "changed", "argument"),
    [
        (matXvec_fused, "16x16_16", {"function": "relu"}, "function"),
        (matXvec_fused, "16x16_16", {"bias": None}, "p_bias"),
        (matXvec_fused, "16x16_16", {"precision": "16x16_32"}, "precision"),
        (matXvec_batch, "8x8_32", {"vec1": np.ones((2, 5), np.int8)}, "p_vec1"),
        (matXvec_batch, "8x8_32", {"bias": None}, "p_bias"),
        (matXvec_batch, "8x8_32", {"mat1": np.ones((ROWS, 6), np.int8)}, "cols1"),
        (matXvec_batch, "8x8_32", {"acc_shift": 32}, "acc_shift"),
        (matmul, "8x8_8", {"mat2": np.ones((5, 2), np.int8)}, "p_mat2"),
        (matmul, "8x8_8", {"mat2": np.ones((4, 0), np.int8)}, "p_mat2"),
        (matmul, "8x8_8", {"bias": None}, "p_bias"),
        (matXvec_out_stride, "sym8sxasym8s_16", _quant(out_zero_bias=1), "out_zero_bias"),
        (matXvec_out_stride, "sym8sxasym8s_16", _quant(out_shift=-32), "out_shift"),
        (fully_connected, "8x8_8", {"weight": np.ones((ROWS, 6), np.int8)}, "weight_depth"),
        (fully_connected, "f32", {"weight": np.ones((ROWS, 3), np.float32)}, "weight_depth"),
        (fully_connected, "8x8_8", {"inp": np.ones(3, np.int8)}, "p_inp"),
        (fully_connected, "sym8sxasym8s_asym8s", {"bias": None}, "p_bias"),
        (fully_connected, "sym8sxasym8s_asym8s", _quant(out_shift=32), "out_shift"),
    ],
)
def test_invalid_parameters_of_variants(function, precision, changed, argument):
    call = valid(precision)
    vector = call.pop("vec1")
    if function is fully_connected:
        call |= {"weight": call.pop("mat1"), "inp": vector}
    elif function is matmul:
        call["mat2"] = vector[:, None]
    elif function is matXvec_batch:
        call["vec1"] = vector[None]
    else:
        call["vec1"] = vector
    if function in (matXvec_fused, matXvec_batch):
        del call["quant"]
    if function is matXvec_fused:
        call["function"] = "tanh"
    jax.eval_shape(lambda: function(**call))
    with pytest.raises(NNLibParamError) as error:
        function(**{**call, **changed})
    assert error.value.argument == argument


def test_wrong_types_are_misuse():
    with pytest.raises(TypeError, match="p_mat1 is int16, expected int8"):
        matXvec(np.ones((2, 4), np.int16), np.ones(4, np.int16), precision="8x16_16")


def test_traced_parameters_are_not_checked():
    call = valid("16x16_16")
    result = jax.jit(lambda shift: matXvec(**call, acc_shift=shift))(32)
    np.testing.assert_array_equal(result, np.full(ROWS, 2**15 - 1))
