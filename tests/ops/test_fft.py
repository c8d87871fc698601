"""FFT2D and RFFT2D against their definition as sums of products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import test_util
from oracle import fft_oracle as oracle
from oracle.float_bounds import normal_min
from oracle.matmul_oracle import check_dot_product
from oracle.transforms import assert_identical, assert_transforms

from tosajax.dtypes import DType
from tosajax.ops import fft2d, rfft2d

SHAPES = [(1, 1), (1, 2), (2, 1), (1, 64), (64, 1), (2, 2), (4, 8), (8, 4), (16, 32)]
TINY = normal_min(np.float32)


@pytest.fixture
def rng():
    return np.random.default_rng(17)


def _spread(rng, shape):
    """All sizes from 2**-20 to 2**20."""
    return rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-20, 20, shape)


def _half_zero(rng, shape):
    values = rng.uniform(-1, 1, shape)
    return np.where(values < 0, 0.0, values)


def _small_on_large(rng, shape):
    """Rounding of the first element must not drown the others."""
    values = rng.uniform(-1, 1, shape) / np.sqrt(np.prod(shape[1:]))
    values[:, 0, 0] = 16
    return values


def _large(rng, shape):
    return rng.uniform(-1, 1, shape) * 2.0**60


def _limits(rng, shape):
    """Zeros, ones, and the limits of the normal range."""
    edges = [0.0, -0.0, 1.0, -1.0, TINY, -TINY, 2.0**-149, 2.0**100, -(2.0**100)]
    return rng.choice(edges, shape)


DATA = (_spread, _half_zero, _small_on_large, _large, _limits)


def _planes(rng, draw, shape):
    return tuple(draw(rng, shape).astype(np.float32) for _ in range(2))


def _check(result, real, imag, *, columns, terms, local, inverse=False):
    """Asserts the accuracy of dot products for each of the two outputs."""
    references = oracle.transform(real, imag, inverse=inverse)
    if not local:  # the largest of all stands for each
        real, imag = (np.full_like(v, np.abs(v).max(initial=TINY)) for v in (real, imag))
    bounds = oracle.transform_of_magnitudes(real, imag, TINY)
    for part, reference, bound in zip(result, references, bounds, strict=True):
        check_dot_product(
            part,
            reference[..., :columns],
            bound[..., :columns],
            size=terms,
            out=DType.FP32,
            acc=DType.FP32,
            bias=False,
        )


@pytest.mark.parametrize("draw", DATA)
@pytest.mark.parametrize("shape", SHAPES)
def test_fft2d(shape, draw, rng):
    # With magnitudes far apart only direct sums are as precise as each of their terms.
    local = draw in (_half_zero, _small_on_large)
    for inverse in (False, True):
        real, imag = _planes(rng, draw, (3, *shape))
        result = fft2d(
            jax.device_put(real), jax.device_put(imag), inverse=inverse, local_bound=local
        )
        terms = 2 * real[0].size
        _check(result, real, imag, columns=shape[1], terms=terms, local=local, inverse=inverse)


@pytest.mark.parametrize("draw", DATA)
@pytest.mark.parametrize("shape", SHAPES)
def test_rfft2d(shape, draw, rng):
    local = draw in (_half_zero, _small_on_large)
    real, _ = _planes(rng, draw, (3, *shape))
    result = rfft2d(jax.device_put(real), local_bound=local)
    columns = shape[1] // 2 + 1
    assert result[0].shape == result[1].shape == (3, shape[0], columns)
    _check(result, real, 0 * real, columns=columns, terms=real[0].size, local=local)


@pytest.mark.parametrize("shape", [(h, w) for h in (1, 2, 4) for w in (1, 2, 4)])
def test_integers_of_quarter_turns_are_exact(shape, rng):
    """Every coefficient is 0, 1, -1, i or -i: nothing is rounded or scaled."""
    real, imag = (rng.integers(-1000, 1000, (5, *shape)).astype(np.float32) for _ in range(2))
    factors = np.rint(oracle.coefficients(*shape))
    expected = np.einsum("yxhw,nhw->nyx", factors, real + 1j * imag)
    opposite = np.einsum("yxhw,nhw->nyx", factors.conj(), real + 1j * imag)
    for inverse, wanted in ((False, expected), (True, opposite)):
        result = fft2d(jax.device_put(real), jax.device_put(imag), inverse=inverse)
        np.testing.assert_array_equal(result, (wanted.real, wanted.imag))


@pytest.mark.parametrize("shape", SHAPES)
def test_rfft2d_is_half_of_fft2d(shape, rng):
    real = jax.device_put(np.asarray(_spread(rng, (3, *shape)), jnp.float32))
    whole = fft2d(real, jnp.zeros_like(real), inverse=False)
    for half, part in zip(rfft2d(real), whole, strict=True):
        assert_identical(half, part[..., : shape[1] // 2 + 1])


def test_sign_of_the_exponent():
    impulse = jax.device_put(np.asarray([[[0, 1, 0, 0]]], jnp.float32))
    zero = jnp.zeros_like(impulse)
    for result, imag in (
        (fft2d(impulse, zero, inverse=False), [0, -1, 0, 1]),
        (fft2d(impulse, zero, inverse=True), [0, 1, 0, -1]),
        (rfft2d(impulse), [0, -1, 0]),
    ):
        np.testing.assert_array_equal(result[0][0, 0], [1, 0, -1, 0][: len(imag)])
        np.testing.assert_array_equal(result[1][0, 0], imag)


def test_imaginary_part_that_may_be_skipped_is_zero(rng):
    real = rng.normal(size=(2, 8, 16)).astype(np.float32)
    _, imag = rfft2d(jax.device_put(real))
    np.testing.assert_array_equal(imag[:, ::4, ::8], 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 1), (7, 7)])
def test_not_finite_anywhere_is_nan_everywhere(value, place, rng):
    """In its own plane: with NaN as the sums have it, with infinity as they may have it."""
    finite = rng.normal(size=(3, 8, 8)).astype(np.float32)
    spoilt = finite.copy()
    spoilt[1][place] = value
    clean, planes = jax.device_put(finite), jax.device_put(spoilt)
    for function in (
        lambda x: fft2d(x, clean, inverse=False),
        lambda x: fft2d(clean, x, inverse=False),
        lambda x: fft2d(x, clean, inverse=True),
        lambda x: fft2d(clean, x, inverse=True),
        rfft2d,
    ):
        for part, expected in zip(function(planes), function(clean), strict=True):
            assert np.isnan(part[1]).all()
            assert_identical(part[0::2], expected[0::2])


# Lines of 512 and more are transformed in other steps alone than side by side.
@pytest.mark.parametrize("shape", [(2, 4), (16, 16), (1, 2048), (512, 8), (1024, 2)])
def test_bits_do_not_depend_on_the_batch(shape, rng):
    def both(real, imag):
        return jnp.concatenate([*fft2d(real, imag, inverse=False), *rfft2d(real)], axis=-1)

    real, imag = map(jax.device_put, _planes(rng, _spread, (9, *shape)))
    one_by_one = jax.jit(lambda *planes: jax.lax.map(lambda p: both(*p), planes))
    alone = one_by_one(real[:, None], imag[:, None])
    for count in (2, 9):
        assert_identical(jax.jit(both)(real[:count], imag[:count]), alone[:count, 0])
    assert_identical(jax.jit(jax.vmap(both))(real[:, None], imag[:, None]), alone)


def test_jit_and_vmap(rng):
    real, imag = map(jax.device_put, _planes(rng, _spread, (2, 4, 8)))
    assert_transforms(lambda r, i: jnp.stack(fft2d(r, i, inverse=True)), real, imag)
    assert_transforms(lambda r: jnp.stack(rfft2d(r)), real)


def test_largest_planes_of_the_level():
    """A line of 8192, where a wave has its energy in one place."""
    wave = np.cos(2 * np.pi * 5 * np.arange(8192) / 8192).astype(np.float32)
    for shape in ((1, 1, 8192), (1, 8192, 1)):
        real, imag = fft2d(jax.device_put(wave.reshape(shape)), jnp.zeros(shape), inverse=False)
        expected = np.zeros(8192)
        expected[[5, -5]] = 4096
        # Half a unit in the last place of 1 for each of 8192 inputs.
        np.testing.assert_allclose(np.ravel(real), expected, rtol=0, atol=8192 * 2.0**-24)
        np.testing.assert_allclose(np.ravel(imag), 0, rtol=0, atol=8192 * 2.0**-24)


def test_gradients(rng):
    real, imag = map(jax.device_put, _planes(rng, _half_zero, (1, 4, 4)))
    test_util.check_grads(lambda r, i: fft2d(r, i, inverse=False), (real, imag), 1, ("rev",))
    test_util.check_grads(rfft2d, (real,), 1, ("rev",))
