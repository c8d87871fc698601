"""Signs of zeros, subnormals, overflow and ties, which the conformance suite does not check."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.float_bounds import (
    boundaries,
    every_value,
    flush,
    fraction_bits,
    may_flush,
    normal_max,
    normal_min,
    round_to,
    widen,
)
from oracle.table_rows import float_rows, rows
from oracle.transforms import assert_identical, bits

from tosajax import DType, ops
from tosajax.spec import NanMode

INF, NAN = np.inf, np.nan
SIGNED = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, INF, -INF, NAN]

# At -infinity, infinity, -0 and 0; None stands for a zero of either sign.
AT_LIMITS = {
    "ABS": [INF, INF, 0.0, 0.0],
    "CEIL": [-INF, INF, -0.0, 0.0],
    "ERF": [-1.0, 1.0, -0.0, 0.0],
    "EXP": [0.0, INF, 1.0, 1.0],
    "FLOOR": [-INF, INF, -0.0, 0.0],
    "LOG": [NAN, INF, -INF, -INF],
    "NEGATE": [INF, -INF, 0.0, -0.0],
    "RECIPROCAL": [-0.0, 0.0, -INF, INF],
    "RSQRT": [NAN, 0.0, -INF, INF],
    "SIGMOID": [0.0, 1.0, 0.5, 0.5],
    "SIN": [NAN, NAN, -0.0, 0.0],
    "COS": [NAN, NAN, 1.0, 1.0],
    "TANH": [-1.0, 1.0, -0.0, 0.0],
}


def _run(name: str, *inputs: np.ndarray, **attributes) -> np.ndarray:
    function = functools.partial(getattr(ops, name.lower()), **attributes)
    return np.asarray(jax.jit(function)(*map(jnp.asarray, inputs)))


def _storage(types) -> np.dtype:
    return next(iter(types.values())).storage


def _cast(values: np.ndarray, target: DType) -> np.ndarray:
    return _run("CAST", values, out_type=target)


def _zeros_of_points(name: str, dtype) -> list[np.ndarray]:
    count = {"NEGATE": 2}.get(name, 0)
    return [np.zeros(1, dtype)] * count


@pytest.mark.parametrize(("name", "types"), float_rows(*AT_LIMITS))
def test_limits_and_zeros(name, types):
    dtype = _storage(types)
    x = np.array([-INF, INF, -0.0, 0.0, NAN]).astype(dtype)
    result = _run(name, x, *_zeros_of_points(name, dtype))
    assert_identical(result, np.array([*AT_LIMITS[name], NAN]).astype(dtype))


@pytest.mark.parametrize(("name", "types"), float_rows("CEIL", "FLOOR"))
def test_roundings_to_zero_keep_the_sign(name, types):
    dtype = _storage(types)
    half, three = np.array([-0.5, 0.5, -0.75, 0.75]), np.array([-1.0, 0.0, -1.0, 0.0])
    expected = three if name == "FLOOR" else np.array([-0.0, 1.0, -0.0, 1.0])
    assert_identical(_run(name, half.astype(dtype)), expected.astype(dtype))


ARITHMETIC = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply}


@pytest.mark.parametrize(("name", "types"), float_rows(*ARITHMETIC))
def test_arithmetic_is_of_ieee(name, types):
    """Every pair of zeros, ones, limits and infinities: exact bits, signs of zeros included."""
    dtype = _storage(types)
    values = boundaries(dtype)
    values = values[flush(values) == values]
    values = np.append(values, np.array([NAN], dtype))
    pairs = np.array(list(itertools.product(values, values)), dtype)
    first, second = pairs[:, 0], pairs[:, 1]
    with np.errstate(all="ignore"):
        exact = ARITHMETIC[name](widen(first), widen(second))
    shift = [np.zeros(1, np.int8)] if name == "MUL" else []
    result = _run(name, first, second, *shift)
    expected = round_to(exact, dtype)
    # A subnormal result may be a zero of its sign.
    expected = np.where(widen(result) == 0, flush(expected), expected)
    assert_identical(result, expected)


@pytest.mark.parametrize("mode", NanMode)
@pytest.mark.parametrize(("name", "types"), float_rows("MAXIMUM", "MINIMUM"))
def test_maximum_and_minimum(name, types, mode):
    """Zeros are equal, so either may be the result; for NaN the mode decides."""
    dtype = _storage(types)
    pairs = np.array(list(itertools.product(SIGNED, SIGNED)))
    result = _run(name, *pairs.T.astype(dtype), nan_mode=mode)
    pick = {
        ("MAXIMUM", NanMode.PROPAGATE): np.maximum,
        ("MINIMUM", NanMode.PROPAGATE): np.minimum,
        ("MAXIMUM", NanMode.IGNORE): np.fmax,
        ("MINIMUM", NanMode.IGNORE): np.fmin,
    }[name, mode]
    np.testing.assert_array_equal(widen(result), pick(*pairs.T))
    one_sign = np.signbit(pairs[:, 0]) == np.signbit(pairs[:, 1])
    zero = one_sign & (pairs == 0).all(axis=1)
    assert zero.any()
    np.testing.assert_array_equal(np.signbit(widen(result))[zero], np.signbit(pairs[:, 0])[zero])


@pytest.mark.parametrize("mode", NanMode)
@pytest.mark.parametrize(("name", "types"), float_rows("CLAMP"))
def test_clamp(name, types, mode):
    dtype = _storage(types)
    x = np.array([-INF, -3.0, -0.0, 0.0, 3.0, INF, NAN]).astype(dtype)
    result = _run(name, x, min_val=dtype.type(-2), max_val=dtype.type(2), nan_mode=mode)
    nan = NAN if mode is NanMode.PROPAGATE else -2.0
    assert_identical(result, np.array([-2, -2, -0.0, 0.0, 2, 2, nan]).astype(dtype))


@pytest.mark.parametrize("mode", NanMode)
@pytest.mark.parametrize(("name", "types"), float_rows("REDUCE_MAX", "REDUCE_MIN"))
def test_reductions_of_zeros_and_nan(name, types, mode):
    dtype = _storage(types)
    x = np.array([[-0.0, -0.0], [0.0, 0.0], [NAN, 1.0], [-INF, INF], [NAN, NAN]]).astype(dtype)
    result = _run(name, x, axis=1, nan_mode=mode)[:, 0]
    limit = INF if name == "REDUCE_MAX" else -INF
    expected = [-0.0, 0.0, NAN if mode is NanMode.PROPAGATE else 1.0, limit, NAN]
    assert_identical(result, np.array(expected).astype(dtype))


@pytest.mark.parametrize(("name", "types"), float_rows("REDUCE_SUM", "REDUCE_PRODUCT"))
def test_sums_and_products_of_limits(name, types):
    dtype = _storage(types)
    most = normal_max(dtype)
    x = np.array([[0.0, 0.0], [INF, 1.0], [INF, -INF], [most, most], [-most, most], [NAN, 0]])
    with np.errstate(all="ignore"):
        total = np.sum(x, axis=1) if name == "REDUCE_SUM" else np.prod(x, axis=1)
    assert_identical(_run(name, x.astype(dtype), axis=1)[:, 0], round_to(total, dtype))


DATA_LAYOUT = {
    "CONCAT": lambda x: ops.concat([x, x], axis=0)[: x.shape[0]],
    "GATHER": lambda x: ops.gather(x.reshape(1, -1, 1), _order(x)[None])[0, :, 0],
    "IDENTITY": ops.identity,
    "PAD": lambda x: ops.pad(x, (1, 1), jnp.zeros((1,), x.dtype))[1:-1],
    "RESHAPE": lambda x: ops.reshape(x, (x.size, 1))[:, 0],
    "REVERSE": lambda x: ops.reverse(ops.reverse(x, axis=0), axis=0),
    "SCATTER": lambda x: ops.scatter(
        jnp.zeros((1, x.size, 1), x.dtype), _order(x)[None], x.reshape(1, -1, 1)
    )[0, :, 0],
    "SELECT": lambda x: ops.select(jnp.ones(x.shape, bool), x, jnp.ones_like(x)),
    "SLICE": lambda x: ops.slice(x, (0,), x.shape),
    "TILE": lambda x: ops.tile(x, (2,))[: x.size],
    "TRANSPOSE": lambda x: ops.transpose(x.reshape(2, -1), perms=(1, 0)).T.reshape(-1),
}


def _order(x: jax.Array) -> jax.Array:
    return jnp.arange(x.size, dtype=jnp.int32)


def _values(dtype) -> np.ndarray:
    """Every value of a narrow type; boundaries and many patterns of float32; no NaN."""
    if np.dtype(dtype).itemsize < 4:
        values = every_value(dtype)
    else:
        patterns = np.random.default_rng(3).integers(0, 2**32, 4096, np.uint32)
        values = np.concatenate([boundaries(dtype), patterns.view(dtype)])
    values = values[~np.isnan(widen(values))]
    return values[: len(values) // 2 * 2]


MOVED = rows(*DATA_LAYOUT, where=lambda types: types["in_out_t"].is_float)


@pytest.mark.parametrize(("name", "types"), MOVED)
def test_moved_values_keep_their_bits(name, types):
    """Also subnormals: nothing is computed."""
    values = _values(types["in_out_t"].storage)
    result = jax.jit(DATA_LAYOUT[name])(jnp.asarray(values))
    np.testing.assert_array_equal(bits(result), bits(values))


@pytest.mark.parametrize(("name", "types"), float_rows("ABS", "NEGATE"))
def test_signs_of_subnormals(name, types):
    dtype = _storage(types)
    values = _values(dtype)
    result = _run(name, values, *_zeros_of_points(name, dtype))
    expected = np.abs(values) if name == "ABS" else -values
    # Kept, or flushed to zeros with the sign of the result.
    assert_identical(np.where(result == 0, flush(expected), expected), result)


FLOAT_CASTS = rows("CAST", where=lambda types: types["in_t"].is_float and types["out_t"].is_float)


@pytest.mark.parametrize(("name", "types"), FLOAT_CASTS)
def test_casts_round_to_nearest_even(name, types):
    """Each value of the target, the middles between neighbours, and the floats next to a middle."""
    source, target = types["in_t"].storage, types["out_t"].storage
    step = 2.0 ** -fraction_bits(target)
    finite = _values(target)
    finite = np.unique(widen(finite[np.isfinite(widen(finite))]))[
        :: 7 if target.itemsize > 1 else 1
    ]
    middles = (finite[1:] + finite[:-1]) / 2
    most = normal_max(target)
    beyond = most * np.array([1 + step / 4, 1 + step / 2, 1 + step, 2, 2**8])
    exact = np.concatenate([finite, middles, beyond, -beyond, [0.0, -0.0, INF, -INF, NAN]])
    with np.errstate(all="ignore"):
        x = exact.astype(source)
        beside = np.nextafter(x.astype(np.float32), np.float32(0)).astype(source)
    x = np.concatenate([x, beside])
    result = _cast(x, types["out_t"])
    expected = round_to(widen(x), target)
    flushed = round_to(widen(flush(x)), target) if may_flush(source) else expected
    flushed = flush(flushed) if may_flush(target) else flushed
    assert_identical(np.where(widen(result) == widen(flushed), flushed, expected), result)


@pytest.mark.parametrize(("name", "types"), FLOAT_CASTS)
def test_casts_underflow_to_zeros_of_their_sign(name, types):
    source, target = types["in_t"].storage, types["out_t"].storage
    least = normal_min(target) * 2.0 ** -fraction_bits(target)
    if least / 4 < normal_min(source):
        least = max(least, 4 * normal_min(source))
    x = np.array([least / 4, -least / 4, 0.0, -0.0]).astype(source)
    result = widen(_cast(x, types["out_t"]))
    np.testing.assert_array_equal(np.signbit(result), [False, True, False, True])


@pytest.mark.parametrize("target", [DType.FP8E4M3, DType.FP8E5M2])
def test_subnormals_of_fp8_are_kept(target):
    values = every_value(target.storage)
    small = values[np.abs(widen(values)) <= normal_min(target.storage)]
    assert len(small) > 8
    for wide in (DType.FP32, DType.FP16, DType.BF16):
        there = _cast(small, wide)
        np.testing.assert_array_equal(widen(there), widen(small))
        assert_identical(_cast(there, target), small)


@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.BF16])
def test_sums_of_signed_zeros(dtype):
    """A convolution, matrix product or pool of zeros is zero."""
    storage = dtype.storage
    zero, point = np.full((1, 2, 2, 1), -0.0, storage), np.zeros(1, storage)
    conv = _run(
        "CONV2D", zero, np.ones((1, 1, 1, 1), storage), np.full(1, -0.0, storage), point, point,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=DType.FP32,
    )  # fmt: skip
    product = _run("MATMUL", zero[..., 0], zero[..., 0], point, point, out_type=DType.FP32)
    window = {"kernel": (2, 2), "stride": (1, 1), "pad": (0, 0, 0, 0)}
    mean = _run("AVG_POOL2D", zero, point, point, acc_type=DType.FP32, **window)
    for result in (conv, product, mean):
        np.testing.assert_array_equal(widen(result), 0)
    largest = _run("MAX_POOL2D", zero, **window)
    assert_identical(largest, np.full((1, 1, 1, 1), -0.0, storage))
