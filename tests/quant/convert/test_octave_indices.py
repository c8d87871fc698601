"""Indices of tables by octaves, beside Python integers."""

import math
from fractions import Fraction

import jax
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, quant
from tosajax.quant.convert.octave_indices import octave_indices, octave_size
from tosajax.quant.model.plan import Octaves
from tosajax.quant.model.recipes import Scale

POWERS = [2**n for n in range(31)]
INTEGERS = sorted({*POWERS, *(p - 1 for p in POWERS), *(p + 1 for p in POWERS), 2**31 - 1})


def expected_index(x: int, size: int) -> int:
    x = max(x, 1)
    octave = x.bit_length() - 1
    return math.floor(size * (octave + Fraction(x, 2**octave) - 1)) - 2**15


@pytest.mark.parametrize(("bits", "size"), [(32, 2048), (18, 2048), (17, 4096), (16, 4096)])
def test_octaves_have_as_many_indices_as_fit(bits, size):
    assert octave_size(bits) == size
    assert expected_index(2 ** (bits - 1) - 1, size) <= 2**15 - 1


@pytest.mark.parametrize("shape", [(3, -1), (-1,)])
@pytest.mark.parametrize("size", [2048, 4096])
def test_indices(size, shape):
    bits = {2048: 32, 4096: 17}[size]
    rng = np.random.default_rng(size)
    some = [x for x in INTEGERS if x < 2 ** (bits - 1)]
    others = (2 ** rng.uniform(0, bits - 1, 200)).astype(np.int64) - 1
    values = np.array([-(2**31), -5, 0, *some, *others], np.int32)
    values = values[: len(values) // 3 * 3].reshape(shape)
    b = Builder()
    x = b.input("x", DType.INT32, values.shape)
    graph = b.graph([octave_indices(b, "y", x, size)])
    (indices,) = tosajax.compile(graph)(values)
    expected = [expected_index(int(x), size) for x in values.reshape(-1)]
    assert np.asarray(indices).reshape(-1).tolist() == expected
    assert indices.dtype == np.int16


def test_integers_of_indices():
    octaves = Octaves(2048, Scale())
    for x in INTEGERS:
        index = expected_index(x, 2048) + 2**15
        below, above = octaves.integers(np.array([index, index + 1]))
        assert below <= max(x, 1) < above


def sqnr(reals: np.ndarray, values: np.ndarray) -> float:
    error = np.square(reals - values).sum()
    return float(10 * np.log10(np.square(reals).sum() / error))


STEEP = {
    "inverse square root": jax.lax.rsqrt,
    "logarithm": lambda x: jax.numpy.log(2 * x),
}


@pytest.mark.parametrize("ratio", [10, 1000])
@pytest.mark.parametrize("name", STEEP)
def test_steep_functions_of_wide_ranges(name, ratio):
    """Tables with even steps gave 7 to 25 dB where inputs are 1 to 1000."""
    x = np.geomspace(1, ratio, 999, dtype=np.float32)[:, None]
    rules = [quant.rule(".*", act=quant.QSpec("i16"))]
    model = quant.prepare(STEEP[name], rules, example_args=[x])
    params = quant.calibrate(model, [x])
    (values,) = model.apply(params, x)
    assert sqnr(np.asarray(STEEP[name](x)), np.asarray(values)) > 48
    assert quant.check_bit_exact(model, params, x)
    gradient = jax.jit(jax.grad(lambda x: model.apply(params, x)[0].sum()))(x)
    wanted = jax.grad(lambda x: STEEP[name](x).sum())(x)
    assert sqnr(np.asarray(wanted), np.asarray(gradient)) > 15


NEGATIVE = {
    "reciprocal": lambda x: 1 / x,
    "power of a number": lambda x: jax.numpy.power(2.0, x),
    "third power": lambda x: x**3,
    "logarithm of a larger number": lambda x: jax.numpy.log(x + 4),
    "root of a larger sum": lambda x: jax.lax.rsqrt(x.sum(1, keepdims=True) + 30),
    "reciprocal of a sum": lambda x: 1 / x.sum(1, keepdims=True),
}


@pytest.mark.parametrize("kind", ["i8", "i16"])
@pytest.mark.parametrize("name", NEGATIVE)
def test_negative_numbers_have_no_octaves(name, kind):
    x = np.linspace(-3, -1, 64, dtype=np.float32)[None].reshape(8, 8)
    rules = [quant.rule(".*", act=quant.QSpec(kind, symmetric=kind == "i16"))]
    model = quant.prepare(NEGATIVE[name], rules, example_args=[x])
    assert not model.plan.octaves
    params = quant.calibrate(model, [x])
    (values,) = model.apply(params, x)
    assert sqnr(np.asarray(NEGATIVE[name](x)), np.asarray(values)) > 30
