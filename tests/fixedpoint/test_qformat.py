"""Q-format arithmetic against Python integers."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_oracle
from oracle.wide import operations_of_64_bits

from tosajax.fixedpoint import _x64, qformat

SHIFTS = [*range(-70, 71), -(2**31), 2**31 - 1]
AMOUNTS = [*range(71), 1000, 2**31 - 1]
WIDTHS = [32, 64]


def put(values, bits):
    return (
        _x64.from_numpy(np.array(values))
        if bits == 64
        else jax.device_put(np.asarray(values, jnp.int32))
    )


def dtype_of(bits):
    return np.int64 if bits == 64 else np.int32


def boundaries(bits):
    """Powers of two, ties of every shift, and their neighbours, in both signs; random ones."""
    rng = np.random.default_rng(bits)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    powers = [1 << k for k in range(bits)]
    ties = [odd << k for k in range(bits - 4) for odd in (3, 5, 7)]
    near = {s * v + d for v in (0, *powers, *ties) for s in (1, -1) for d in (-1, 0, 1)}
    random = rng.integers(low, high, 100, endpoint=True).tolist()
    return sorted({v for v in near if low <= v <= high} | set(random))


def grid(*columns):
    """All combinations, a column each."""
    return [x.ravel().tolist() for x in np.meshgrid(*(np.array(c, object) for c in columns))]


def limited(shift):
    """Shifts in Python cost memory: beyond 200 bits nothing changes."""
    return max(-200, min(200, shift))


def check(function, oracle, values, other, bits, dtype):
    """Equality over a grid of values and of shifts."""
    values, other = grid(values, other)
    expected = [oracle(v, limited(s)) for v, s in zip(values, other, strict=True)]
    result = jax.jit(function)(put(values, bits), jax.device_put(np.asarray(other, jnp.int32)))
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("bits", WIDTHS)
def test_saturating_shift(bits):
    dtype = dtype_of(bits)
    oracle = functools.partial(hifi_oracle.shift_and_saturate, dtype=dtype)
    check(qformat.saturating_shift, oracle, boundaries(bits), SHIFTS, bits, dtype)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("rounding", ["up", "away"])
def test_rounding_shift_right(rounding, bits):
    function = getattr(qformat, f"shift_right_half_{rounding}")
    exact = getattr(hifi_oracle, f"round_half_{rounding}")
    check(function, lambda v, n: exact(v, 1 << n), boundaries(bits), AMOUNTS, bits, dtype_of(bits))


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("out", [np.int8, np.uint8, np.int16, np.int32])
def test_shift_and_round(out, bits):
    function = functools.partial(qformat.shift_and_round, dtype=out)
    oracle = functools.partial(hifi_oracle.shift_and_round, dtype=out)
    check(function, oracle, boundaries(bits), SHIFTS, bits, out)


@pytest.mark.parametrize(
    ("bits", "out"),
    [(b, t) for b in WIDTHS for t in (np.int8, np.uint8, np.int16, np.int32)] + [(64, np.int64)],
)
def test_saturate_to(bits, out):
    values = boundaries(bits)
    expected = [hifi_oracle.saturate(v, out) for v in values]
    result = jax.jit(functools.partial(qformat.saturate_to, dtype=out))(put(values, bits))
    assert result.dtype == out
    np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("amount", [-64, -1, 0, 31])
def test_a_constant_shift_equals_a_traced_one(amount, bits):
    value = put(boundaries(bits), bits)
    shift, right = qformat.saturating_shift, qformat.shift_right_half_away
    for same in (amount, np.array(amount, np.int64), jnp.int8(amount)):
        np.testing.assert_array_equal(shift(value, same), jax.jit(shift)(value, jnp.int32(amount)))
        if amount >= 0:
            expected = jax.jit(right)(value, jnp.int32(amount))
            np.testing.assert_array_equal(right(value, same), expected)


@pytest.mark.parametrize("bias_type", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("bits", WIDTHS)
def test_add_shifted(bits, bias_type):
    info = np.iinfo(bias_type)
    ends = {info.min, info.min + 1, -5, -1, 0, 1, 5, info.max - 1, info.max}
    acc = [v for v in boundaries(bits)[::5] if abs(v) < 2**62]
    acc, bias = grid(acc, sorted(int(b) for b in ends))
    given = _x64.from_numpy(np.array(bias)) if bias_type is np.int64 else None
    given = jax.device_put(np.array(bias, bias_type)) if given is None else given
    function = jax.jit(qformat.add_shifted)
    for shift in (-64, -31, -2, -1, 0, 1, 30, 31, 63):
        expected = [
            a + hifi_oracle.shift_and_saturate(b, shift, np.int64)
            for a, b in zip(acc, bias, strict=True)
        ]
        wrapped = [(e + 2**63) % 2**64 - 2**63 for e in expected]
        result = function(put(acc, bits), given, jnp.int32(shift))
        assert result.dtype == np.int64
        np.testing.assert_array_equal(np.asarray(result), wrapped)


MULTIPLIERS = [0, 1, 2, 3, 2**16, 2**30 - 1, 2**30, 2**30 + 1, 3 * 2**29, 2**31 - 2, 2**31 - 1]


def requantize_cases():
    rng = np.random.default_rng(5)
    random = rng.integers(2**30, 2**31, 5).tolist()
    # By a power of two every odd value is a tie of the first rounding.
    small = list(range(-40, 41))
    values, multipliers = grid(sorted({*boundaries(32), *small}), [*MULTIPLIERS, *random])
    return values, multipliers


@pytest.mark.parametrize("known", [True, False], ids=["constant", "traced"])
def test_requantize(known):
    values, multipliers = requantize_cases()
    value, multiplier = (
        jax.device_put(np.asarray(x, jnp.int32))[None] for x in (values, multipliers)
    )
    shifts = np.arange(-31, 32, dtype=np.int32)[:, None]
    expected = hifi_oracle.requantize(values, multipliers, shifts)
    if known:
        result = jax.jit(lambda v, m: qformat.requantize(v, m, shifts))(value, multiplier)
    else:
        result = jax.jit(qformat.requantize)(value, multiplier, jax.device_put(shifts))
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shift", [-31, 0, 7])
@pytest.mark.parametrize("make", [int, np.int64, jnp.int8])
def test_requantize_takes_any_number(shift, make):
    value = jax.device_put(np.asarray([-(2**31), -77, 0, 12345, 2**31 - 1], jnp.int32))
    expected = hifi_oracle.requantize(value, 3 * 2**29, shift)
    result = qformat.requantize(value, jnp.int32(3 * 2**29), make(shift))
    np.testing.assert_array_equal(result, expected)


def test_requantize_by_channel():
    value = np.array([[-100, 7, 2**31 - 1], [5, -6, -(2**31)]])
    multiplier, shift = np.array([2**30, 2**31 - 1, 3 * 2**29]), np.array([-1, 4, 0])
    expected = hifi_oracle.requantize(value, multiplier, shift)
    row = jax.device_put(np.asarray(multiplier[None], jnp.int32))
    for given in (shift[None], jax.device_put(np.asarray(shift[None], jnp.int32))):
        function = jax.jit(functools.partial(qformat.requantize, shift=given))
        result = function(jax.device_put(np.asarray(value, jnp.int32)), row)
        np.testing.assert_array_equal(result, expected.astype(np.int64))


@pytest.mark.parametrize("rounding", ["up", "away"])
def test_multiply_q31(rounding):
    values = [*boundaries(32)[::3], -(2**31), -(2**30), 2**30, 2**31 - 1]
    a, b = grid(values, values)
    exact = getattr(hifi_oracle, f"round_half_{rounding}")
    expected = [
        hifi_oracle.saturate(exact(x * y, 1 << 31), np.int32) for x, y in zip(a, b, strict=True)
    ]
    function = getattr(qformat, f"multiply_q31_half_{rounding}")
    result = jax.jit(function)(
        jax.device_put(np.asarray(a, jnp.int32)), jax.device_put(np.asarray(b, jnp.int32))
    )
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


def test_the_two_q31_products_differ_on_negative_ties_only():
    a, half = jax.device_put(np.asarray([-3, -2, -1, 1, 2, 3], jnp.int32)), jnp.int32(2**30)
    np.testing.assert_array_equal(qformat.multiply_q31_half_up(a, half), [-1, -1, 0, 1, 1, 2])
    np.testing.assert_array_equal(qformat.multiply_q31_half_away(a, half), [-2, -1, -1, 1, 1, 2])


FUNCTIONS = {
    "saturating_shift": qformat.saturating_shift,
    "shift_right_half_up": lambda v, s: qformat.shift_right_half_up(v, abs(s)),
    "shift_right_half_away": lambda v, s: qformat.shift_right_half_away(v, abs(s)),
    "shift_and_round": lambda v, s: qformat.shift_and_round(v, s, np.int16),
    "add_shifted": lambda v, s: qformat.add_shifted(
        v, jax.device_put(np.asarray([3, -9, 77], jnp.int8)), s
    ),
    "requantize": lambda v, s: qformat.requantize(v, jnp.int32(3 * 2**29), s),
    "multiply_q31_half_up": lambda v, s: qformat.multiply_q31_half_up(v, s << 20),
}


def widths(name):
    return [32] if name in ("requantize", "multiply_q31_half_up") else WIDTHS


@pytest.mark.parametrize(("name", "bits"), [(n, b) for n in FUNCTIONS for b in widths(n)])
def test_transforms(name, bits):
    function = FUNCTIONS[name]
    ends = np.iinfo(dtype_of(bits))
    rows = np.array([[ends.min, 77, -5], [ends.max, -77, 0], [3, 12345, -54321]])
    value, shift = put(rows, bits), jax.device_put(np.asarray([-3, 30, -1], jnp.int32))
    parts = [put(row, bits) for row in rows]
    expected = np.stack([np.asarray(function(v, s)) for v, s in zip(parts, shift, strict=True)])
    for result in (
        jax.vmap(function)(value, shift),
        jax.vmap(jax.jit(function))(value, shift),
        jax.jit(jax.vmap(function))(value, shift),
        jax.lax.scan(lambda carry, xs: (carry, function(*xs)), 0, (value, shift))[1],
    ):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize(
    "name", [n for n in FUNCTIONS if n not in ("add_shifted", "multiply_q31_half_up")]
)
def test_int32_stays_int32(name):
    inputs = jnp.ones((2, 3), jnp.int32), jnp.ones((2,), jnp.int32)
    text = jax.jit(jax.vmap(FUNCTIONS[name])).lower(*inputs).as_text()
    assert not operations_of_64_bits(text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_floats(name):
    text = jax.jit(FUNCTIONS[name]).lower(jnp.ones(3, jnp.int32), jnp.int32(3)).as_text()
    assert "f64" not in text
    assert "f32" not in text
