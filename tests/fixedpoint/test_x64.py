"""64-bit values inside the scope, and nothing left of it outside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.fixedpoint import _x64

VALUES = np.array([-(1 << 47), -(1 << 31) - 1, -1, 0, 1, 1 << 31, (1 << 47) - 1])


def test_values_reach_the_device_whole():
    found = _x64.from_numpy(VALUES)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(np.asarray(found), VALUES)


def test_narrower_values_are_widened():
    for dtype in (np.int8, np.int16, np.int32):
        found = _x64.from_numpy(np.array([-3, 5], dtype))
        assert found.dtype == np.int64
        assert np.asarray(found).tolist() == [-3, 5]


def test_widen():
    with _x64.scope():
        found = _x64.widen(jnp.array([-(1 << 31), (1 << 31) - 1], jnp.int32))
        total = found + found
    assert found.dtype == np.int64
    assert np.asarray(total).tolist() == [-(1 << 32), (1 << 32) - 2]


def test_scope_ends():
    before = jax.config.read("jax_enable_x64")
    with _x64.scope():
        assert jnp.zeros(1).dtype == np.float64
    assert jax.config.read("jax_enable_x64") == before
    assert jnp.zeros(1).dtype == np.float32


def test_scope_is_the_same_whatever_the_user_has():
    with jax.enable_x64(False), _x64.scope():
        assert jnp.zeros(1).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.dtype("int64"), np.float32])
def test_the_scope_of_a_type(dtype):
    """Named 64-bit types are an error outside the scope, as set in `conftest.py`."""
    with _x64.scope_of(dtype):
        inside = jnp.zeros(2, dtype).dtype
        wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    assert inside == dtype
    assert wide == (np.dtype(dtype).itemsize == 8)
