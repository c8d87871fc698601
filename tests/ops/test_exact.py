"""The exact integer dots that operators share."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle.matmul_oracle import draw

from tosajax.dtypes import DType
from tosajax.ops import _window
from tosajax.ops.routes import definition
from tosajax.ops.routes.dot import dot_zp
from tosajax.ops.routes.int16_dot import dot_int16, dot_int16_int8
from tosajax.ops.routes.loop import block_of

POINTS = [-128, -1, 0, 127]


@pytest.fixture
def rng():
    return np.random.default_rng(19)


def point(value):
    return jax.device_put(np.asarray([value], jnp.int8))


@pytest.mark.parametrize("shape", [(1, 4, 1), (1, 9, 3), (3, 9, 1), (2, 2, 2), (5, 31, 6)])
@pytest.mark.parametrize("b_axis", [-2, -1])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_route_equals_definition(shape, b_axis, batch, rng):
    m, k, n = shape
    a = draw(rng, DType.INT8, (*batch, m, k))
    b = draw(rng, DType.INT8, (*batch, k, n))
    given = jax.device_put(b if b_axis == -2 else np.swapaxes(b, -1, -2))
    defined, route = (
        jax.jit(functools.partial(f, b_axis=b_axis)) for f in (definition.dot, dot_zp)
    )
    for a_zp in POINTS:
        for b_zp in POINTS:
            inputs = jax.device_put(a), given, point(a_zp), point(b_zp)
            expected = (a.astype(np.int64) - a_zp) @ (b.astype(np.int64) - b_zp)
            np.testing.assert_array_equal(defined(*inputs), expected)
            np.testing.assert_array_equal(route(*inputs), expected)


@pytest.mark.parametrize("a_known", [True, False])
@pytest.mark.parametrize("b_known", [True, False])
def test_known_zero_points_are_dropped(a_known, b_known, rng):
    a, b = (jax.device_put(draw(rng, DType.INT8, s)) for s in ((4, 6), (6, 5)))

    def function(a, b, a_zp, b_zp):
        zero = np.zeros(1, np.int8)
        return dot_zp(a, b, zero if a_known else a_zp, zero if b_known else b_zp)

    zero = point(0)
    np.testing.assert_array_equal(function(a, b, zero, zero), definition.dot(a, b, zero, zero))
    dots = jax.jit(function).lower(a, b, zero, zero).as_text().count("stablehlo.dot_general")
    assert dots == 1 + (not a_known) + (not b_known)


def test_a_known_zero_point_that_is_not_zero_counts(rng):
    a, b = (jax.device_put(draw(rng, DType.INT8, s)) for s in ((4, 6), (6, 5)))
    result = dot_zp(a, b, np.full(1, 3, np.int8), np.full(1, -4, np.int8))
    np.testing.assert_array_equal(result, definition.dot(a, b, point(3), point(-4)))


@pytest.mark.parametrize("length", [1, 131_071, 131_072, 300_000])
@pytest.mark.parametrize("a_value", [-32768, -32641, 32767])
@pytest.mark.parametrize("b_value", [-128, 127])
@pytest.mark.parametrize("b_zp", [-128, 0, 127])
def test_int16_int8_sums_do_not_overflow(length, a_value, b_value, b_zp):
    result = dot_int16_int8(
        jnp.full((1, length), a_value, jnp.int16),
        jnp.full((length, 1), b_value, jnp.int8),
        point(b_zp),
    )
    assert result.dtype == np.int64
    assert int(result[0, 0]) == a_value * (b_value - b_zp) * length


@pytest.mark.parametrize("length", [1, 131_071, 131_072, 300_000])
@pytest.mark.parametrize("a_value", [-32768, 127, 32767])
@pytest.mark.parametrize("b_value", [-32768, -129, 32767])
def test_int16_sums_do_not_overflow(length, a_value, b_value):
    # In int64, sums past int48 are also right.
    result = dot_int16(
        jnp.full((1, length), a_value, jnp.int16), jnp.full((length, 1), b_value, jnp.int16)
    )
    assert result.dtype == np.int64
    assert int(result[0, 0]) == a_value * b_value * length


def test_every_int16(rng):
    values = np.arange(-32768, 32768, dtype=np.int16)
    result = dot_int16_int8(
        jax.device_put(values[:, None]),
        jax.device_put(np.asarray([[-127, 100]], jnp.int8)),
        point(28),
    )
    expected = values.astype(np.int64)[:, None] * np.array([[-155, 72]])
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_mixed_signs_of_int16(rng):
    a, b = draw(rng, DType.INT16, (5, 200)), draw(rng, DType.INT16, (200, 7))
    result = dot_int16(jax.device_put(a), jax.device_put(b))
    np.testing.assert_array_equal(np.asarray(result), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("size", [(1, 1), (3, 3), (8, 8), (9, 9), (1, 8192), (65, 65), (5, 5, 5)])
@pytest.mark.parametrize("limit", [1, 7, 64])
def test_blocks_cover_the_kernel(size, limit):
    block = block_of(size, limit)
    assert np.prod(block) <= limit
    assert all(1 <= part <= length for part, length in zip(block, size, strict=True))
    counts = [-(-length // part) for part, length in zip(block, size, strict=True)]
    # Less than half of the work is filling.
    filled = np.prod([n * part for n, part in zip(counts, block, strict=True)])
    assert filled < 2 * np.prod(size)


def test_window_lengths():
    shape = _window.window((3, 2), (2, 1), (1, 3), (1, 0, 2, 1))
    assert shape.out((1, 6, 5, 4)) == (3, 5)
    assert list(shape.offsets()) == [(0, 0), (0, 3), (1, 0), (1, 3), (2, 0), (2, 3)]


def test_int16_dots_are_int8_dots():
    text = (
        jax.jit(dot_int16)
        .lower(jax.ShapeDtypeStruct((8, 64), np.int16), jax.ShapeDtypeStruct((64, 8), np.int16))
        .as_text()
    )
    for line in text.splitlines():
        if "dot_general" in line:
            assert "xi8>" in line
            assert "xi64>" not in line.split("precision")[-1]


@pytest.mark.parametrize("shape", [(1, 64, 32), (32, 64, 1), (32, 64, 32)])
@pytest.mark.parametrize("known", [True, False])
def test_every_dot_takes_the_fast_path(shape, known):
    if jax.default_backend() != "cpu":
        pytest.skip("looks for the fast kernels of XLA:CPU")
    m, k, n = shape
    zero = np.zeros(1, np.int8)

    def function(a, b, a_zp, b_zp):
        return dot_zp(a, b, *((zero, zero) if known else (a_zp, b_zp)))

    a, b = (jax.ShapeDtypeStruct(s, np.int8) for s in ((m, k), (k, n)))
    text = str(jax.jit(function).lower(a, b, zero, zero).compile().as_text())
    assert "ynn_fusion" in text
    assert not re.search(r"\bdot\(", text[text.index("ENTRY") :])
