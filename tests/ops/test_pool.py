"""Pooling against its definitions."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util
from oracle import pool_oracle as oracle
from oracle.matmul_oracle import check_dot_product, draw, magnitude, zero_points
from oracle.table_rows import integer_rows, row_id, type_rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.dtypes import DType
from tosajax.ops import pool
from tosajax.spec.enums import NanMode

# (input shape, attributes)
CASES = {
    "one-element": ((1, 1, 1, 2), {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0)}),
    "2x2": ((2, 4, 6, 3), {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 0, 0, 0)}),
    "3x3": ((1, 5, 4, 3), {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1, 1, 1)}),
    "uneven": ((1, 7, 6, 2), {"kernel": (3, 2), "stride": (2, 3), "pad": (2, 0, 1, 1)}),
    "mostly-padding": ((1, 1, 2, 1), {"kernel": (5, 4), "stride": (1, 1), "pad": (4, 4, 3, 3)}),
    "global": ((2, 9, 5, 2), {"kernel": (9, 5), "stride": (1, 1), "pad": (0, 0, 0, 0)}),
    "13x9": ((1, 14, 10, 1), {"kernel": (13, 9), "stride": (1, 1), "pad": (2, 1, 0, 3)}),
    "by-doubling": ((1, 12, 20, 1), {"kernel": (11, 15), "stride": (3, 2), "pad": (10, 7, 3, 4)}),
    "longer-than-input": (
        (1, 3, 2, 2),
        {"kernel": (9, 17), "stride": (1, 1), "pad": (8, 8, 16, 16)},
    ),
    "long": ((1, 1, 150, 1), {"kernel": (1, 100), "stride": (1, 5), "pad": (0, 0, 30, 20)}),
}


# Types of floats differ in conversions: few taps, many, and parts of 1, 2, 4, ...
CONVERTED = ("uneven", "global", "by-doubling")


def float_cases(name):
    """Every case for FP32, some for other floats."""
    return [
        pytest.param(types, case, id=f"{row_id(name, types)}-{case}")
        for _, types in type_rows(name, where=lambda types: types["in_out_t"].is_float)
        for case in (CASES if types["in_out_t"] is DType.FP32 else CONVERTED)
    ]


@pytest.fixture
def rng():
    return np.random.default_rng(17)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "types"), integer_rows("AVG_POOL2D"))
def test_average_of_integers(name, types, case, rng):
    shape, attributes = CASES[case]
    dtype = types["in_out_t"]
    function: Any = jax.jit(
        functools.partial(pool.avg_pool2d, acc_type=types["acc_t"], **attributes)
    )
    inputs = [
        draw(rng, dtype, shape),
        np.full(shape, dtype.minimum, dtype.storage),
        np.full(shape, dtype.maximum, dtype.storage),
        rng.integers(-2, 3, shape).astype(dtype.storage),  # averages near ties
    ]
    for x in inputs:
        for input_zp in zero_points(dtype):
            for output_zp in zero_points(dtype):
                points = (
                    jax.device_put(np.asarray([zp], dtype.storage)) for zp in (input_zp, output_zp)
                )
                result = function(jax.device_put(x), *points)
                assert result.dtype == dtype.storage
                expected = oracle.avg_pool_int(
                    x, input_zp, output_zp, dtype.minimum, dtype.maximum, **attributes
                )
                np.testing.assert_array_equal(np.asarray(result), expected)
    assert function._cache_size() == 1


@pytest.mark.parametrize(("types", "case"), float_cases("AVG_POOL2D"))
def test_average_of_floats(types, case, rng):
    shape, attributes = CASES[case]
    dtype = types["in_out_t"]
    x = draw(rng, dtype, shape)
    extreme = np.array([np.nan, np.inf, -np.inf, 0.0]).astype(dtype.storage)
    with_special = np.where(rng.random(shape) < 0.02, rng.choice(extreme, shape), x)
    zp = jnp.zeros((1,), dtype.storage)
    function = jax.jit(functools.partial(pool.avg_pool2d, acc_type=types["acc_t"], **attributes))
    for values in (x, with_special):
        result = function(jax.device_put(values), zp, zp)
        with np.errstate(invalid="ignore"):
            reference = oracle.avg_pool_float(values, **attributes)
            bound = oracle.avg_pool_float(magnitude(values, dtype), **attributes)
        size = np.prod(attributes["kernel"])
        check_dot_product(
            result, reference, bound, size=size, out=dtype, acc=types["acc_t"], bias=False
        )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "types"), integer_rows("MAX_POOL2D"))
def test_maximum_of_integers(name, types, case, rng):
    shape, attributes = CASES[case]
    dtype = types["in_out_t"]
    low = np.full(shape, dtype.minimum, dtype.storage)
    function = jax.jit(functools.partial(pool.max_pool2d, **attributes))
    for x in (draw(rng, dtype, shape), low, low + dtype.storage.type(1)):
        result = function(jax.device_put(x))
        assert result.dtype == dtype.storage
        np.testing.assert_array_equal(np.asarray(result), oracle.max_pool(x, **attributes))


@pytest.mark.parametrize("nan_mode", NanMode)
@pytest.mark.parametrize(("types", "case"), float_cases("MAX_POOL2D"))
def test_maximum_of_floats(types, case, nan_mode, rng):
    shape, attributes = CASES[case]
    dtype = types["in_out_t"]
    x = draw(rng, dtype, shape)
    extreme = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]).astype(dtype.storage)
    some = np.where(rng.random(shape) < 0.2, rng.choice(extreme, shape), x)
    lowest = np.full(shape, -np.inf).astype(dtype.storage)  # NaN in FP8E4M3
    many = np.where(rng.random(shape) < 0.8, extreme[0], -np.abs(x))
    function = jax.jit(functools.partial(pool.max_pool2d, nan_mode=nan_mode, **attributes))
    for values in (x, some, many, lowest, np.full_like(x, np.nan)):
        result = np.asarray(function(jax.device_put(values)))
        assert result.dtype == dtype.storage
        expected = oracle.max_pool(values, ignore_nan=nan_mode is NanMode.IGNORE, **attributes)
        np.testing.assert_array_equal(result.astype(np.float64), expected)


def test_subnormals_of_fp8_are_kept():
    for dtype in (DType.FP8E4M3, DType.FP8E5M2):
        x = np.arange(8, dtype=np.uint8).view(dtype.storage).reshape(1, 2, 4, 1)
        attributes = {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0)}
        zp = jnp.zeros((1,), dtype.storage)
        largest = pool.max_pool2d(jax.device_put(x), **attributes)
        average = pool.avg_pool2d(jax.device_put(x), zp, zp, acc_type=DType.FP16, **attributes)
        np.testing.assert_array_equal(np.asarray(largest).view(np.uint8), x.view(np.uint8))
        np.testing.assert_array_equal(np.asarray(average).view(np.uint8), x.view(np.uint8))


def test_jit_and_vmap_with_zero_points(rng):
    shape, attributes = CASES["uneven"]
    x, zp = jax.device_put(draw(rng, DType.INT8, shape)), jnp.zeros((1,), jnp.int8)
    average = functools.partial(pool.avg_pool2d, acc_type=DType.INT32, **attributes)
    assert_transforms(average, x, zp - 128, zp + 127)


@pytest.mark.parametrize("case", ["uneven", "by-doubling"])
@pytest.mark.parametrize("dtype", [DType.INT16, DType.FP8E5M2])
def test_vmap_is_a_loop(dtype, case, rng):
    shape, attributes = CASES[case]
    xs, zp = draw(rng, dtype, (3, *shape)), np.zeros((1,), dtype.storage)
    average = functools.partial(pool.avg_pool2d, acc_type=DType.INT32, **attributes)
    for function in (
        lambda x: average(x, zp, zp),
        functools.partial(pool.max_pool2d, nan_mode=NanMode.IGNORE, **attributes),
    ):
        compiled = jax.jit(function)
        expected = np.stack([compiled(x) for x in xs])
        assert_identical(jax.jit(jax.vmap(function))(xs), expected)
        assert_identical(jax.vmap(compiled)(xs), expected)


@pytest.mark.parametrize("size", [64, 65, 127, 8191])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.FP32])
def test_huge_windows(size, dtype, rng):
    attributes = {"kernel": (1, size), "stride": (1, 1), "pad": (0, 0, 3, 5)}
    x = draw(rng, dtype, (1, 1, size + 10, 1))
    zp = jnp.zeros((1,), dtype.storage)
    average = functools.partial(pool.avg_pool2d, acc_type=DType.INT32, **attributes)
    for function in (
        lambda x: average(x, zp, zp),
        functools.partial(pool.max_pool2d, **attributes),
    ):
        lowered = jax.jit(function).lower(jax.device_put(x))
        assert len(lowered.as_text()) < 40_000
    if dtype is DType.INT8:
        expected = oracle.avg_pool_int(x, 0, 0, -128, 127, **attributes)
        np.testing.assert_array_equal(jax.jit(average)(jax.device_put(x), zp, zp), expected)
    result = jax.jit(functools.partial(pool.max_pool2d, **attributes))(jax.device_put(x))
    np.testing.assert_array_equal(result, oracle.max_pool(x, **attributes))


@pytest.mark.parametrize("case", ["uneven", "by-doubling"])
def test_gradients_of_floats(case, rng):
    shape, attributes = CASES[case]
    # Elements 1 apart, so that steps of 0.02 do not change which of them is the largest.
    x = jax.device_put(rng.permutation(math.prod(shape)).reshape(shape).astype(np.float32))
    zp = jnp.zeros((1,), jnp.float32)
    average = functools.partial(pool.avg_pool2d, acc_type=DType.FP32, **attributes)
    largest = functools.partial(pool.max_pool2d, **attributes)
    for function in (lambda x: average(x, zp, zp), largest):
        test_util.check_grads(jax.jit(function), (x,), 1, ("rev",), rtol=1e-2, atol=1e-2, eps=0.02)
