"""Activation functions against Python integers and float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle.elementwise_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, float_rows, integer_rows, integers
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import activation as ops
from tosajax.spec.enums import NanMode

# The float64 reference, the bound, and results at -infinity, +infinity, -0, +0.
FUNCTIONS = {
    "ERF": (oracle.erf, oracle.units(5), [-1.0, 1.0, -0.0, 0.0]),
    "SIGMOID": (oracle.sigmoid, oracle.sigmoid_bound, [0.0, 1.0, 0.5, 0.5]),
    "TANH": (np.tanh, oracle.tanh_bound, [-1.0, 1.0, -0.0, 0.0]),
}


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def float_values(dtype, rng):
    """Every value of the narrow types; of float32 boundaries, random bits and the curved range."""
    if np.dtype(dtype).itemsize == 2:
        return float_bounds.every_value(dtype)
    tails = [
        np.linspace(-e - 0.5, -e + 0.5, 20_000).astype(dtype) for e in (1.5, 3, 3.8, 10, 88, 103.5)
    ]
    return np.concatenate([float_bounds.samples(dtype, 600_000, rng, 5.0), *tails])


@pytest.mark.parametrize(("name", "types"), float_rows(*FUNCTIONS))
def test_float_function_meets_the_bound(name, types, rng):
    dtype = types["in_out_t"].storage
    reference, bound, _ = FUNCTIONS[name]
    x = float_values(dtype, rng)
    result = np.asarray(jax.jit(getattr(ops, name.lower()))(x))
    assert result.dtype == dtype
    float_bounds.assert_within(result, (x,), reference, bound)


@pytest.mark.parametrize(("name", "types"), float_rows(*FUNCTIONS))
def test_infinities_zeros_and_nan(name, types):
    dtype = types["in_out_t"].storage
    x = jax.device_put(np.array([-np.inf, np.inf, -0.0, 0.0, np.nan]).astype(dtype))
    expected = np.array([*FUNCTIONS[name][2], np.nan]).astype(dtype)
    assert_identical(getattr(ops, name.lower())(x), expected)


def test_erf_of_float32_stays_within_one():
    x = np.linspace(2, 6, 100_000).astype(np.float32)
    assert np.max(np.abs(ops.erf(jax.device_put(x)))) <= 1


@pytest.mark.parametrize(("name", "types"), integer_rows("CLAMP"))
@pytest.mark.parametrize("nan_mode", NanMode)
def test_clamp_of_integers(name, types, nan_mode, rng):
    dtype = types["in_out_t"].storage
    x = integers(dtype, 3000, rng)
    info = np.iinfo(dtype)
    clamp = jax.jit(lambda x, a, b: ops.clamp(x, min_val=a, max_val=b, nan_mode=nan_mode))
    for low, high in [(info.min, info.max), (-1, 0), (0, 0), (5, 7), (info.max, info.max)]:
        expected = oracle.over(lambda v, a=low, b=high: min(max(v, a), b), dtype, x)
        assert_identical(clamp(x, dtype.type(low), dtype.type(high)), expected)
        assert_identical(ops.clamp(jax.device_put(x), min_val=low, max_val=high), expected)


@pytest.mark.parametrize(("name", "types"), float_rows("CLAMP"))
@pytest.mark.parametrize("nan_mode", NanMode)
def test_clamp_of_floats(name, types, nan_mode, rng):
    dtype = types["in_out_t"].storage
    x = float_bounds.samples(dtype, 20_000, rng)
    for low, high in [(-np.inf, np.inf), (0.0, 6.0), (-1.0, -1.0), (np.inf, np.inf), (-0.5, 2.0)]:
        result = ops.clamp(jax.device_put(x), min_val=low, max_val=high, nan_mode=nan_mode)
        assert result.dtype == dtype

        def reference(v, low=low, high=high):
            limited = np.minimum(np.maximum(v, low), high)
            return np.where(np.isnan(v), low, limited) if nan_mode is NanMode.IGNORE else limited

        float_bounds.assert_within(np.asarray(result), (x,), reference, oracle.units(0))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_of_functions(name):
    x = jax.device_put(np.array([[-4.0, -0.5, 0.25, 3.7]], np.float32))
    assert_transforms(getattr(ops, name.lower()), x, exact=False)


@pytest.mark.parametrize("nan_mode", NanMode)
def test_transforms_of_clamp_with_traced_bounds(nan_mode):
    def clamp(x, low, high):
        return ops.clamp(x, min_val=low, max_val=high, nan_mode=nan_mode)

    x = jax.device_put(boundaries(np.int8)).reshape(2, -1)
    assert_transforms(clamp, x, jnp.int8(-5), jnp.int8(100))
    floats = jnp.array([[np.nan, -np.inf, np.inf, 0.5]], jnp.float16)
    assert_transforms(clamp, floats, jnp.float16(-5), jnp.float16(100))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16])
def test_gradients_are_those_of_the_formulas(dtype):
    def slope(function, at):
        return np.float32(jax.grad(function)(jax.device_put(np.asarray(at, dtype))))

    for at in (0.5, 1.75, 2.5):  # on both sides of the change of formula in erf
        expected = 2 / np.sqrt(np.pi) * np.exp(-(at**2))
        np.testing.assert_allclose(slope(ops.erf, at), expected, rtol=2e-3)
        np.testing.assert_allclose(slope(ops.erf, -at), expected, rtol=2e-3)
    assert slope(ops.erf, np.inf) == 0
    np.testing.assert_allclose(slope(ops.tanh, 0.5), 1 - np.tanh(0.5) ** 2, rtol=2e-3)
    np.testing.assert_allclose(slope(ops.sigmoid, 0.0), 0.25, rtol=2e-3)
    for nan_mode in NanMode:
        assert slope(lambda x, m=nan_mode: ops.clamp(x, min_val=0, max_val=1, nan_mode=m), 0.5) == 1
