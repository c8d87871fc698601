"""Exact sums against Python's fractions."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.sweep import exact


def _array(dtype: Any, values: Any) -> np.ndarray:
    return np.asarray(values, dtype)


f32 = functools.partial(_array, np.float32)
i32 = functools.partial(_array, np.int32)
u32 = functools.partial(_array, np.uint32)
add = jax.jit(exact.add)
join = jax.jit(exact.join)

LARGEST = np.float32(np.finfo(np.float32).max)
TINY = np.float32(2.0**-149)  # the least subnormal
SUBNORMAL = np.uint32(0x7FFFFF).view(np.float32)  # the greatest
NORMAL = np.float32(2.0**-126)  # the least normal

TERMS = {
    "nothing": np.zeros(0, np.float32),
    "zeros": f32([0.0, -0.0]),
    "one": f32([1.0]),
    "minus one": f32([-1.0]),
    "halves": f32([4095, 4096, 4097, 2**24 - 1, 1 - 2**24, 2**12 * 3]),
    "subnormals": f32([TINY, -TINY, TINY, SUBNORMAL, NORMAL, -NORMAL, TINY]),
    "subnormal and normal units": f32([NORMAL, SUBNORMAL, 2 * NORMAL, -SUBNORMAL]),
    "largest": f32([LARGEST, LARGEST, LARGEST]),
    "largest, negative": f32([-LARGEST, -LARGEST]),
    "cancellation": f32([LARGEST, 1.0, -LARGEST, TINY, 2.0**60, -(2.0**60)]),
    "every power": f32([2.0**e for e in range(-149, 128)]),
    "every power, signs": f32([(-1.0) ** e * 1.9999999 * 2.0**e for e in range(-126, 127)]),
    "int32": i32([2**31 - 1, -(2**31), -1, 0, 1, 2**24 + 1, -(2**24) - 1, 65535, 65536]),
    "least int32": i32([-(2**31)] * 3),
    "greatest int32": i32([2**31 - 1] * 3),
    "uint32": u32([2**32 - 1, 2**32 - 1, 0, 2**31, 2**24 + 1]),
    "bool": np.array([True, False, True]),
}
terms = pytest.mark.parametrize("values", TERMS.values(), ids=TERMS)


def _sum(values: np.ndarray) -> Fraction:
    return sum((Fraction(v.item()) for v in values.reshape(-1)), Fraction(0))


def _total(*parts: Any) -> np.ndarray:
    return np.asarray(
        functools.reduce(lambda total, part: add(total, part), parts, exact.nothing())
    )


def _value(*parts: Any) -> Fraction | float:
    return exact.value(_total(*parts))


@terms
def test_sums_are_exact(values: np.ndarray) -> None:
    assert _value(values) == _sum(values)


@terms
def test_order_and_shares_do_not_matter(values: np.ndarray) -> None:
    whole = _total(values)
    rng = np.random.default_rng(5)
    mixed = rng.permutation(values)
    np.testing.assert_array_equal(_total(mixed), whole)
    for at in {0, 1, len(values) // 2, len(values)}:
        first, second = mixed[:at], mixed[at:]
        np.testing.assert_array_equal(_total(second, first), whole)
        np.testing.assert_array_equal(join(_total(first), _total(second)), whole)


def test_nothing_is_zero() -> None:
    total = exact.nothing()
    assert total.dtype == jnp.int32
    assert total.shape == (2, 2, 256)
    assert exact.value(np.asarray(total)) == 0


def test_random_bits() -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, size=(40, 25), dtype=np.uint32)
    values = bits.view(np.float32)
    values = np.where(np.isfinite(values), values, np.float32(1))
    whole = _total(values)
    assert exact.value(whole) == _sum(values)
    # Sums of rows, joined as a tree.
    rows = [_total(row) for row in values]
    while len(rows) > 1:
        rows = [
            np.asarray(join(*rows[i : i + 2])) if len(rows[i : i + 2]) == 2 else rows[i]
            for i in range(0, len(rows), 2)
        ]
    np.testing.assert_array_equal(rows[0], whole)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_random_integers(dtype: Any) -> None:
    info = np.iinfo(dtype)
    values = np.random.default_rng(2).integers(info.min, info.max, size=500, dtype=dtype)
    assert _value(values) == sum(map(int, values))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_nan_for_good(value: float) -> None:
    values = f32([1.0, value, 2.0])
    assert math.isnan(_value(values))  # type: ignore[arg-type]
    assert math.isnan(_value(values, f32([1.0])))  # type: ignore[arg-type]
    joined = join(_total(f32([1.0])), _total(values))
    assert math.isnan(exact.value(np.asarray(joined)))  # type: ignore[arg-type]


def test_infinities_do_not_cancel() -> None:
    both = f32([math.inf, -math.inf])
    assert math.isnan(_value(both))  # type: ignore[arg-type]
    assert math.isnan(_value(both[:1], both[1:]))  # type: ignore[arg-type]
    # Nor do 2**16 terms, whose count has a low word of 0.
    many = np.full(2**16, math.inf, np.float32)
    assert math.isnan(_value(many))  # type: ignore[arg-type]
    assert math.isnan(_value(many, -many))  # type: ignore[arg-type]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [2**19 - 1, 2**19, 2**19 + 1, 2**20 + 3])
def test_many_terms_of_one_power(size: int, sign: int) -> None:
    """All bits of an integer set: the halves come closest to the limit of int32."""
    value = np.float32(sign * (2**24 - 1))
    values = np.full(size, value)
    assert exact.value(np.asarray(exact.add(exact.nothing(), jnp.asarray(values)))) == size * int(
        value
    )


def test_totals_of_2_to_the_35_terms() -> None:
    """The total of a long sweep over a large data set, by doubling."""
    for value in (2**24 - 1, 1 - 2**24):
        total = _total(np.full(2**10, value, np.float32))
        for _ in range(24):
            total = join(total, total)
        total = np.asarray(join(total, _total(np.full(2**10, -value, np.float32))))
        assert exact.value(total) == value * (2**34 - 2**10)
        most = np.asarray(join(total, total))
        assert exact.value(most) == value * (2**35 - 2**11)


def test_shapes_do_not_matter() -> None:
    values = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    whole = _total(values)
    np.testing.assert_array_equal(_total(values.reshape(-1)), whole)
    np.testing.assert_array_equal(_total(*values), whole)
    assert exact.value(_total(np.float32(2.5))) == Fraction(5, 2)


@pytest.mark.parametrize("name", ["subnormals", "int32", "uint32", "bool"])
def test_vmap_is_a_loop(name: str) -> None:
    rows = np.stack([TERMS[name], TERMS[name][::-1], np.roll(TERMS[name], 1)])
    rows[1, 0] = rows[0, 0]
    start = jnp.stack([exact.nothing()] * len(rows))
    many = jax.jit(jax.vmap(exact.add))(start, rows)
    for row, found in zip(rows, np.asarray(many), strict=True):
        np.testing.assert_array_equal(found, _total(row))
        assert exact.value(found) == _sum(row)
    joined = jax.vmap(exact.join)(many, many)
    assert exact.value(np.asarray(joined[0])) == 2 * _sum(rows[0])


def test_eager_is_jit() -> None:
    values = TERMS["cancellation"]
    np.testing.assert_array_equal(exact.add(exact.nothing(), jnp.asarray(values)), _total(values))


def test_totals_that_devices_summed_may_be_joined() -> None:
    """Low words that are too large, as after `psum`."""
    parts = [_total(f32([2**24 - 1, -3.5, TINY, -LARGEST])) for _ in range(7)]
    summed = np.sum(parts, axis=0, dtype=np.int32)
    found = np.asarray(join(exact.nothing(), summed))
    np.testing.assert_array_equal(found, functools.reduce(join, parts))


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.float16, jnp.bfloat16])
def test_other_types(dtype: Any) -> None:
    with pytest.raises(TypeError, match="expected float32, int32, uint32 or bool"):
        exact.add(exact.nothing(), jnp.zeros(3, dtype))
