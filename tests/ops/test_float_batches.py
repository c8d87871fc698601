"""Floats have the bits that their example has alone, in every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.runtime.compiled import compiler_options

EXAMPLES = 64
BATCHES = (2, 7, EXAMPLES)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def check(operator: Callable[[jax.Array], jax.Array], x: np.ndarray) -> None:
    """Each of the examples `x` alone, and several in `vmap`, as `compile` runs them."""
    options = compiler_options(jax.default_backend())
    alone = jax.jit(operator, compiler_options=options)
    together = jax.jit(jax.vmap(operator), compiler_options=options)
    expected = np.stack([np.asarray(alone(example)) for example in x])
    for count in BATCHES:
        assert np.asarray(together(x[:count])).tobytes() == expected[:count].tobytes(), count


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


# Sums are products by ones, a matrix [2, N] that XLA would lay out anew for a batch.
@pytest.mark.parametrize("shape", [(8, 16), (1, 16), (3, 33)])
def test_reduce_sum(shape, rng):
    check(lambda x: ops.reduce_sum(x, axis=1), normal(rng, EXAMPLES, *shape))


# Fewer than 4, and 3, 5, 6 or 7 more than a multiple of 8.
@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 7, 10, 11, 13, 17])
def test_exp(length, rng):
    check(ops.exp, normal(rng, EXAMPLES, length) * 3)


@pytest.mark.parametrize(
    ("image", "channels", "out", "kernel"),
    [
        ((1, 1), 16, 1, (1, 1)),  # fully connected, one result
        ((11, 11), 16, 16, (3, 3)),  # too few channels for XLA's fast kernel
        ((1, 66), 17, 3, (1, 1)),  # results enough for it, and fewer than 80
    ],
)
def test_conv2d(image, channels, out, kernel, rng):
    weight, zero = normal(rng, out, *kernel, channels), jnp.zeros(1, np.float32)
    shape = {"pad": (kernel[0] // 2,) * 4, "stride": (1, 1), "dilation": (1, 1)}
    check(
        lambda x: ops.conv2d(x, weight, zero, zero, zero, **shape, acc_type=DType.FP32),
        normal(rng, EXAMPLES, 1, *image, channels),
    )


@pytest.mark.parametrize("shape", [(2, 5, 3), (8, 16, 8), (1, 64, 1), (10, 128, 17)])
def test_matmul_by_a_constant(shape, rng):
    """In a batch the product has more rows; two inputs have their own rows in each example."""
    rows, length, columns = shape
    b, zero = normal(rng, 1, length, columns), jnp.zeros(1, np.float32)
    check(
        lambda a: ops.matmul(a, b, zero, zero, out_type=DType.FP32),
        normal(rng, EXAMPLES, 1, rows, length),
    )
