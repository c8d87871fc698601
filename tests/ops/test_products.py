"""MATMUL and MATMUL_T against their definitions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util
from jax.extend.core import jaxpr_as_fun
from oracle import matmul_oracle as oracle
from oracle.table_rows import float_rows, integer_rows
from oracle.transforms import assert_transforms

from tosajax.dtypes import DType
from tosajax.ops import matmul, matmul_t
from tosajax.ops.recording import recording

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


# MATMUL_T: N, H, C, W, and the batches of b.
TRANSPOSED = [(1, 1, 1, 1, 1), (2, 5, 9, 1, 2), (3, 1, 7, 4, 1), (2, 3, 17, 4, 1), (3, 8, 64, 8, 3)]


def transposed_operands(rng, types, shape):
    n, h, c, w, d = shape
    a, b = oracle.draw(rng, types["a_t"], (n, h, c)), oracle.draw(rng, types["b_t"], (d, w, c))
    return a, b


def transposed_points(types, a_zp=0, b_zp=0) -> Any:
    return np.full(1, a_zp, types["a_t"].storage), np.full(1, b_zp, types["b_t"].storage)


@pytest.mark.parametrize("shape", TRANSPOSED)
@pytest.mark.parametrize(("name", "types"), integer_rows("MATMUL_T"))
def test_transposed_integers(name, types, shape, rng):
    """By operands of which none and some are constants."""
    out = types["out_t"]
    a, b = transposed_operands(rng, types, shape)
    constants: Any = b  # a NumPy array, by which compiled graphs pass constants
    constant: Any = jax.jit(
        lambda a: matmul_t(a, constants, *transposed_points(types), out_type=out)
    )
    expected = oracle.matmul_t(a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(np.asarray(constant(jax.device_put(a))), expected)
    traced: Any = jax.jit(functools.partial(matmul_t, out_type=out))
    for a_zp in oracle.zero_points(types["a_t"]):
        for b_zp in oracle.zero_points(types["a_t"])[::-1]:
            zps = transposed_points(types, a_zp, b_zp)
            expected = oracle.matmul_t(a.astype(np.int64), b.astype(np.int64), a_zp, b_zp)
            result = traced(*map(jax.device_put, (a, b, *zps)))
            assert result.dtype == out.storage
            np.testing.assert_array_equal(np.asarray(result), expected)
    assert traced._cache_size() == 1


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize(("name", "types"), float_rows("MATMUL_T"))
def test_transposed_floats(name, types, special, rng):
    """Any float type by any other, with a matrix for each batch and with one for all."""
    out = types["out_t"]
    zps = transposed_points(types)
    pairs = [transposed_operands(rng, types, (2, 3, 17, 4, d)) for d in (1, 2)]
    if special:
        found = [x for pair in pairs for x in pair]
        for x in found:
            values = np.array([np.nan, np.inf, -np.inf]).astype(x.dtype)
            x[...] = np.where(rng.random(x.shape) < 0.03, rng.choice(values, x.shape), x)
    run = jax.jit(lambda pairs: [matmul_t(a, b, *zps, out_type=out) for a, b in pairs])
    for (a, b), result in zip(pairs, run(pairs), strict=True):
        with np.errstate(invalid="ignore"):
            reference = oracle.matmul_t(a.astype(np.float64), b.astype(np.float64))
            sizes = oracle.magnitude(a, types["a_t"]), oracle.magnitude(b, types["b_t"])
            bound = oracle.matmul_t(*sizes)
        acc = DType.FP16 if out is DType.FP16 else DType.FP32
        oracle.check_dot_product(result, reference, bound, size=17, out=out, acc=acc, bias=False)


def test_transposed_is_matmul_of_the_transpose(rng):
    """Equal types give the bits of MATMUL."""
    for types in (dict.fromkeys(("a_t", "b_t"), t) for t in (DType.FP32, DType.FP16, DType.BF16)):
        a, b = map(jax.device_put, transposed_operands(rng, types, (2, 3, 17, 4, 2)))
        zps = transposed_points(types)
        found = matmul_t(a, b, *zps, out_type=DType.FP32)
        wanted = matmul(a, jnp.swapaxes(b, 1, 2), *zps, out_type=DType.FP32)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16, DType.FP32])
def test_transposed_under_transforms(dtype, d, rng):
    out = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}.get(dtype, DType.FP32)
    types = {"a_t": dtype, "b_t": dtype}
    a, b = map(jax.device_put, transposed_operands(rng, types, (2, 3, 9, 4, d)))
    zps = transposed_points(types)
    assert_transforms(
        lambda a, b: matmul_t(a, b, *zps, out_type=out), a, b, exact=not dtype.is_float
    )


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)], ids=["a", "b", "both"])
def test_one_matrix_in_a_batch_leaves_as_one_operator(axes, n, rng):
    """Under `vmap`, D is 1 for all examples, or becomes the N of all of them."""
    types = {"a_t": DType.INT8, "b_t": DType.INT8}
    count = 4
    operands = [
        np.stack([x] * count if axis is None else [x, x + 1, x // 2, -x]).astype(np.int8)
        for x, axis in zip(transposed_operands(rng, types, (n, 2, 5, 3, 1)), axes, strict=True)
    ]
    picked = [x if axis == 0 else x[0] for x, axis in zip(operands, axes, strict=True)]
    zps = transposed_points(types, 3, -4)

    def call(a, b):
        return matmul_t(a, b, *zps, out_type=DType.INT32)

    with recording():
        jaxpr = jax.make_jaxpr(jax.vmap(call, axes))(*picked)
    (equation,) = (e for e in jaxpr.eqns if e.primitive.name == "tosa_operator")
    assert equation.params["op"] == "MATMUL_T"
    matrices = equation.invars[1].aval.shape[0]
    assert matrices == (1 if axes[1] is None else count * n)
    (found,) = jax.jit(jaxpr_as_fun(jaxpr))(*picked)
    wide = (x.astype(np.int64) for x in operands)
    wanted = [oracle.matmul_t(a, b, 3, -4) for a, b in zip(*wide, strict=True)]
    np.testing.assert_array_equal(np.asarray(found), np.stack(wanted))
