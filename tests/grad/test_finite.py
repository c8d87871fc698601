"""Safe derivatives: 0 where those of an operator are infinite or NaN; values are left alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.transforms import assert_identical

import tosajax
from tosajax import Builder, DType, ops
from tosajax.grad._finite import finite

nan, inf = np.nan, np.inf
POINTS = np.array([0.0, -0.0, 0.25, 4.0, -1.0, 1e-30, inf, -inf, nan], np.float32)
# Derivatives in float64, as a float32 holds them; 1e-30 overflows but for LOG.
SAFE: dict[str, list[float]] = {
    "LOG": [0, 0, 4, 0.25, -1, 1e30, 0, 0, 0],
    "RECIPROCAL": [0, 0, -16, -1 / 16, -1, 0, 0, 0, 0],
    "RSQRT": [0, 0, -4, -1 / 16, 0, 0, 0, 0, 0],
}


@pytest.mark.parametrize("name", SAFE)
def test_of_one_operand(name):
    kernel = getattr(ops, name.lower())
    own = finite(kernel)
    for dtype in (jnp.float32, jnp.float16, jnp.bfloat16):
        x = jax.device_put(np.asarray(POINTS, dtype))
        assert_identical(own(x), kernel(x))
        (slopes,) = jax.jit(lambda x, own=own: jax.vjp(own, x)[1](jnp.ones_like(x)))(x)
        want = np.array(SAFE[name])
        if dtype == jnp.float16:
            want[5] = 0  # as the number itself is
        np.testing.assert_allclose(slopes.astype(jnp.float32), want, rtol=1e-2)


def test_of_powers():
    x = jnp.array([0.0, 0.0, 0.0, 2.0, 0.25, -1.0])
    y = jnp.array([0.0, 0.5, 2.0, 3.0, -0.5, 2.0])
    assert_identical(finite(ops.pow)(x, y), ops.pow(x, y))
    by_x, by_y = jax.vjp(finite(ops.pow), x, y)[1](jnp.ones(6))
    np.testing.assert_allclose(by_x, [0, 0, 0, 12, -4, 0], rtol=1e-5)
    np.testing.assert_allclose(by_y, [0, 0, 0, 8 * np.log(2), 2 * np.log(0.25), 0], rtol=1e-5)


def test_operands_that_are_broadcast():
    x, y = jnp.array([[0.0], [4.0]]), jnp.array([[0.5, 2.0, 1.0]])
    by_x, by_y = jax.vjp(finite(ops.pow), x, y)[1](jnp.ones((2, 3)))
    np.testing.assert_allclose(by_x, [[0 + 0 + 1], [0.25 + 8 + 1]], rtol=1e-6)
    np.testing.assert_allclose(by_y, np.log(4) * np.array([[2, 16, 4]]), rtol=1e-6)


def test_what_is_not_chosen_does_not_leak():
    x = jnp.array([0.0, 4.0])

    def total(x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, finite(ops.log)(x), 0).sum()

    np.testing.assert_array_equal(jax.grad(total)(x), [0, 0.25])
    np.testing.assert_array_equal(jax.hessian(total)(x), [[0, 0], [0, -1 / 16]])
    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(total)))(x[:, None]), [[0], [0.25]])


def test_graphs():
    b = Builder()
    x = b.input("x", DType.FP32, (3,))
    half = b.const(np.full(3, 0.5), DType.FP32)
    outputs = [b.op(op, x) for op in ("LOG", "RECIPROCAL", "RSQRT")] + [b.op("POW", x, half)]
    graph = b.graph(outputs)
    x = jnp.array([0.0, 1.0, 4.0])

    def slopes(**options: Any) -> Any:
        fn, params = tosajax.differentiable(graph, **options)
        return jax.jit(lambda x: [y * 1 for y in jax.jacrev(lambda x: fn(params, x))(x)])(x)

    for natural, safe in zip(slopes(), slopes(safe=True), strict=True):
        assert not np.isfinite(natural[0, 0])
        assert safe[0, 0] == 0
        np.testing.assert_array_equal(np.diagonal(safe)[1:], np.diagonal(natural)[1:])
    plain = tosajax.lower(graph)[0](dict(tosajax.lower(graph)[1]), x)
    fn, params = tosajax.differentiable(graph, safe=True)
    for found, want in zip(fn(params, x), plain, strict=True):
        assert_identical(found, want)
