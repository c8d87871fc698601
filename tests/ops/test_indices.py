"""ARGMAX against a loop over Python numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import float_bounds
from oracle.table_rows import integers, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops.indices import argmax
from tosajax.spec.enums import NanMode


def reference(values: np.ndarray, nan_mode: NanMode) -> int:
    """The first index that no other beats; NaN is beyond every number, on either side."""
    nan_rank = 1 if nan_mode is NanMode.PROPAGATE else -1
    keys = [(nan_rank, 0.0) if math.isnan(v) else (0, float(v)) for v in values]
    return keys.index(max(keys))


def values(dtype, rng, length=7):
    """Rows with ties, with NaN in every place, only of NaN, and random ones."""
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        narrow = rng.choice(np.array([info.min, -1, 0, info.max], dtype), (60, length))
        return np.concatenate([narrow, integers(dtype, 100 * length, rng).reshape(100, length)])
    has_infinity = dtype.name != "float8_e4m3fn"
    special = [math.nan, -math.inf if has_infinity else -448.0, -0.0, 0.0]
    few = rng.choice(np.array(special).astype(dtype), (200, length))
    tiny = rng.choice(float_bounds.boundaries(dtype), (200, length))
    tiny = tiny[~np.isnan(tiny).any(axis=1)]
    only_nan = np.full((1, length), np.nan).astype(dtype)
    return np.concatenate(
        [few, tiny, only_nan, float_bounds.samples(dtype, 100 * length, rng).reshape(100, length)]
    )


@pytest.mark.parametrize("length", [7, 40])
@pytest.mark.parametrize("nan_mode", NanMode)
@pytest.mark.parametrize(("name", "types"), rows("ARGMAX"))
def test_every_type(name, types, nan_mode, length):
    dtype = types["in_t"].storage
    x = values(dtype, np.random.default_rng(41), length)
    result = np.asarray(jax.jit(lambda x: argmax(x, axis=1, nan_mode=nan_mode))(x))
    assert result.dtype == np.int32
    expected = np.array([reference(row, nan_mode) for row in x])
    if types["in_t"].is_float and float_bounds.may_flush(dtype):
        flushed = np.array([reference(row, nan_mode) for row in float_bounds.flush(x)])
        expected = np.where(result == flushed, flushed, expected)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_every_axis(axis, dtype):
    x = np.random.default_rng(43).integers(-3, 4, (2, 3, 4, 5)).astype(dtype)
    assert_identical(argmax(jax.device_put(x), axis=axis), np.argmax(x, axis).astype(np.int32))


def test_rank_one_gives_rank_zero():
    assert argmax(jnp.array([1, 5, 5], jnp.int8), axis=0).shape == ()


@pytest.mark.parametrize("nan_mode", NanMode)
@pytest.mark.parametrize(("name", "types"), rows("ARGMAX"))
def test_transforms(name, types, nan_mode):
    x = jax.device_put(values(types["in_t"].storage, np.random.default_rng(47)))[:5]
    assert_transforms(lambda x: argmax(x, axis=1, nan_mode=nan_mode), x)
