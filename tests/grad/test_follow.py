"""A value to the last bit, with the gradient of another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from oracle.float_bounds import boundaries, flush
from oracle.transforms import assert_identical, assert_transforms

from tosajax.grad.qtensor import follow


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, jnp.float8_e5m2])
def test_values_keep_every_bit(dtype):
    values = boundaries(np.dtype(dtype))
    # XLA:CPU loses subnormals of bfloat16 where it stacks them.
    stacked = flush(values) if dtype == jnp.bfloat16 else values
    for source in (1.0, -jnp.inf, jnp.nan):
        source = jnp.full(values.shape, source)
        assert_identical(follow(jax.device_put(values), source), values)
        assert_identical(jax.jit(follow)(jax.device_put(values), source), values)
        assert_transforms(follow, jax.device_put(stacked), source)


def test_gradients_are_those_of_the_source():
    value, source = jnp.array([1.0, jnp.nan, -0.0], jnp.float16), jnp.array([3.0, -2.0, jnp.inf])
    (along, other) = jnp.array([2.0, 0.5, -1.0], jnp.float16), jnp.array([7.0, -3.0, 0.25])
    result, moved = jax.jvp(follow, (value, source), (along, other))
    assert_identical(result, value)
    assert_identical(moved, other.astype(jnp.float16))
    by_value, by_source = jax.vjp(follow, value, source)[1](along)
    assert_identical(by_value, jnp.zeros_like(value))
    assert_identical(by_source, along.astype(jnp.float32))
    # Of the value alone: none, as of a constant, in the type of the result.
    (moved,) = jax.jvp(lambda value: follow(value, source), (value,), (along,))[1:]
    assert_identical(moved, jnp.zeros_like(value))


@pytest.mark.parametrize("axes", [(0, None), (None, 1), (1, 0), (2, 2)])
def test_batches(axes):
    shapes = [(3, 4) if axis is None else np.insert((3, 4), axis, 2) for axis in axes]
    value, source = (jnp.arange(np.prod(s), dtype=jnp.float32).reshape(s) for s in shapes)

    def slopes(value: Any, source: Any) -> Any:
        return jax.jvp(lambda s: follow(value, s**2), (source,), (jnp.ones_like(source),))

    found = jax.vmap(slopes, in_axes=axes)(value, source)
    for n in range(2):
        one = [
            x if axis is None else jnp.take(x, n, axis)
            for x, axis in zip((value, source), axes, strict=True)
        ]
        for part, want in zip(found, slopes(*one), strict=True):
            np.testing.assert_array_equal(part[n], want)


def test_second_derivatives_in_a_scan():
    def looped(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (follow(jnp.round(c), c**2), None), x, length=2)[0]

    def unrolled(x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = follow(jnp.round(x), x**2)
        return x

    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            found, want = (outer(inner(f))(jnp.float32(3.4)) for f in (looped, unrolled))
            assert found == want == 2 * 2 * 3.4 * 2 * 3.4 + 2 * 3 * 2
