"""Reductions against Python integers and float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import float_bounds
from oracle import reduction_oracle as oracle
from oracle.table_rows import float_rows, integer_rows, integers, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.ops import reduction as ops
from tosajax.spec.enums import NanMode

EXTREMA = ["REDUCE_MAX", "REDUCE_MIN"]
SHAPE = (3, 4, 5)


@pytest.fixture
def rng():
    return np.random.default_rng(53)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", ["REDUCE_ALL", "REDUCE_ANY"])
def test_logical(name, axis, rng):
    for chance in (0.0, 0.1, 0.5, 0.9, 1.0):
        x = rng.random(SHAPE) < chance
        expected = (np.all if name == "REDUCE_ALL" else np.any)(x, axis, keepdims=True)
        assert_identical(getattr(ops, name.lower())(jax.device_put(x), axis=axis), expected)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize(("name", "types"), integer_rows(*EXTREMA))
def test_extremum_of_integers(name, types, axis, rng):
    dtype = types["in_out_t"].storage
    x = rng.permutation(integers(dtype, 300, rng))[:60].reshape(SHAPE)
    x[0, 0, 0], x[1, 1, 1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    expected = oracle.over(max if name == "REDUCE_MAX" else min, x, axis)
    assert_identical(getattr(ops, name.lower())(jax.device_put(x), axis=axis), expected)


@pytest.mark.parametrize("length", [1, 6, 16, 100])
@pytest.mark.parametrize("nan_mode", NanMode)
@pytest.mark.parametrize(("name", "types"), float_rows(*EXTREMA))
def test_extremum_of_floats(name, types, nan_mode, length, rng):
    dtype = types["in_out_t"].storage
    edge = float_bounds.boundaries(dtype)
    special = np.array([np.nan, -np.inf, np.inf, 0.0]).astype(dtype)
    one_nan = rng.uniform(-9, 9, (length, length)).astype(dtype)
    np.fill_diagonal(one_nan, np.nan)
    x = np.concatenate(
        [
            rng.choice(edge, (300, length)),
            rng.choice(special, (300, length)),
            one_nan,
            np.full((1, length), np.nan).astype(dtype),
            float_bounds.samples(dtype, 100 * length, rng).reshape(100, length),
        ]
    )
    result = np.asarray(getattr(ops, name.lower())(jax.device_put(x), axis=1, nan_mode=nan_mode))
    plain, flushed = (
        oracle.extremum(v, 1, name == "REDUCE_MAX", nan_mode is NanMode.IGNORE)
        for v in (x, float_bounds.flush(x))
    )
    exact = np.zeros(plain.shape)
    close = float_bounds.within(result, plain, exact) | float_bounds.within(result, flushed, exact)
    assert result.dtype == dtype
    assert close.all()


@pytest.mark.parametrize("axis", range(3))
def test_sum_of_int32(axis, rng):
    x = rng.integers(-(2**28), 2**28, SHAPE, np.int32)
    x[0, 0, :3] = [2**30, -(2**30), 2**29 - 1]
    expected = oracle.over(lambda *v: sum(v), x, axis)
    assert_identical(ops.reduce_sum(jax.device_put(x), axis=axis), expected)
    ends = jnp.array([2**31 - 1, -(2**31), 2**31 - 1], jnp.int32)
    assert ops.reduce_sum(ends, axis=0) == 2**31 - 2


@pytest.mark.parametrize("length", [1, 2, 7, 300, 5000])
@pytest.mark.parametrize(("name", "types"), float_rows("REDUCE_SUM"))
def test_sum_of_floats(name, types, length, rng):
    dtype, acc = types["in_out_t"].storage, types["acc_t"].storage
    for x in (
        rng.normal(size=(64, length)),
        rng.random((64, length)),
        rng.normal(size=(64, length)) * 1e-3,
    ):
        x = x.astype(dtype)
        result = np.asarray(ops.reduce_sum(jax.device_put(x), axis=1))
        assert result.dtype == dtype
        oracle.assert_sum(result, x, acc)


def tree(x: np.ndarray) -> np.ndarray:
    """The sum over the first axis in float32: sixteen terms at a time, in pairs."""
    while len(x) > 1:
        size = -(-len(x) // 16)
        terms = [x[at : at + size] for at in range(0, len(x), size)]
        terms[-1] = np.concatenate([terms[-1], 0 * x[: size - len(terms[-1])]])
        while len(terms) > 1:
            odd = terms[-1:] if len(terms) % 2 else []
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)] + odd
        x = terms[0]
    return x[0]


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 255, 256, 257, 4097])
def test_order_of_a_sum_follows_from_its_length(length, rng):
    """Whatever the axis, the batch and the shape beside it."""
    x = rng.normal(size=(length, 3)).astype(np.float32)
    expected = tree(x)
    sums = jax.jit(ops.reduce_sum, static_argnames="axis")
    for found in (
        sums(x, axis=0)[0],
        sums(x.T, axis=1)[:, 0],
        sums(x[:, None, :, None], axis=0)[0, 0, :, 0],
        jnp.stack([sums(x[:, column], axis=0)[0] for column in range(3)]),
        jax.vmap(lambda v: ops.reduce_sum(v, axis=0))(x.T)[:, 0],
    ):
        assert_identical(found, expected)


def test_sum_of_negative_zeros():
    """Sums begin with +0.0."""
    for length in (1, 2, 17):
        assert_identical(ops.reduce_sum(jnp.full(length, -0.0), axis=0), np.zeros(1, np.float32))


@pytest.mark.parametrize("axis", range(3))
def test_sums_of_floats_move_nothing(axis):
    """A transposition, or a dot with ones, takes ten times as long as the sums."""
    x = jax.ShapeDtypeStruct((40, 50, 60), np.float32)
    text = jax.jit(lambda x: ops.reduce_sum(x, axis=axis)).lower(x).as_text()
    assert "stablehlo.add" in text
    assert "dot_general" not in text
    assert "transpose" not in text


def test_sum_of_infinities_and_nan():
    x = jnp.array([[np.inf, 1.0], [np.inf, -np.inf], [np.nan, 1.0], [-np.inf, 0.0]], jnp.float16)
    expected = np.array([[np.inf], [np.nan], [np.nan], [-np.inf]], np.float16)
    assert_identical(ops.reduce_sum(x, axis=1), expected)


def test_sum_of_narrow_floats_does_not_overflow_on_the_way():
    x = jnp.array([60000.0, 60000.0, -60000.0], jnp.float16)
    assert ops.reduce_sum(x, axis=0) == 60000
    ones = jnp.ones(600, jnp.bfloat16)  # 256 + 1 is 256 in bfloat16
    assert ops.reduce_sum(ones, axis=0) == 600


@pytest.mark.parametrize("length", [1, 2, 7, 100])
@pytest.mark.parametrize(("name", "types"), float_rows("REDUCE_PRODUCT"))
def test_product(name, types, length, rng):
    dtype = types["in_out_t"].storage
    near_one = rng.choice([-1, 1], (200, length)) * rng.uniform(0.9, 1.1, (200, length))
    wide = np.exp(rng.uniform(-1, 1, (200, length)) * 9 / length)
    special = rng.choice([0.0, np.inf, np.nan, 1.0, -2.0, 1.0, 1.0], (200, length))
    x = np.concatenate([near_one, wide, special]).astype(dtype)
    result = np.asarray(ops.reduce_product(jax.device_put(x), axis=1))
    assert result.dtype == dtype
    with np.errstate(invalid="ignore"):
        expected = np.prod(float_bounds.widen(x), axis=1, keepdims=True)
    growth = (1 + 2.0 ** (-float_bounds.fraction_bits(dtype) - 1)) ** length - 1
    bound = np.maximum(np.abs(expected), float_bounds.normal_min(dtype)) * growth
    assert float_bounds.within(result, expected, bound).all()


@pytest.mark.parametrize(
    ("name", "types"), rows("REDUCE_ALL", "REDUCE_ANY", *EXTREMA, "REDUCE_SUM", "REDUCE_PRODUCT")
)
def test_transforms_and_shape(name, types, rng):
    dtype = types["in_out_t"].storage
    x = jax.device_put(rng.integers(0, 2, SHAPE).astype(dtype))
    function = getattr(ops, name.lower())
    for axis in range(3):
        shape = [1 if n == axis else size for n, size in enumerate(SHAPE)]
        assert list(function(x, axis=axis).shape) == shape
    assert_transforms(lambda x: function(x, axis=1), x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients(dtype):
    x = jnp.array([1.0, 4.0, 2.0], dtype)
    gradients = {
        ops.reduce_sum: [1, 1, 1],
        ops.reduce_product: [8, 2, 4],
        ops.reduce_max: [0, 1, 0],
        ops.reduce_min: [1, 0, 0],
    }
    for function, expected in gradients.items():
        gradient = jax.grad(lambda x, f=function: f(x, axis=0).sum())(x)
        assert_identical(gradient, np.asarray(expected).astype(dtype))
