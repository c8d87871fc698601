"""Data layout operators against loops over the elements, on bit patterns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import oracle.data_layout_oracle as oracle
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import data_layout as ops


@pytest.fixture
def rng():
    return np.random.default_rng(59)


def values(dtype, shape, rng):
    """Distinct values where the type has enough of them, limits and NaN among them."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "i":
        pool = boundaries(dtype)
    elif dtype.itemsize == 1:
        pool = float_bounds.every_value(dtype)
    else:
        pool = float_bounds.samples(dtype, 300, rng)
    return rng.choice(pool, shape, replace=int(np.prod(shape)) > pool.size)


@pytest.mark.parametrize(("name", "types"), rows("CONCAT"))
def test_concat(name, types, rng):
    dtype = types["in_out_t"].storage
    for axis in range(3):
        sizes = [2, 1, 3]
        inputs = [values(dtype, [n if d == axis else 2 for d in range(3)], rng) for n in sizes]
        result = ops.concat([jax.device_put(x) for x in inputs], axis=axis)
        assert_identical(result, oracle.concat(inputs, axis))
    single = values(dtype, (4,), rng)
    assert_identical(ops.concat([jax.device_put(single)], axis=0), single)


@pytest.mark.parametrize(("name", "types"), rows("PAD"))
def test_pad(name, types, rng):
    dtype = types["in_out_t"].storage
    x = values(dtype, (2, 3, 4), rng)
    pad = jax.jit(ops.pad, static_argnums=1)
    for padding in [(0, 0, 0, 0, 0, 0), (1, 2, 0, 3, 4, 0), (0, 1, 1, 0, 0, 2)]:
        for constant in values(dtype, (2,), rng):
            result = pad(x, padding, np.array([constant], dtype))
            assert_identical(result, oracle.pad(x, padding, constant))


@pytest.mark.parametrize(("name", "types"), rows("RESHAPE"))
def test_reshape(name, types, rng):
    x = values(types["in_out_t"].storage, (2, 3, 4), rng)
    for shape in [(24,), (4, 3, 2), (1, 6, 1, 4), (2, 3, 4)]:
        assert_identical(ops.reshape(jax.device_put(x), shape), oracle.reshape(x, shape))
    single = values(types["in_out_t"].storage, (1, 1), rng)
    scalar = ops.reshape(jax.device_put(single), ())
    assert_identical(scalar, single.reshape(()))
    assert_identical(ops.reshape(scalar, (1, 1, 1)), single.reshape(1, 1, 1))


@pytest.mark.parametrize(("name", "types"), rows("REVERSE"))
def test_reverse(name, types, rng):
    x = values(types["in_out_t"].storage, (2, 3, 4), rng)
    for axis in range(3):
        assert_identical(ops.reverse(jax.device_put(x), axis=axis), oracle.reverse(x, axis))


@pytest.mark.parametrize(("name", "types"), rows("SLICE"))
def test_slice(name, types, rng):
    x = values(types["in_out_t"].storage, (2, 3, 4), rng)
    for start, size in [((0, 0, 0), (2, 3, 4)), ((1, 2, 3), (1, 1, 1)), ((0, 1, 0), (2, 2, 3))]:
        assert_identical(ops.slice(jax.device_put(x), start, size), oracle.slice(x, start, size))


@pytest.mark.parametrize(("name", "types"), rows("TILE"))
def test_tile(name, types, rng):
    x = values(types["in_out_t"].storage, (2, 1, 3), rng)
    for multiples in [(1, 1, 1), (2, 3, 4), (1, 5, 1), (3, 1, 2)]:
        assert_identical(ops.tile(jax.device_put(x), multiples), oracle.tile(x, multiples))


@pytest.mark.parametrize(("name", "types"), rows("TRANSPOSE"))
def test_transpose(name, types, rng):
    x = values(types["in_out_t"].storage, (2, 3, 4), rng)
    for perms in [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]:
        assert_identical(ops.transpose(jax.device_put(x), perms=perms), oracle.transpose(x, perms))


@pytest.mark.parametrize(("name", "types"), rows("PAD"))
def test_transforms_of_pad_with_a_traced_constant(name, types, rng):
    dtype = types["in_out_t"].storage
    x = jax.device_put(values(dtype, (2, 3), rng))
    constant = jnp.zeros(1, dtype)
    assert_transforms(lambda x, c: ops.pad(x, (1, 0, 0, 2), c), x, constant)


@pytest.mark.parametrize("dtype", [np.dtype(np.int8), float_bounds.FLOATS["FP8E4M3"]])
def test_transforms(dtype, rng):
    x = jax.device_put(values(dtype, (2, 3, 4), rng))
    assert_transforms(lambda a, b: ops.concat([a, b, a], axis=1), x, ops.reverse(x, axis=0))
    assert_transforms(lambda x: ops.reshape(x, (4, 6)), x)
    assert_transforms(lambda x: ops.reverse(x, axis=2), x)
    assert_transforms(lambda x: ops.slice(x, (0, 1, 2), (1, 2, 2)), x)
    assert_transforms(lambda x: ops.tile(x, (2, 1, 3)), x)
    assert_transforms(lambda x: ops.transpose(x, perms=(2, 0, 1)), x)


@pytest.mark.parametrize("batched", [False, True])
def test_gradients_of_pad_count_the_copies_for_either_input_alone(batched):
    def total(x, constant):
        return ops.pad(x, (1, 0, 0, 1), constant).sum()

    x, constant = jnp.ones((2, 3), jnp.float32), jnp.zeros(1, jnp.float32)
    of_constant, of_both = jax.grad(total, 1), jax.grad(total, (0, 1))
    if batched:
        x, constant = x[None], constant[None]
        of_constant, of_both = jax.vmap(of_constant), jax.vmap(of_both)
    assert_identical(of_constant(x, constant).ravel(), np.array([6], np.float32))
    gradients = of_both(x, constant)
    assert_identical(gradients[0], np.ones(x.shape, np.float32))
    assert_identical(gradients[1].ravel(), np.array([6], np.float32))


def test_gradient_of_tile_counts_the_copies():
    x = jnp.ones((2, 3), jnp.float32)
    tiled = jax.grad(lambda x: ops.tile(x, (2, 5)).sum())(x)
    assert_identical(tiled, np.full((2, 3), 10, np.float32))
