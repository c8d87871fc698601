"""Elementwise unary operators against Python integers and float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle.elementwise_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, float_rows, integer_rows, integers
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import elementwise_unary as ops

# The float64 reference, the bound, and results that the specification lists:
# at -infinity, +infinity, -0, +0.
NAN = np.nan
FUNCTIONS = {
    "ABS": (np.abs, oracle.units(0), [np.inf, np.inf, 0.0, 0.0]),
    "CEIL": (np.ceil, oracle.units(0.5), [-np.inf, np.inf, -0.0, 0.0]),
    "COS": (oracle.cosine, oracle.cos_bound, [NAN, NAN, 1.0, 1.0]),
    "EXP": (np.exp, oracle.exp_bound, [0.0, np.inf, 1.0, 1.0]),
    "FLOOR": (np.floor, oracle.units(0.5), [-np.inf, np.inf, -0.0, 0.0]),
    "LOG": (np.log, oracle.log_bound, [NAN, np.inf, -np.inf, -np.inf]),
    "RECIPROCAL": (np.reciprocal, oracle.units(1), [-0.0, 0.0, -np.inf, np.inf]),
    "RSQRT": (oracle.rsqrt, oracle.units(2), [NAN, 0.0, -np.inf, np.inf]),
    "SIN": (oracle.sine, oracle.sin_bound, [NAN, NAN, -0.0, 0.0]),
}


@pytest.fixture
def rng():
    return np.random.default_rng(19)


def float_values(dtype, rng):
    """Every value of the narrow types; of float32 boundaries, random bits and the edges of exp."""
    if np.dtype(dtype).itemsize == 2:
        return float_bounds.every_value(dtype)
    edges = [-104.0, -88.4, -87.34, 88.37, 88.73]
    dense = [np.linspace(e - 0.1, e + 0.1, 20_000).astype(dtype) for e in edges]
    return np.concatenate([float_bounds.samples(dtype, 1_000_000, rng, 110.0), *dense])


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


@pytest.mark.parametrize(("name", "types"), float_rows("EXP"))
def test_subnormal_values_of_short_arrays(name, types):
    """As they are or as zeros; XLA:CPU has different code for few and for many."""
    dtype = types["in_out_t"].storage
    x = np.array([0.004, 0.5, -0.75]) * float_bounds.normal_min(dtype)
    program = jax.jit(lambda x: {name: getattr(ops, name.lower())(x) for name in FUNCTIONS})
    for name, result in program(x.astype(dtype)).items():
        reference, bound, _ = FUNCTIONS[name]
        float_bounds.assert_within(np.asarray(result), (x.astype(dtype),), reference, bound)


@pytest.mark.parametrize(("name", "types"), float_rows("NEGATE"))
def test_negate_of_floats_flips_the_sign(name, types, rng):
    dtype = types["in_out_t"].storage
    x = float_values(dtype, rng)
    zero = jnp.zeros(1, dtype)
    result = np.asarray(ops.negate(jax.device_put(x), zero, zero))
    float_bounds.assert_within(result, (x,), np.negative, oracle.units(0))
    signed = jax.device_put(np.array([-np.inf, np.inf, -0.0, 0.0]).astype(dtype))
    assert_identical(ops.negate(signed, zero, zero), np.asarray(signed)[[1, 0, 3, 2]])


@pytest.mark.parametrize(("name", "types"), integer_rows("NEGATE"))
def test_negate_of_integers_saturates(name, types, rng):
    dtype = types["in_out_t"].storage
    bits = np.iinfo(dtype).bits
    x = np.arange(-128, 128, dtype=dtype) if bits == 8 else integers(dtype, 2000, rng)
    if bits == 32:
        x = x[x != -(2**31)]  # its negation overflows the accumulator
    zero_points = [-128, -127, -1, 0, 1, 126, 127] if bits == 8 else [0]
    negate = jax.jit(ops.negate)
    for input_zp in zero_points:
        for output_zp in zero_points:
            zps = [np.array([z], dtype) for z in (input_zp, output_zp)]
            expected = oracle.over(
                lambda v, i=input_zp, o=output_zp: oracle.negate(v, i, o, bits), dtype, x
            )
            assert_identical(negate(x, *zps), expected)


def test_abs_of_int32(rng):
    x = integers(np.int32, 2000, rng)
    x = x[x != -(2**31)]
    assert_identical(ops.abs(jax.device_put(x)), oracle.over(int.__abs__, np.int32, x))


@pytest.mark.parametrize(("name", "types"), integer_rows("BITWISE_NOT"))
def test_bitwise_not(name, types, rng):
    dtype = types["in_out_t"].storage
    x = integers(dtype, 2000, rng)
    assert_identical(ops.bitwise_not(jax.device_put(x)), oracle.over(int.__invert__, dtype, x))


def test_clz(rng):
    x = integers(np.int32, 2000, rng)
    assert_identical(ops.clz(jax.device_put(x)), oracle.over(oracle.clz, np.int32, x))


def test_logical_not():
    x = jnp.array([True, False])
    assert_identical(ops.logical_not(x), np.array([False, True]))


@pytest.mark.parametrize("name", [*FUNCTIONS, "BITWISE_NOT", "CLZ", "LOGICAL_NOT"])
def test_transforms(name):
    x = jax.device_put(np.array([[0.5, 1.5, 2.25]], np.float32))
    if name in ("BITWISE_NOT", "CLZ"):
        x = jax.device_put(boundaries(np.int32))
    if name == "LOGICAL_NOT":
        x = jnp.array([True, False, False])
    assert_transforms(getattr(ops, name.lower()), x, exact=x.dtype != jnp.float32)


def test_transforms_of_negate_with_traced_zero_points():
    x = jax.device_put(boundaries(np.int8)).reshape(1, -1)
    zps = [jnp.array([z], jnp.int8) for z in (-128, 125)]
    assert_transforms(ops.negate, x, *zps)


def test_rank_zero():
    zero = jnp.zeros(1, jnp.int8)
    assert ops.exp(jnp.float32(0)) == 1
    assert ops.negate(jnp.int8(-128), zero, zero) == 127


@pytest.mark.parametrize(
    ("name", "slope"),
    [("EXP", np.exp(0.5)), ("LOG", 2.0), ("RECIPROCAL", -4.0), ("RSQRT", -(2**0.5)), ("ABS", 1.0)],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_are_those_of_the_formulas(name, slope, dtype):
    gradient = jax.grad(getattr(ops, name.lower()))(jax.device_put(np.asarray(0.5, dtype)))
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient.astype(jnp.float32), slope, rtol=1e-2)


def test_gradient_of_log_at_zero_is_infinite():
    assert jax.grad(ops.log)(jnp.float32(0)) == np.inf


def test_clz_of_a_constant():
    """XLA itself counts -32 for a negative constant."""
    values = np.array([-(2**31), -5, -1, 0, 1, 2**31 - 1], np.int32)
    expected = [0, 0, 0, 32, 31, 1]
    np.testing.assert_array_equal(jax.jit(lambda: ops.clz(jax.device_put(values)))(), expected)
    assert [int(jax.jit(lambda v=v: ops.clz(jnp.int32(v)))()) for v in values] == expected
