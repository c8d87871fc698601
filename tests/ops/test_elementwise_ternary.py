"""SELECT against NumPy, on bit patterns."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import float_bounds
from oracle.table_rows import boundaries, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import elementwise_ternary as ops


def values(dtype, shape, rng):
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    edge = boundaries(dtype) if dtype.kind == "i" else float_bounds.boundaries(dtype)
    return rng.choice(edge, shape)


@pytest.mark.parametrize(("name", "types"), rows("SELECT"))
def test_select_broadcasts_all_three(name, types):
    dtype = types["in_out_t"].storage
    rng = np.random.default_rng(29)
    for dims in itertools.permutations([(3, 4), (1, 4), (3, 1)]):
        condition = rng.integers(0, 2, dims[0]).astype(bool)
        yes, no = values(dtype, dims[1], rng), values(dtype, dims[2], rng)
        expected = np.where(condition, yes, no)
        assert_identical(jax.jit(ops.select)(condition, yes, no), expected)


def test_rank_zero():
    assert ops.select(jnp.bool_(True), jnp.int8(3), jnp.int8(4)) == 3


@pytest.mark.parametrize(("name", "types"), rows("SELECT"))
def test_transforms(name, types):
    rng = np.random.default_rng(31)
    dtype = types["in_out_t"].storage
    condition = jnp.array([[True], [False]])
    assert_transforms(
        ops.select, condition, *(jax.device_put(values(dtype, (1, 5), rng)) for _ in range(2))
    )


def test_gradient_reaches_only_the_chosen_input():
    condition = jnp.array([True, False])
    a, b = jnp.ones(2, jnp.float32), jnp.zeros(2, jnp.float32)
    gradient = jax.grad(lambda a, b: ops.select(condition, a, b).sum(), (0, 1))(a, b)
    assert_identical(gradient[0], np.array([1, 0], np.float32))
    assert_identical(gradient[1], np.array([0, 1], np.float32))
