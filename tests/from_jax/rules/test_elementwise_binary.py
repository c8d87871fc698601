"""Elementwise primitives of two operands, beside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elements import EIGHT_BITS, FLOATS, INTEGERS, boundary, pairs, run, same, values
from exports import operators
from jax import lax

from tosajax import UnsupportedError
from tosajax.from_jax.export import export

ARITHMETIC = (lax.add, lax.sub, lax.mul, lax.max, lax.min)


def _name(fn) -> str:
    return fn.__name__


def _each(*fns):
    """All functions of each pair of operands."""
    return lambda *operands: [fn(*pair) for pair in operands for fn in fns]


def _every_pair(dtypes, elements=boundary):
    return [pairs(elements(dtype), elements(dtype)) for dtype in dtypes]


def test_arithmetic_of_floats():
    same(_each(*ARITHMETIC), *_every_pair(FLOATS), model=1)


def test_arithmetic_of_floats_of_8_bits():
    every = _every_pair(EIGHT_BITS, lambda dtype: np.arange(256, dtype=np.uint8).view(dtype))
    same(_each(lax.add, lax.sub, lax.mul, lax.max, lax.min), *every, model=0)


def test_arithmetic_of_integers_wraps():
    narrow = _every_pair(INTEGERS[1:])
    same(_each(*ARITHMETIC), *narrow, model=0)
    same(_each(*ARITHMETIC), *_every_pair(INTEGERS[:1]), predictable=False)
    same(_each(lax.mul, lax.max, lax.min), *_every_pair(INTEGERS[:1]), model=0)


def test_sums_of_gradients():
    """JAX adds what one array has of several uses by `add_any`."""

    def fn(x, y):
        return jax.vjp(lambda x: x * x, x)[1](y)

    assert "add_any" in str(jax.make_jaxpr(fn)(np.float32(1), np.float32(1)))
    same(_each(fn), *_every_pair(FLOATS), model=1)


def test_largest_and_smallest_of_bool():
    operands = pairs(*[boundary(np.dtype(bool))] * 2)
    graph = same(_each(lax.max, lax.min), operands, model=0)
    assert operators(graph) == ["LOGICAL_OR", "LOGICAL_AND"]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_limits_that_are_constants(dtype):
    limits = [dtype.type(n) for n in (0, -3, 6, 100)]
    if dtype not in INTEGERS:
        limits += [dtype.type(n) for n in (np.inf, -np.inf, np.nan)]

    def fn(x):
        full = jnp.full_like
        sides = [fn(x, full(x, n)) for n in limits for fn in (lax.max, lax.min)]
        return [*sides, lax.max(full(x, 2), x), lax.min(full(x, 2), x)]

    same(fn, values(dtype), model=0)


def test_limits_are_one_clamp_or_nothing():
    def found(fn, dtype, target=None):
        return operators(export(fn, jax.ShapeDtypeStruct((4,), dtype), target=target))

    assert found(lambda x: lax.max(x, np.float32(0)), np.float32) == ["CLAMP"]
    assert found(lambda x: lax.min(x, np.int8(6)), np.int8) == ["CLAMP"]
    assert found(lambda x: lax.max(x, np.float32(-np.inf)), np.float32) == ["IDENTITY"]
    assert found(lambda x: lax.max(x, np.int32(0)), np.int32) == ["MAXIMUM"]
    assert found(lambda x: lax.max(x, np.int16(0)), np.int16) == ["CLAMP"]
    wide = found(lambda x: lax.max(x, np.int16(0)), np.int16, "PRO-INT")
    assert wide == ["CAST", "MAXIMUM", "CAST"]


def test_a_limit_that_is_larger_than_the_array():
    same(lambda x: lax.max(jnp.full((3,), 2.0), jnp.broadcast_to(x, (3,))), np.float32(1))


# Bits.


@pytest.mark.parametrize("fn", [lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor], ids=_name)
def test_bits(fn):
    operands = _every_pair([np.dtype(bool), *INTEGERS])
    same(_each(fn), *operands, model=0)


SHIFTS = lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic


@pytest.mark.parametrize("fn", SHIFTS, ids=_name)
def test_shifts_by_any_amount(fn):
    amounts = [0, 1, 2, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 127, -1, -2, -8, -16, -32, -128]
    operands = [pairs(boundary(dtype), np.array(amounts, dtype)) for dtype in INTEGERS]
    same(_each(fn), *operands, model=0)


@pytest.mark.parametrize("fn", SHIFTS, ids=_name)
def test_shifts_by_constants(fn):
    def shifted(*xs):
        return [fn(x, jnp.full_like(x, n)) for x in xs for n in (0, 1, 7, 8, 31, 32, -1)] + [
            fn(x, jnp.arange(x.size, dtype=x.dtype)) for x in xs
        ]

    same(shifted, *map(boundary, INTEGERS), model=0)


def test_shift_by_a_constant_is_one_operator():
    for dtype in INTEGERS:
        x = jax.ShapeDtypeStruct((4,), dtype)
        assert operators(export(lambda x: x << 3, x)) == ["LOGICAL_LEFT_SHIFT"]
        assert operators(export(lambda x: x >> 3, x)) == ["ARITHMETIC_RIGHT_SHIFT"]


# Quotients.


def test_quotients_of_floats():
    kept = [
        v[(abs(v) < 2.0**126) & (abs(v) > 2.0**-126) | (v == 0) | np.isnan(v) | np.isinf(v)]
        for v in (boundary(np.dtype(np.float32)),)
    ]
    graph = same(lax.div, *pairs(boundary(np.dtype(np.float32)), kept[0]), ulp=2, model=2)
    assert operators(graph) == ["RECIPROCAL", "MUL"]
    assert "beyond 2**126" in str(graph.source.rewrites)
    x, y = pairs(boundary(FLOATS[2]), kept[0].astype(FLOATS[2]))
    same(lax.div, x, y, ulp=0, model=1)


def test_quotients_of_float16_are_exact():
    for dtype in FLOATS[1:2]:
        graph = same(lax.div, *pairs(values(dtype), values(dtype)), model=0)
        assert not graph.source.rewrites


def test_quotients_of_floats_of_8_bits():
    every = _every_pair(EIGHT_BITS, lambda dtype: np.arange(256, dtype=np.uint8).view(dtype))
    same(_each(lax.div), *every, model=0)


def test_divisors_beyond_the_range_of_reciprocals_give_zero_as_noted():
    x, y = np.array([1e38, -np.inf], np.float32), np.array([3e38, 3e38], np.float32)
    found = run(export(lax.div, x, y, check=False), x, y)
    assert found[0] in (0, np.float32(1) / 3)
    assert np.isnan(found[1]) or found[1] == -np.inf


@pytest.mark.parametrize("divisor", [1, 2, -0.25, 2.0**100, 3, -7.5, np.inf, 0, np.nan])
def test_constant_divisors(divisor):
    is_power = abs(np.frexp(divisor)[0]) == 0.5

    def fn(*xs):
        return [x / jnp.asarray(divisor, x.dtype) for x in xs]

    wide = [values(dtype) for dtype in (FLOATS[0], FLOATS[2])]
    graph = same(fn, *wide, ulp=0 if is_power else 2, model=2)
    assert not graph.source.rewrites
    if is_power:
        assert operators(graph) == ["MUL", "MUL"]


def test_reciprocals():
    same(lambda *xs: [lax.div(jnp.ones_like(x), x) for x in xs], *map(values, FLOATS), model=1)
    graph = export(lambda x: 1 / x, jax.ShapeDtypeStruct((4,), np.float16))
    assert operators(graph) == ["RECIPROCAL"]


@pytest.mark.parametrize("fn", [lax.div, lax.rem], ids=_name)
def test_integers_are_divided_as_in_jax(fn):
    operands = _every_pair(INTEGERS, values)
    same(_each(fn), *operands, model=0)


@pytest.mark.parametrize("divisor", [1, -1, 2, 7, -7, 0, 127, -128])
def test_integers_are_divided_by_constants(divisor):
    def fn(*xs):
        return [f(x, jnp.full_like(x, divisor)) for x in xs for f in (lax.div, lax.rem)]

    same(fn, *map(values, INTEGERS), model=0)


def test_division_by_a_constant_integer_is_one_operator():
    x = jax.ShapeDtypeStruct((4,), np.int32)
    assert operators(export(lambda x: lax.div(x, np.int32(7)), x)) == ["INTDIV"]
    assert operators(export(lambda x: lax.rem(x, np.int32(7)), x)) == ["INTDIV", "MUL", "SUB"]
    several = np.array([1, 2, 3, 4], np.int32)
    assert operators(export(lambda x: lax.div(x, several), x)) == ["INTDIV"]


def test_python_remainders_and_floors():
    def fn(x, y):
        x, y = map(jnp.asarray, (x, y))
        return x % y, x // y, x % 8, x // 8

    for dtype in (INTEGERS[0], INTEGERS[2]):
        operands = pairs(boundary(dtype), np.array([1, -1, 3, -7, 100], dtype))
        # JAX subtracts 1 from all quotients, and takes the difference where it is right.
        same(fn, *operands, predictable=False)


def test_remainders_of_floats_are_exact_below_4096():
    rng = np.random.default_rng(1)
    y = (rng.uniform(0.5, 2, 20000) * 2.0 ** rng.integers(-60, 60, 20000)).astype(np.float32)
    x = (y * rng.uniform(-4000, 4000, 20000)).astype(np.float32)
    multiples = (y * rng.integers(1, 4000, 20000)).astype(np.float32)
    graph = same(_each(lax.rem), (x, y), (multiples, -y), zeros=False)
    assert "4096" in str(graph.source.rewrites)


def test_remainders_of_floats_beyond_4096_are_as_noted():
    rng = np.random.default_rng(2)
    y = rng.uniform(0.5, 2, 20000).astype(np.float32)
    x = (y * rng.uniform(4096, 2e6, 20000)).astype(np.float32)
    found = run(export(lax.rem, x, y, check=False), x, y)
    off = abs(found - np.fmod(x, y))
    assert (np.minimum(off, abs(off - y)) <= x * 2.0**-22).all()


def test_remainders_of_floats_at_the_ends():
    x, y = pairs(
        np.array([0.0, 1, -1, 7, -7, np.inf, -np.inf, np.nan, 1e-30], np.float32),
        np.array([0.0, 2, -2, 7, np.inf, -np.inf, np.nan, 3], np.float32),
    )
    same(_each(lax.rem), *((x.astype(d), y.astype(d)) for d in FLOATS), model=0, zeros=False)


# Powers.


BASES = [0.0, 1e-3, 0.5, 1, 1.5, 2, 10, np.inf]
POWERS = [0.0, 0.5, 0.75, 1, 2, 3, 4, 5, 2.5, 31, 33, 34, 2.0**25, np.inf]


def _signed(numbers, dtype):
    with np.errstate(over="ignore"):
        return np.array([*numbers, *(-n for n in numbers[1:]), np.nan], np.float32).astype(dtype)


def test_powers_of_any_base_and_exponent():
    operands = [pairs(_signed(BASES, d), _signed(POWERS, d)) for d in FLOATS]
    same(_each(lax.pow), *operands, ulp=2, model=128)


def test_powers_of_random_numbers():
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.01, 20, 5000).astype(np.float32), rng.uniform(-8, 8, 5000)
    same(lax.pow, x, y.astype(np.float32), ulp=2, model=128)


@pytest.mark.parametrize("exponent", [3, -2, 0, 32, 33, 0.75, -0.75, -1.5, 2.5, np.inf, np.nan])
def test_powers_of_constant_exponent(exponent):
    def fn(*xs):
        return [lax.pow(x, jnp.full_like(x, exponent)) for x in xs]

    xs = [_signed([n for n in BASES if n != 1e-3], dtype) for dtype in FLOATS]
    same(fn, *xs, ulp=4, model=128)


@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_powers_of_a_half_are_roots(exponent):
    x = np.array([0.0, 1, 2, 0.3, 4, 1e30, np.inf, -1, np.nan], np.float32)
    graph = same(lambda x: lax.pow(x, jnp.full_like(x, exponent)), x, ulp=2, model=16)
    assert operators(graph)[0] == "RSQRT"
    assert "infinity" in str(graph.source.rewrites)


@pytest.mark.parametrize("base", [2, 0.5, 1, 0, -2, 1e4, np.inf, np.nan])
def test_powers_of_constant_base(base):
    y = _signed(POWERS, np.float32)
    same(lambda y: lax.pow(jnp.full_like(y, base), y), y, ulp=2, model=128)


def test_powers_of_integers_as_exponents():
    x = _signed(BASES, np.float32)
    exponents = np.array([0, 1, 2, 3, -1, -2, -3, 40], np.int32)
    same(lax.pow, *pairs(x, exponents), ulp=2, model=128)
    same(lambda x: lax.pow(x, np.int32(3)), x, model=1)


def test_powers_take_few_operators():
    def found(fn):
        return operators(export(fn, jax.ShapeDtypeStruct((4,), np.float32)))

    assert found(lambda x: x**3.0) == ["MUL", "MUL"]
    assert found(lambda x: 2.0**x) == ["CLAMP", "POW", "EQUAL", "SELECT"]
    assert len(found(lambda x: lax.pow(x, jnp.full_like(x, 0.75)))) <= 8


def test_atan2():
    ends = np.array([0.0, 1, 2, 1e30, 3e38, 1e-30, np.inf], np.float32)
    same(lax.atan2, *pairs(_signed(ends, np.float32), _signed(ends, np.float32)), ulp=4, model=8)
    narrow = [pairs(_signed(ends[:3], d), _signed(ends[:3], d)) for d in FLOATS[1:]]
    same(_each(lax.atan2), *narrow, ulp=1, model=1)


# Broadcasting, constants and errors.


def test_scalars_and_repeated_axes_need_no_node():
    def fn(x, y):
        return lax.add(x, np.float32(1)) * jnp.broadcast_to(y[:, None], (3, 4))

    graph = same(fn, np.ones((3, 4), np.float32), np.array([1, 2, 3], np.float32), model=0)
    assert operators(graph) == ["ADD", "RESHAPE", "MUL"]


def test_arrays_of_rank_0_beside_others():
    fns = lax.add, lax.mul, lax.max, lax.div, lax.rem, lax.pow, lax.atan2

    def fn(x, y):
        constant = jnp.full_like(y, 2)
        return [f(*p) for f in fns for p in ((x, y), (y, x), (x, constant), (constant, x))]

    same(fn, np.float32(3), np.array([1, 2.5, 7], np.float32), ulp=4, zeros=False)
    integers = lax.div, lax.rem, lax.shift_left, lax.bitwise_and
    same(lambda x, y: [f(x, y) for f in integers], np.int32(3), np.array([1, 0, -1, 40], np.int32))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lax.nextafter, "nextafter.*eps"),
        (lax.complex, "complex.*real and imaginary parts"),
        (lambda x, y: lax.add(x.astype(jnp.int4), y.astype(jnp.int4)), "int4"),
    ],
    ids=["nextafter", "complex", "int4"],
)
def test_what_is_missing_says_what_to_do(fn, message):
    x = jax.ShapeDtypeStruct((2,), np.float32)
    with pytest.raises(UnsupportedError, match=message):
        export(fn, x, x)


def test_mulhi_says_what_to_do():
    x = jax.ShapeDtypeStruct((2,), np.int32)
    with pytest.raises(UnsupportedError, match=r"mulhi.*15 bits"):
        export(lax.mulhi, x, x)
