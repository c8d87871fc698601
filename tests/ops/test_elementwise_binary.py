"""Elementwise binary operators against Python integers and float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle.elementwise_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, float_rows, integer_rows, integers, pairs, rows
from oracle.transforms import assert_identical, assert_transforms
from oracle.wide import operations_of_64_bits

from tosajax.dtypes import DType
from tosajax.ops import elementwise_binary as ops
from tosajax.spec.enums import NanMode

SHIFTS = ["ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"]
BITWISE = ["BITWISE_AND", "BITWISE_OR", "BITWISE_XOR"]
LOGICAL = ["LOGICAL_AND", "LOGICAL_OR", "LOGICAL_XOR"]
INT32 = np.dtype(np.int32)
NARROW = (DType.INT8, DType.INT16)


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def shift_operands(dtype, rng):
    bits = np.iinfo(dtype).bits
    values = np.arange(-128, 128, dtype=dtype) if bits == 8 else integers(dtype, 2000, rng)
    value, shift = np.meshgrid(values, np.arange(bits, dtype=dtype))
    return value.reshape(-1), shift.reshape(-1)


@pytest.mark.parametrize(("name", "function"), [("ADD", int.__add__), ("SUB", int.__sub__)])
def test_add_and_sub_of_int32_are_exact_where_they_do_not_overflow(name, function, rng):
    a, b = pairs(np.int32, rng)
    defined = [oracle.fits(function(int(x), int(y))) for x, y in zip(a, b, strict=True)]
    a, b = a[defined], b[defined]
    result = getattr(ops, name.lower())(a, b)
    assert_identical(result, oracle.over(function, np.int32, a, b))


@pytest.mark.parametrize("round", [False, True])
@pytest.mark.parametrize(("name", "types"), integer_rows("ARITHMETIC_RIGHT_SHIFT"))
def test_arithmetic_right_shift(name, types, round, rng):
    dtype = types["in_out_t"].storage
    a, b = shift_operands(dtype, rng)
    expected = oracle.over(lambda x, s: oracle.arithmetic_right_shift(x, s, round), dtype, a, b)
    assert_identical(
        ops.arithmetic_right_shift(jax.device_put(a), jax.device_put(b), round=round), expected
    )


@pytest.mark.parametrize(
    ("name", "types"), integer_rows("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT")
)
def test_logical_shift_works_within_the_width_of_the_type(name, types, rng):
    dtype = types["in_out_t"].storage
    bits = np.iinfo(dtype).bits
    a, b = shift_operands(dtype, rng)
    reference = getattr(oracle, name.lower())
    expected = oracle.over(lambda x, s: reference(x, s, bits), dtype, a, b)
    assert_identical(getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b)), expected)


@pytest.mark.parametrize(("name", "types"), integer_rows(*BITWISE))
def test_bitwise(name, types, rng):
    dtype = types["in_out_t"].storage
    a, b = pairs(dtype, rng)
    function = {"AND": int.__and__, "OR": int.__or__, "XOR": int.__xor__}[name.split("_")[1]]
    result = getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b))
    assert_identical(result, oracle.over(function, dtype, a, b))


@pytest.mark.parametrize("name", LOGICAL)
def test_logical(name):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    expected = {"AND": [0, 0, 0, 1], "OR": [0, 1, 1, 1], "XOR": [0, 1, 1, 0]}[name.split("_")[1]]
    assert_identical(getattr(ops, name.lower())(a, b), np.array(expected, bool))


def test_intdiv_truncates_toward_zero(rng):
    a, b = pairs(np.int32, rng)
    small = rng.integers(-9, 10, a.size, np.int32)
    a, b = np.concatenate([a, a, small]), np.concatenate([b, small, np.roll(small, 1)])
    defined = (b != 0) & ~((a == INT32.type(-(2**31))) & (b == -1))
    a, b = a[defined], b[defined]
    assert_identical(
        ops.intdiv(jax.device_put(a), jax.device_put(b)), oracle.over(oracle.intdiv, np.int32, a, b)
    )


def test_intdiv_by_zero_does_not_fail():
    assert ops.intdiv(jnp.array([1, -(2**31)], jnp.int32), jnp.array([0, -1], jnp.int32)).shape == (
        2,
    )


@pytest.mark.parametrize(("name", "types"), integer_rows("MAXIMUM", "MINIMUM"))
@pytest.mark.parametrize("nan_mode", NanMode)
def test_maximum_and_minimum_of_integers(name, types, nan_mode, rng):
    dtype = types["in_out_t"].storage
    a, b = pairs(dtype, rng)
    function = max if name == "MAXIMUM" else min
    result = getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b), nan_mode=nan_mode)
    assert_identical(result, oracle.over(function, dtype, a, b))


@pytest.mark.parametrize(("name", "types"), float_rows("MAXIMUM", "MINIMUM"))
@pytest.mark.parametrize("nan_mode", NanMode)
def test_maximum_and_minimum_of_floats(name, types, nan_mode, rng):
    dtype = types["in_out_t"].storage
    grid = np.concatenate([float_bounds.boundaries(dtype), float_bounds.samples(dtype, 200, rng)])
    a, b = (x.reshape(-1) for x in np.meshgrid(grid, grid))
    function = getattr(np, name.lower())
    if nan_mode is NanMode.IGNORE:
        function = np.fmax if name == "MAXIMUM" else np.fmin
    result = getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b), nan_mode=nan_mode)
    float_bounds.assert_within(np.asarray(result), (a, b), function, oracle.units(0))


@pytest.mark.parametrize(
    ("name", "types"), rows("MUL", where=lambda types: types["in_t"] in NARROW)
)
def test_mul_of_narrow_integers_is_the_full_product(name, types, rng):
    a, b = pairs(types["in_t"].storage, rng)
    result = ops.mul(jax.device_put(a), jax.device_put(b), jnp.zeros(1, jnp.int8))
    assert_identical(result, oracle.over(lambda x, y: x * y, np.int32, a, b))


@pytest.mark.parametrize("shift", range(64))
def test_mul_of_int32_rounds_half_up_at_every_shift(shift, rng):
    a, b = pairs(np.int32, rng, 2000)
    # Products near 2**(shift + 31) have the largest results; near 2**shift, ties and signs.
    for bits in (shift, shift + 31):
        size = np.clip(bits - rng.integers(0, 32, 500), 0, 31)
        scaled = [
            rng.integers(-(2**31), 2**31, 500) >> (31 - np.clip(n, 0, 31))
            for n in (size, bits - size)
        ]
        a, b = np.append(a, scaled[0].astype(np.int32)), np.append(b, scaled[1].astype(np.int32))
    exact = [oracle.mul(int(x), int(y), shift) for x, y in zip(a, b, strict=True)]
    defined = np.array([oracle.fits(v) for v in exact])
    if shift == 63:  # product + 2**62 overflows the accumulator of 64 bits
        defined &= (a != -(2**31)) | (b != -(2**31))
    assert defined.sum() > 100
    result = np.asarray(jax.jit(ops.mul)(a, b, np.array([shift], np.int8)))
    np.testing.assert_array_equal(
        result[defined], np.array(exact, object)[defined].astype(np.int32)
    )


def test_mul_of_int32_hits_ties_of_both_signs():
    a = np.array([1, -1, 3, -3, 5, -5, 2**30, -(2**30)], np.int32)
    for shift in (1, 2, 30, 31, 32, 33, 61, 62):
        factor = min(2 ** (shift - 1), 2**30)
        b = np.full_like(a, factor)
        expected = [oracle.mul(int(x), factor, shift) for x in a]
        result = ops.mul(jax.device_put(a), jax.device_put(b), jnp.array([shift], jnp.int8))
        np.testing.assert_array_equal(result, np.array([oracle.wrap(v, 32) for v in expected]))


@pytest.mark.parametrize(("name", "types"), float_rows("ADD", "SUB", "MUL"))
def test_float_arithmetic_is_rounded_correctly(name, types, rng):
    dtype = next(iter(types.values())).storage
    edge = float_bounds.boundaries(dtype)
    grid = [x.reshape(-1) for x in np.meshgrid(edge, edge)]
    a, b = (
        np.concatenate([edges, rng.permutation(float_bounds.samples(dtype, 50_000, rng))])
        for edges in grid
    )
    function = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply}[name]
    extra = [jnp.zeros(1, jnp.int8)] if name == "MUL" else []
    result = getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b), *extra)
    assert result.dtype == dtype
    bound = oracle.units(0.5)
    float_bounds.assert_within(np.asarray(result), (a, b), function, bound)


@pytest.mark.parametrize(("name", "types"), float_rows("POW"))
def test_pow(name, types, rng):
    dtype = types["in_out_t"].storage
    base = np.abs(float_bounds.samples(dtype, 60_000, rng))
    near_one = (1 + rng.normal(scale=0.05, size=20_000)).astype(dtype)
    edge = [x.reshape(-1) for x in np.meshgrid(*[float_bounds.boundaries(dtype)] * 2)]
    a = np.concatenate([base, near_one, np.abs(edge[0])])
    exponent = rng.permutation(float_bounds.samples(dtype, 60_000, rng))
    b = np.concatenate([exponent, rng.normal(scale=200, size=20_000).astype(dtype), edge[1]])
    wide_a, wide_b = float_bounds.widen(a), float_bounds.widen(b)
    # Subnormal values that are flushed leave open what zeros do.
    positive = [float_bounds.widen(float_bounds.flush(x)) > 0 for x in (a, b)]
    defined = np.isfinite(wide_a) & np.isfinite(wide_b) & (positive[0] | positive[1])
    a, b = a[defined], b[defined]
    result = ops.pow(jax.device_put(a), jax.device_put(b))
    assert result.dtype == dtype
    float_bounds.assert_within(np.asarray(result), (a, b), np.power, oracle.pow_bound)


@pytest.mark.parametrize(("name", "types"), float_rows("POW"))
def test_pow_of_subnormal_values_in_short_arrays(name, types):
    dtype = types["in_out_t"].storage
    a = (np.array([0.004, 0.5, 0.75]) * float_bounds.normal_min(dtype)).astype(dtype)
    power = jax.jit(ops.pow)
    for exponent in (0.5, 1, 0.01, 3):
        b = np.full(3, exponent, dtype)
        float_bounds.assert_within(np.asarray(power(a, b)), (a, b), np.power, oracle.pow_bound)


def test_table_of_int8_reads_every_entry(rng):
    entries = rng.permutation(np.arange(-128, 128)).astype(np.int8)
    values = np.arange(-128, 128, dtype=np.int8)
    result = ops.table(jax.device_put(values), jax.device_put(entries))
    assert_identical(result, np.array([entries[int(v) + 128] for v in values], np.int8))


def test_table_of_int16_interpolates_every_value(rng):
    entries = np.cumsum(rng.integers(-4000, 4000, 513)).clip(-32768, 32767).astype(np.int16)
    entries[:3] = [-32768, -1, 32766]  # the steepest slopes that are defined
    values = np.arange(-32768, 32768, dtype=np.int16)
    table = [int(v) for v in entries]
    expected = oracle.over(lambda v: oracle.lookup(table, v), np.int32, values)
    assert_identical(ops.table(jax.device_put(values), jax.device_put(entries)), expected)


BROADCAST = [((2, 1, 3), (1, 4, 3)), ((1, 1), (3, 2)), ((), ()), ((5,), (1,))]


@pytest.mark.parametrize(
    "name",
    ["ADD", "SUB", "INTDIV", "MAXIMUM", "MUL", "LOGICAL_RIGHT_SHIFT", "POW", *BITWISE, *LOGICAL],
)
def test_axes_of_size_one_are_broadcast(name, rng):
    dtype = {"POW": np.float32}.get(name, np.bool_ if name in LOGICAL else np.int32)
    pairs = [[rng.integers(1, 9, s).astype(dtype) for s in shapes] for shapes in BROADCAST]
    full = [
        [np.broadcast_to(x, np.broadcast_shapes(*s)) for x in p]
        for p, s in zip(pairs, BROADCAST, strict=True)
    ]
    extra = [np.zeros(1, np.int8)] if name == "MUL" else []

    @jax.jit
    def run(pairs):
        return [getattr(ops, name.lower())(a, b, *extra) for a, b in pairs]

    for result, expected, (a, _) in zip(run(pairs), run(full), full, strict=True):
        assert expected.shape == a.shape
        assert_identical(result, expected)


@pytest.mark.parametrize("shift", [0, 31])
def test_transforms_of_mul_with_a_traced_shift(shift, rng):
    a, b = (jax.device_put(integers(np.int32, 300, rng)).reshape(3, 100) for _ in range(2))
    assert_transforms(ops.mul, a, b, jnp.array([shift], jnp.int8))


def test_transforms_of_a_table_of_int16(rng):
    entries = jax.device_put(rng.integers(-9000, 9000, 513, np.int16))
    assert_transforms(ops.table, jax.device_put(boundaries(np.int16)), entries)


def test_gradients_of_floats_are_those_of_the_formulas():
    x, y = jnp.float32(1.5), jnp.float32(-2.0)
    shift = jnp.zeros(1, jnp.int8)
    assert jax.grad(lambda a: ops.mul(a, y, shift))(x) == -2
    assert jax.grad(lambda a: ops.sub(y, a))(x) == -1
    np.testing.assert_allclose(jax.grad(ops.pow)(x, y), -2 * 1.5**-3, rtol=1e-6)
    for nan_mode in NanMode:
        assert jax.grad(lambda a, m=nan_mode: ops.maximum(a, y, nan_mode=m))(x) == 1


def test_64_bit_types_scale_products(rng):
    a = jax.device_put(integers(np.int32, 10, rng))
    text = jax.jit(ops.mul).lower(a, a, jnp.zeros(1, jnp.int8)).as_text()
    assert not operations_of_64_bits(text)
