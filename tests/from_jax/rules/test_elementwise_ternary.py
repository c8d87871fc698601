"""Choices and limits, beside JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elements import EIGHT_BITS, FLOATS, INTEGERS, boundary, same, values
from exports import operators
from jax import lax

from tosajax.from_jax.export import export

pytestmark = pytest.mark.usefixtures("quick")

ALL = [np.dtype(bool), *FLOATS, *INTEGERS, *EIGHT_BITS]
ONE_CLAMP = [*FLOATS, *INTEGERS[1:]]


def _cases(dtype, count):
    return [np.roll(boundary(dtype), n) for n in range(count)]


def test_choices_of_two_by_bool():
    cases = [_cases(dtype, 2) for dtype in ALL]
    masks = [np.arange(len(case[0])) % 3 > 0 for case in cases]

    def fn(masks, cases):
        return [lax.select_n(mask, *case) for mask, case in zip(masks, cases, strict=True)]

    same(fn, masks, cases, model=0)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_choices_by_number(count):
    """Numbers without a case count as the nearest."""

    def fn(which, *cases):
        return lax.select_n(which, *cases)

    which = np.array([-(2**31), -1, 0, 1, 2, 3, 4, 5, 2**31 - 1], np.int32)
    cases = [np.full(9, n, np.float32) for n in range(count)]
    if count > 1:  # XLA does not look at the number of one case.
        nearest = np.clip(which, 0, count - 1).astype(np.float32)
        np.testing.assert_array_equal(fn(which, *cases), nearest)
    graph = same(fn, which, *cases, model=0)
    assert operators(graph).count("SELECT") == count - 1


@pytest.mark.parametrize("which", [True, False, *np.array([-7, 0, 1, 2, 9], np.int32)])
def test_choices_by_one_for_all(which):
    x, y = _cases(np.dtype(np.int8), 2)
    same(lax.select_n, np.asarray(which), x, y, model=0)
    graph = same(lambda x, y: lax.select_n(np.asarray(which), x, y), x, y)
    assert operators(graph) == ["IDENTITY"]


def test_choices_by_a_constant_mask():
    x, y = (np.arange(12, dtype=np.float32).reshape(3, 4) + n for n in (0, 100))
    mask = np.arange(12).reshape(3, 4) % 2 == 0
    graph = same(lambda x, y: jnp.where(mask, x, y), x, y, model=0)
    assert operators(graph) == ["SELECT"]
    graph = same(lambda x, y: jnp.where(np.ones((3, 4), bool), x, y), x, y)
    assert operators(graph) == ["IDENTITY"]


def test_choices_repeat_what_repeats():
    def fn(x, mask):
        return jnp.where(mask[:, None], x, 0), jnp.where(mask[:, None], 1, x)

    x, mask = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([True, False, True])
    graph = same(fn, x, mask, model=0)
    assert operators(graph) == ["RESHAPE", "SELECT", "SELECT"]


def _clamped(low, high):
    return lambda *xs: [
        lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype)) for x in xs
    ]


@pytest.mark.parametrize(("low", "high"), [(-3, 6), (0, 0), (6, -3), (-128, 127)])
def test_clamps_of_constant_bounds(low, high):
    same(_clamped(low, high), *map(values, (*FLOATS, *INTEGERS, *EIGHT_BITS)), model=0)


@pytest.mark.parametrize(
    ("low", "high"),
    [(-np.inf, 2.5), (1.0, np.inf), (np.nan, 1.0), (0.0, np.nan), (np.inf, -np.inf)],
)
def test_clamps_of_floats_by_infinity_and_nan(low, high):
    same(_clamped(low, high), *map(values, FLOATS), model=0)


def test_clamps_are_one_operator_where_it_has_the_type():
    def found(dtype, target=None, bounds=(-3, 6)):
        x = jax.ShapeDtypeStruct((4,), dtype)
        return operators(export(_clamped(*bounds), x, target=target))

    for dtype in ONE_CLAMP:
        assert found(dtype) == ["CLAMP"]
    assert found(np.int32) == ["MAXIMUM", "MINIMUM"]
    assert "CLAMP" not in found(np.int16, "PRO-INT")
    assert found(np.float32, bounds=(6, -3)) == ["MAXIMUM", "MINIMUM"]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_clamps_of_bounds_that_are_arrays(dtype):
    low, x, high = (np.roll(boundary(dtype), n) for n in (0, 3, 7))
    same(lax.clamp, low, x, high, model=0)
    same(lambda x: lax.clamp(low, x, high), x, model=0)
    same(lax.clamp, dtype.type(-2), x, dtype.type(5), model=0)
