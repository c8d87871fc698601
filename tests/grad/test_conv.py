"""Gradients of convolutions are those of the operators on real numbers, whatever the window."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import DType, ops
from tosajax.grad import QTensor, conv

# By operator: the shapes of input, weight and bias, and attributes whose axes all differ.
CASES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    (
        "conv2d",
        [(2, 7, 8, 3), (4, 2, 3, 3), (4,)],
        {"pad": (1, 0, 2, 1), "stride": (2, 1), "dilation": (1, 3)},
    ),
    (
        "conv2d",
        [(2, 7, 8, 3), (4, 1, 1, 3), (4,)],
        {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)},
    ),
    (
        "conv2d",
        [(2, 7, 8, 3), (4, 1, 1, 3), (1,)],
        {"pad": (1, 0, 0, 2), "stride": (1, 1), "dilation": (1, 1)},
    ),
    (
        "conv3d",
        [(1, 4, 5, 7, 2), (3, 2, 1, 3, 2), (1,)],
        {"pad": (1, 0, 0, 2, 2, 1), "stride": (1, 2, 3), "dilation": (2, 1, 1)},
    ),
    (
        "depthwise_conv2d",
        [(2, 7, 8, 3), (2, 3, 3, 2), (6,)],
        {"pad": (1, 0, 2, 1), "stride": (2, 1), "dilation": (1, 3)},
    ),
    (
        "depthwise_conv2d",
        [(1, 11, 20, 2), (9, 8, 2, 3), (1,)],
        {"pad": (3, 2, 1, 0), "stride": (1, 3), "dilation": (1, 2)},
    ),
    (
        "transpose_conv2d",
        [(2, 3, 4, 3), (4, 2, 3, 3), (4,)],
        {"out_pad": (-1, 1, 2, -2), "stride": (1, 2)},
    ),
]


@pytest.mark.parametrize(("name", "shapes", "attributes"), CASES)
def test_gradients_are_those_of_real_numbers(name, shapes, attributes):
    rng = np.random.default_rng(7)
    types = (np.int8, np.int8, np.int32)
    integers = [rng.integers(-99, 99, s).astype(t) for s, t in zip(shapes, types, strict=True)]
    integers += [np.array([5], np.int8), np.array([-3], np.int8)]
    numbers = tuple(jnp.asarray(q, jnp.float32) for q in integers)
    kernel, floats = getattr(conv, name), getattr(ops, name)

    def surrogate(*shadows: jax.Array) -> jax.Array:
        operands = (QTensor(jnp.asarray(q), s) for q, s in zip(integers, shadows, strict=True))
        return kernel(*operands, **attributes, acc_type=DType.INT32).shadow

    def real(*values: jax.Array) -> jax.Array:
        x, weight, bias, x_zp, weight_zp = values
        zero = jnp.zeros(1, jnp.float32)
        operands = (x - x_zp.reshape(()), weight - weight_zp.reshape(()), bias, zero, zero)
        return floats(*operands, **attributes, acc_type=DType.FP32)

    def both(function: Any) -> Any:
        result, pull = jax.vjp(function, *numbers)
        slopes = jnp.asarray(np.random.default_rng(8).normal(size=result.shape), jnp.float32)
        return result, pull(slopes)

    found, expected = (jax.jit(lambda f=f: both(f))() for f in (surrogate, real))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize(("name", "shapes", "attributes"), CASES)
def test_floats_have_the_bits_of_the_operator_and_these_gradients(name, shapes, attributes):
    rng = np.random.default_rng(9)
    operands = tuple(jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes)
    zero = jnp.zeros(1, jnp.float32)

    def both(kernel: Any) -> Any:
        def function(*operands: jax.Array) -> jax.Array:
            return kernel(*operands, zero, zero, **attributes, acc_type=DType.FP32)

        result, pull = jax.vjp(function, *operands)
        slopes = jnp.asarray(np.random.default_rng(8).normal(size=result.shape), jnp.float32)
        return result, pull(slopes)

    kernels = getattr(conv, name), getattr(ops, name)
    (result, found), (wanted, expected) = (jax.jit(lambda f=f: both(f))() for f in kernels)
    np.testing.assert_array_equal(result, wanted)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())
