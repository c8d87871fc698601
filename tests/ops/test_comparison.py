"""Comparisons against Python."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import float_bounds
from oracle.table_rows import float_rows, pairs
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import comparison as ops

FUNCTIONS = {"EQUAL": operator.eq, "GREATER": operator.gt, "GREATER_EQUAL": operator.ge}


@pytest.fixture
def rng():
    return np.random.default_rng(37)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_integers(name, rng):
    a, b = pairs(np.int32, rng)
    expected = [FUNCTIONS[name](int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert_identical(getattr(ops, name.lower())(a, b), np.array(expected))


@pytest.mark.parametrize(("name", "types"), float_rows(*FUNCTIONS))
def test_floats(name, types, rng):
    dtype = types["in_t"].storage
    grid = np.concatenate([float_bounds.boundaries(dtype), float_bounds.samples(dtype, 200, rng)])
    a, b = (x.reshape(-1) for x in np.meshgrid(grid, grid))
    result = np.asarray(getattr(ops, name.lower())(jax.device_put(a), jax.device_put(b)))
    plain, flushed = (
        [FUNCTIONS[name](float(x), float(y)) for x, y in zip(*operands, strict=True)]
        for operands in ((a, b), (float_bounds.flush(a), float_bounds.flush(b)))
    )
    assert result.dtype == bool
    assert np.all((result == plain) | (result == flushed))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_infinities_zeros_and_nan(name):
    values = np.array([-np.inf, -0.0, 0.0, np.inf, np.nan], np.float32)
    a, b = (x.reshape(-1) for x in np.meshgrid(values, values))
    expected = [FUNCTIONS[name](float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert_identical(getattr(ops, name.lower())(a, b), np.array(expected))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_broadcasting_and_transforms(name, rng):
    for dtype in (np.int32, np.float16):
        a = jax.device_put(rng.integers(-2, 3, (2, 1, 3)).astype(dtype))
        b = jax.device_put(rng.integers(-2, 3, (1, 4, 3)).astype(dtype))
        function = getattr(ops, name.lower())
        assert_identical(function(a, b), FUNCTIONS[name](np.asarray(a), np.asarray(b)))
        assert_transforms(function, a, b)
    assert jax.jit(function)(jnp.int32(2), jnp.int32(2)) == (name != "GREATER")
