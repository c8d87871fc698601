"""MATMUL against its definition."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util
from oracle import matmul_oracle as oracle
from oracle.table_rows import float_rows, integer_rows
from oracle.transforms import assert_transforms

from tosajax.dtypes import DType
from tosajax.ops import matmul

# N, H, C, W
SHAPES = [(1, 1, 1, 1), (1, 1, 9, 5), (2, 5, 9, 1), (3, 1, 7, 1), (2, 3, 17, 4), (1, 8, 64, 8)]


@pytest.fixture
def rng():
    return np.random.default_rng(13)


def operands(rng, dtype, shape):
    n, h, c, w = shape
    return oracle.draw(rng, dtype, (n, h, c)), oracle.draw(rng, dtype, (n, c, w))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "types"), integer_rows("MATMUL"))
def test_integers(name, types, shape, rng):
    dtype, out = types["in_t"], types["out_t"]
    function: Any = jax.jit(functools.partial(matmul, out_type=out))
    a, b = operands(rng, dtype, shape)
    for a_zp in oracle.zero_points(dtype):
        for b_zp in oracle.zero_points(dtype):
            points = (jax.device_put(np.asarray([zp], dtype.storage)) for zp in (a_zp, b_zp))
            result = function(jax.device_put(a), jax.device_put(b), *points)
            assert result.dtype == out.storage
            expected = oracle.matmul(a.astype(np.int64), b.astype(np.int64), a_zp, b_zp)
            np.testing.assert_array_equal(np.asarray(result), expected)
    assert function._cache_size() == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "types"), integer_rows("MATMUL"))
def test_constant_operands(name, types, shape, rng):
    """NumPy arrays, by which compiled graphs pass constants, give the results of traced arrays."""
    dtype, out = types["in_t"], types["out_t"]
    a, b = operands(rng, dtype, shape)
    for a_zp in oracle.zero_points(dtype):
        for b_zp in oracle.zero_points(dtype):
            constants = b, *(np.full(1, zp, dtype.storage) for zp in (a_zp, b_zp))
            expected = oracle.matmul(a.astype(np.int64), b.astype(np.int64), a_zp, b_zp)
            result = jax.jit(lambda a, c=constants: matmul(a, *c, out_type=out))(jax.device_put(a))
            assert result.dtype == out.storage
            np.testing.assert_array_equal(np.asarray(result), expected)


@pytest.mark.parametrize(("name", "types"), integer_rows("MATMUL"))
@pytest.mark.parametrize("low_a", [True, False])
@pytest.mark.parametrize("low_b", [True, False])
def test_extreme_operands(name, types, low_a, low_b):
    dtype, out = types["in_t"], types["out_t"]
    a, b = (dtype.minimum if low else dtype.maximum for low in (low_a, low_b))
    # The largest zero points against these operands.
    points = [
        (dtype.maximum if low else dtype.minimum) if dtype is DType.INT8 else 0
        for low in (low_a, low_b)
    ]
    length = 33000 if dtype is DType.INT8 else 100_000
    result = matmul(
        jnp.full((1, 2, length), a, dtype.storage),
        jnp.full((1, length, 3), b, dtype.storage),
        *(jax.device_put(np.asarray([zp], dtype.storage)) for zp in points),
        out_type=out,
    )
    expected = (a - points[0]) * (b - points[1]) * length
    assert out.minimum <= expected <= out.maximum
    np.testing.assert_array_equal(np.asarray(result), np.full((1, 2, 3), expected))


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "types"), float_rows("MATMUL"))
def test_floats(name, types, shape, special, rng):
    dtype, out = types["in_t"], types["out_t"]
    a, b = operands(rng, dtype, shape)
    if special:
        values = np.array([np.nan, np.inf, -np.inf]).astype(dtype.storage)
        a = np.where(rng.random(a.shape) < 0.03, rng.choice(values, a.shape), a)
        b = np.where(rng.random(b.shape) < 0.03, rng.choice(values, b.shape), b)
    zp = jnp.zeros((1,), dtype.storage)
    result = matmul(jax.device_put(a), jax.device_put(b), zp, zp, out_type=out)
    with np.errstate(invalid="ignore"):
        reference = oracle.matmul(a.astype(np.float64), b.astype(np.float64))
        bound = oracle.matmul(oracle.magnitude(a, dtype), oracle.magnitude(b, dtype))
    acc = DType.FP32 if types["out_t"] is DType.FP32 else DType.FP16
    oracle.check_dot_product(result, reference, bound, size=shape[2], out=out, acc=acc, bias=False)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (DType.INT8, (2, 3, 17, 4)),
        (DType.INT8, (2, 1, 5, 1)),
        (DType.INT16, (2, 1, 17, 4)),
        (DType.FP32, (2, 3, 17, 4)),
    ],
)
def test_jit_and_vmap(dtype, shape, rng):
    out = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}.get(dtype, DType.FP32)
    a, b = map(jax.device_put, operands(rng, dtype, shape))
    zp = jnp.zeros((1,), dtype.storage)
    function = functools.partial(matmul, out_type=out)
    if dtype is DType.INT8:
        assert_transforms(function, a, b, zp - 128, zp + 127)
    else:  # zero points that must be zero
        assert_transforms(lambda a, b: function(a, b, zp, zp), a, b, exact=not dtype.is_float)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16])
def test_nested_transforms(dtype, rng):
    out = DType.INT32 if dtype is DType.INT8 else DType.INT48
    pairs = [operands(rng, dtype, (2, 3, 9, 4)) for _ in range(3)]
    a, b = (jax.device_put(np.stack(v)) for v in zip(*pairs, strict=True))
    zp = jnp.zeros((1,), dtype.storage)

    def function(a, b):
        return matmul(a, b, zp, zp, out_type=out)

    expected = np.stack([oracle.matmul(x.astype(np.int64), y.astype(np.int64)) for x, y in pairs])
    for result in (
        jax.vmap(jax.jit(function))(a, b),
        jax.jit(jax.vmap(function))(a, b),
        jax.lax.scan(lambda carry, ab: (carry, function(*ab)), 0, (a, b))[1],
        jax.jit(lambda a, b: jax.lax.map(lambda ab: function(*ab), (a, b)))(a, b),
    ):
        assert result.dtype == out.storage
        np.testing.assert_array_equal(np.asarray(result), expected)


def test_gradient_of_floats(rng):
    a, b = map(jax.device_put, operands(rng, DType.FP32, (2, 3, 5, 4)))
    zp = jnp.zeros((1,), jnp.float32)
    test_util.check_grads(
        lambda a, b: matmul(a, b, zp, zp, out_type=DType.FP32), (a, b), 1, ("rev",)
    )
