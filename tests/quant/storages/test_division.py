"""Quotients: the bits, and the gradient."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax.quant.storages.division import divide, reciprocal

ODD = np.array([0.0, -0.0, 1.5, -3.0, 1e15, -1e-15, np.inf, -np.inf, np.nan], np.float32)
RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(0, 3, shape).astype(np.float32)


@pytest.mark.parametrize("shapes", [((64, 5), ()), ((64, 5), (1, 5)), ((5,), (64, 5)), ((), (7,))])
def test_quotients_are_rounded_once(shapes):
    """Also by a scalar or a constant, by which XLA would multiply the reciprocal."""
    a, b = (np.asarray(draw(*shape)) for shape in shapes)
    wanted = a / b
    np.testing.assert_array_equal(jax.jit(divide)(a, b), wanted)
    np.testing.assert_array_equal(jax.jit(functools.partial(divide, b=jnp.asarray(b)))(a), wanted)


def test_quotients_of_odd_numbers():
    numbers = jnp.asarray(ODD)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        wanted = ODD[:, None] / ODD
    np.testing.assert_array_equal(jax.jit(divide)(numbers[:, None], numbers), wanted)


def test_the_reciprocal():
    x = draw(1000)
    np.testing.assert_array_equal(jax.jit(reciprocal)(x), np.float32(1) / x)


@pytest.mark.parametrize(
    "shapes", [((4, 5), ()), ((4, 5), (1, 5)), ((4, 5), (4, 5)), ((5,), (4, 5))]
)
def test_gradients_are_those_of_a_quotient(shapes):
    a, b = (np.asarray(draw(*shape)) for shape in shapes)
    b = np.where(np.abs(b) < 0.5, np.float32(0.5), b)
    cotangent = draw(4, 5)

    def total(a: jax.Array, b: jax.Array) -> jax.Array:
        return (divide(a, b) * cotangent).sum()

    of_a, of_b = jax.grad(total, (0, 1))(a, b)
    wide_a, wide_b, c = (x.astype(np.float64) for x in (a, b, cotangent))
    for found, each in ((of_a, c / wide_b), (of_b, -c * wide_a / wide_b**2)):
        extra = tuple(range(each.ndim - found.ndim))
        ones = tuple(
            i + len(extra) for i, n in enumerate(found.shape) if n == 1 < each.shape[i + len(extra)]
        )
        wanted = each.sum(extra + ones, keepdims=bool(ones)).reshape(found.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    for at, found in ((0, of_a), (1, of_b)):  # by one operand alone
        np.testing.assert_array_equal(jax.grad(total, at)(a, b), found)


def test_forward_mode_and_second_derivatives():
    a, b = jnp.float32(3), jnp.float32(2)
    _, moved = jax.jvp(divide, (a, b), (jnp.float32(5), jnp.float32(7)))
    np.testing.assert_allclose(moved, 5 / 2 - 3 * 7 / 4)
    for turn in (jax.jacfwd, jax.jacrev):
        second = turn(jax.grad(lambda a, b: divide(a, b), (0, 1)), (0, 1))(a, b)
        np.testing.assert_allclose(second, [[0, -1 / 4], [-1 / 4, 2 * 3 / 8]], rtol=1e-6)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (1, 0)])
def test_a_batch_is_its_examples(axes):
    a, b = (draw(3, 3) if axis is not None else draw(3) for axis in axes)
    wanted = [
        (np.take(a, i, axes[0]) if axes[0] is not None else a)
        / (np.take(b, i, axes[1]) if axes[1] is not None else b)
        for i in range(3)
    ]
    np.testing.assert_array_equal(jax.jit(jax.vmap(divide, axes))(a, b), wanted)


def test_a_batch_of_scalars_and_vectors():
    a, b = draw(4), draw(4, 3)
    np.testing.assert_array_equal(jax.vmap(divide)(jnp.asarray(a), jnp.asarray(b)), a[:, None] / b)


def test_quotients_that_overflow_have_no_gradient_where_none_arrives():
    a, b = jnp.array([3e38, 1], jnp.float32), jnp.array([1e-3, 2], jnp.float32)
    of_a, of_b = jax.grad(lambda a, b: divide(a, b)[1], (0, 1))(a, b)
    np.testing.assert_array_equal(of_a, [0, 0.5])
    np.testing.assert_array_equal(of_b, [0, -0.25])
