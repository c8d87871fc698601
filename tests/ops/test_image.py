"""RESIZE against exact fractions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import float_bounds
from oracle.image_oracle import resize as reference
from oracle.table_rows import float_rows, integers, rows
from oracle.transforms import assert_identical, assert_transforms

from tosajax.dtypes import DType
from tosajax.ops.image import resize
from tosajax.spec.enums import ResizeMode

# Input size; scale, offset, border: identity, powers of two up both ways, ends aligned, down,
# large numerators, samples beyond both edges, ties of the nearest neighbour.
CASES = [
    ((1, 1), (1, 1, 1, 1), (0, 0), (0, 0)),
    ((3, 4), (1, 1, 1, 1), (0, 0), (0, 0)),
    ((3, 4), (4, 1, 2, 1), (0, 0), (0, 0)),
    ((3, 4), (4, 2, 8, 2), (-1, -3), (1, 3)),
    ((4, 3), (10, 3, 6, 2), (0, 0), (0, 0)),
    ((9, 8), (2, 4, 1, 7), (0, 0), (0, 0)),
    ((2, 2), (2048, 1024, 2048, 512), (-2048, -1024), (2047, 0)),
    ((5, 5), (3, 5, 16, 15), (2, -15), (0, -4)),
    ((4, 4), (2, 1, 2, 1), (-1, -2), (1, 1)),
]


def fitting(case):
    """The case with its borders reduced so that the last sample lies on the grid."""
    size, scale, offset, border = case
    slack = [
        ((n - 1) * scale[2 * i] - offset[i] + border[i]) % scale[2 * i + 1]
        for i, n in enumerate(size)
    ]
    return size, scale, offset, (border[0] - slack[0], border[1] - slack[1])


def call(case, row, x, mode):
    _, scale, offset, border = case
    return resize(x, scale, offset, border, mode=mode, out_type=row["out_t"])


def mode_of(row):
    return ResizeMode.NEAREST_NEIGHBOR if row["in_t"] is row["out_t"] else ResizeMode.BILINEAR


INTEGER_ROWS = rows("RESIZE", where=lambda types: types["in_t"].is_integer)
FLOAT_ROWS = float_rows("RESIZE")


@pytest.mark.parametrize("case", [fitting(c) for c in CASES], ids=str)
@pytest.mark.parametrize(("name", "types"), INTEGER_ROWS)
def test_integers_are_exact(name, types, case):
    mode = mode_of(types)
    dtype = types["in_t"].storage
    rng = np.random.default_rng(67)
    info = np.iinfo(dtype)
    for pool in (np.array([info.min, info.max], dtype), integers(dtype, 300, rng)):
        x = rng.choice(pool, (2, *case[0], 3))
        expected = reference(x, *case[1:], bilinear=mode is ResizeMode.BILINEAR)
        result = np.asarray(call(case, types, jax.device_put(x), mode))
        assert result.dtype == types["out_t"].storage
        np.testing.assert_array_equal(result, expected.astype(result.dtype))


@pytest.mark.parametrize("mode", ResizeMode)
@pytest.mark.parametrize("case", [fitting(c) for c in CASES], ids=str)
@pytest.mark.parametrize(("name", "types"), FLOAT_ROWS)
def test_floats(name, types, case, mode):
    dtype = types["in_t"].storage
    rng = np.random.default_rng(71)
    x = (rng.normal(size=(2, *case[0], 3)) * 100).astype(dtype)
    expected = reference(x, *case[1:], bilinear=mode is ResizeMode.BILINEAR)
    result = np.asarray(jax.jit(lambda x: call(case, types, x, mode))(x))
    assert result.dtype == dtype
    largest = np.abs(float_bounds.widen(x)).max()
    bound = 0.0
    if mode is ResizeMode.BILINEAR:
        # Far stricter than the 0.6% of the specification: two interpolations and a rounding.
        bound = float_bounds.absolute_bound(dtype, largest, 1.0)
    assert float_bounds.within(result, expected, bound).all()


def test_infinities_and_nan_spread_only_to_their_neighbours():
    x = np.zeros((1, 1, 5, 1), np.float32)
    x[0, 0, 1], x[0, 0, 3] = np.inf, np.nan
    scale, nothing = (1, 1, 2, 1), (0, 0)
    with np.errstate(invalid="ignore"):
        expected = reference(x, scale, nothing, nothing, bilinear=True)
    result = resize(
        jax.device_put(x), scale, nothing, nothing, mode=ResizeMode.BILINEAR, out_type=DType.FP32
    )
    assert_identical(result, expected.astype(np.float32))


@pytest.mark.parametrize(("name", "types"), rows("RESIZE"))
def test_transforms(name, types):
    mode = mode_of(types) if types["in_t"].is_integer else ResizeMode.BILINEAR
    case = fitting(CASES[7])
    x = (
        np.random.default_rng(73)
        .integers(-100, 100, (1, *case[0], 2))
        .astype(types["in_t"].storage)
    )
    assert_transforms(
        lambda x: call(case, types, x, mode), jax.device_put(x), exact=types["in_t"].is_integer
    )


def test_only_int48_needs_64_bits():
    x = jnp.zeros((1, 3, 4, 2), jnp.int8)
    case = fitting(CASES[2])
    row = {"out_t": DType.INT32}
    text = jax.jit(lambda x: call(case, row, x, ResizeMode.BILINEAR)).lower(x).as_text()
    assert "i64>" not in text
    assert "f64>" not in text


def test_gradient_of_bilinear_is_the_weights():
    x = jnp.zeros((1, 1, 2, 1), jnp.float32)

    def third_sample(x):
        scale, nothing = (1, 1, 4, 1), (0, 0)
        mode, kind = ResizeMode.BILINEAR, DType.FP32
        return resize(x, scale, nothing, nothing, mode=mode, out_type=kind)[0, 0, 1, 0]

    assert_identical(jax.grad(third_sample)(x).ravel(), np.array([0.75, 0.25], np.float32))
