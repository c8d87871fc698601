"""GATHER and SCATTER against loops over the elements, on bit patterns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle.data_layout_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import scatter_gather as ops


@pytest.fixture
def rng():
    return np.random.default_rng(61)


def values(dtype, shape, rng):
    return rng.choice(
        boundaries(dtype) if dtype.kind == "i" else float_bounds.samples(dtype, 200, rng), shape
    )


@pytest.mark.parametrize(("name", "types"), rows("GATHER"))
def test_gather(name, types, rng):
    dtype = types["in_out_t"].storage
    x = values(dtype, (3, 5, 4), rng)
    for width in (1, 5, 9):
        indices = rng.integers(0, 5, (3, width), np.int32)
        indices[0, 0], indices[-1, -1] = 4, 0
        assert_identical(jax.jit(ops.gather)(x, indices), oracle.gather(x, indices))


@pytest.mark.parametrize(("name", "types"), rows("SCATTER"))
def test_scatter(name, types, rng):
    dtype = types["in_out_t"].storage
    x = values(dtype, (3, 5, 4), rng)
    for width in (1, 3, 5):
        indices = np.stack([rng.permutation(5)[:width] for _ in range(3)]).astype(np.int32)
        update = values(dtype, (3, width, 4), rng)
        result = jax.jit(ops.scatter)(x, indices, update)
        assert_identical(result, oracle.scatter(x, indices, update))


@pytest.mark.parametrize("wrong", [-1, 5, -6, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_disturbs_nothing_else(wrong, rng):
    x = jax.device_put(values(np.dtype(np.int32), (1, 5, 4), rng))
    indices = jnp.array([[2, wrong]], jnp.int32)
    gathered = ops.gather(x, indices)
    assert_identical(gathered[:, 0], x[:, 2])
    update = jnp.full((1, 2, 4), 7, jnp.int32)
    assert_identical(ops.scatter(x, indices, update), x.at[0, 2].set(7))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, float_bounds.FLOATS["FP8E5M2"]])
def test_transforms(dtype, rng):
    x = jax.device_put(values(np.dtype(dtype), (2, 5, 3), rng))
    indices = jnp.array([[0, 4, 2], [3, 1, 0]], jnp.int32)
    rows = ops.gather(x, indices)
    assert_transforms(ops.gather, x, indices)
    assert_transforms(ops.scatter, x, indices, rows)


def test_gradients_reach_the_rows_that_were_read():
    x = jnp.ones((1, 3, 1), jnp.float32)
    indices = jnp.array([[2, 2, 0]], jnp.int32)
    gradient = jax.grad(lambda x: ops.gather(x, indices).sum())(x)
    assert_identical(gradient.ravel(), np.array([1, 0, 2], np.float32))
    update = jnp.ones((1, 2, 1), jnp.float32)
    kept, written = jax.grad(lambda x, u: ops.scatter(x, indices[:, 1:], u).sum(), (0, 1))(
        x, update
    )
    assert_identical(kept.ravel(), np.array([0, 1, 0], np.float32))
    assert_identical(written.ravel(), np.array([1, 1], np.float32))
