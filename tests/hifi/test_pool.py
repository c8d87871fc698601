"""Pooling: vectors of other implementations, definitions in Python integers, and limits."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import hifi_oracle as oracle
from oracle.hifi_oracle import draw, round_half_away
from oracle.transforms import assert_transforms

from tosajax.hifi import NNLibParamError
from tosajax.hifi.kernels import pool

# Here they also take NumPy arrays.
avgpool: Any = pool.avgpool
maxpool: Any = pool.maxpool
DTYPES = {"8": np.int8, "16": np.int16, "f32": np.float32, "asym8u": np.uint8}
INTEGERS = ["8", "16", "asym8u"]
# Height and width of the image, kernel, strides, padding and size of the output.
CASES: dict[str, tuple[tuple[int, int], ...]] = {
    "one-element": ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    "2x2": ((6, 4), (2, 2), (2, 2), (0, 0), (3, 2)),
    "3x3-padded": ((5, 4), (3, 3), (1, 1), (1, 1), (5, 4)),
    "uneven": ((7, 6), (3, 2), (2, 3), (2, 1), (4, 3)),
    "cropped": ((9, 8), (2, 3), (2, 2), (0, 0), (2, 1)),
    "windows-outside": ((3, 4), (2, 3), (3, 2), (5, 7), (7, 9)),
    "far-outside": ((2, 3), (2, 1), (300, 1), (600, 0), (3, 3)),
    "global": ((9, 13), (9, 13), (1, 1), (0, 0), (1, 1)),
    "wide-steps": ((5, 6), (1, 1), (3, 4), (1, 2), (3, 3)),
}


@pytest.fixture
def rng():
    return np.random.default_rng(31)


def arguments(case):
    size, kernel, strides, padding, out_size = CASES[case]
    return size, {"kernel": kernel, "strides": strides, "padding": padding, "out_size": out_size}


def images(rng, dtype, size, channels=3):
    shape = (*size, channels)
    yield draw(rng, dtype, shape)
    if dtype is not np.float32:
        info = np.iinfo(dtype)
        yield np.full(shape, info.min, dtype)
        yield np.full(shape, info.max, dtype)
        # Averages at ties.
        yield rng.integers(0 if info.min == 0 else -2, 3, shape).astype(dtype)


def compiled(function, image, **where):
    return np.asarray(jax.jit(functools.partial(function, **where))(image))


# Vectors of other implementations.


@pytest.mark.parametrize("precision", INTEGERS)
def test_vectors_of_a_numpy_model(precision, data):
    vectors = np.load(data / f"hifi/model_pool_{precision}_chw.npz")
    where = {"precision": precision, "data_format": "WHD", **_where(vectors["params"])}
    for function, name in ((avgpool, "avg"), (maxpool, "max")):
        result = jax.jit(functools.partial(function, **where))(vectors["x"])
        assert result.dtype == vectors[name].dtype
        np.testing.assert_array_equal(result, vectors[name])


@pytest.mark.parametrize("function", [avgpool, maxpool])
def test_vectors_of_tflite_micro(function, data):
    vectors = np.load(data / f"hifi/tflm_{function.__name__}_8_nhwc.npz")
    where = _where(vectors["params_kh_kw_ys_xs_yp_xp_oh_ow"])
    result = jax.jit(jax.vmap(functools.partial(function, **where)))(vectors["x"])
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, vectors["out"])


def _where(parameters):
    pairs = [tuple(pair) for pair in parameters.reshape(4, 2).tolist()]
    return dict(zip(("kernel", "strides", "padding", "out_size"), pairs, strict=True))


# Definitions.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", pool.POOL)
def test_average(precision, case, rng):
    size, where = arguments(case)
    function: Any = jax.jit(functools.partial(avgpool, precision=precision, **where))
    for image in images(rng, DTYPES[precision], size):
        result = function(image)
        assert result.dtype == image.dtype
        expected = oracle.avgpool(image, *where.values())
        if precision == "f32":
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(result, expected)
    assert function._cache_size() == 1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", pool.POOL)
def test_maximum(precision, case, rng):
    size, where = arguments(case)
    function: Any = jax.jit(functools.partial(maxpool, precision=precision, **where))
    for image in images(rng, DTYPES[precision], size):
        result = function(image)
        assert result.dtype == image.dtype
        np.testing.assert_array_equal(result, oracle.maxpool(image, *where.values()))
    assert function._cache_size() == 1


@pytest.mark.parametrize("function", [avgpool, maxpool])
@pytest.mark.parametrize("precision", pool.POOL)
def test_planes_are_the_same_image(function, precision, rng):
    size, where = arguments("uneven")
    image = draw(rng, DTYPES[precision], (*size, 3))
    where["precision"] = precision
    planes = compiled(function, image.transpose(2, 0, 1), data_format="WHD", **where)
    np.testing.assert_array_equal(planes.transpose(1, 2, 0), compiled(function, image, **where))


def test_maximum_of_a_window_longer_than_the_image():
    image = np.array([[[-5], [-3]]], np.int8)
    result = maxpool(image, kernel=(3, 4), padding=(1, 1), out_size=(1, 1))
    np.testing.assert_array_equal(result, [[[-3]]])


@pytest.mark.parametrize("precision", INTEGERS)
def test_reciprocals_of_every_length(precision):
    """Windows that cover 1, 2, ... 256 rows, or columns, of sums up to the largest."""
    dtype = DTYPES[precision]
    info = np.iinfo(dtype)
    image = np.empty((256, 1, 5), dtype)
    image[..., :3] = info.min, info.max, info.max // 2
    image[:, 0, 3:] = np.random.default_rng(7).choice([info.min, 1, info.max], (256, 2))
    sums = np.cumsum(image[:, 0], axis=0, dtype=np.int64).tolist()
    expected = [
        [oracle.average(total, n + 1, 1, dtype) for total in row] for n, row in enumerate(sums)
    ]
    rows = {"kernel": (256, 1), "padding": (255, 0), "out_size": (256, 1)}
    columns = {name: pair[::-1] for name, pair in rows.items()}
    result = compiled(avgpool, image, precision=precision, **rows)
    np.testing.assert_array_equal(result[:, 0], expected)
    result = compiled(avgpool, image.transpose(1, 0, 2), precision=precision, **columns)
    np.testing.assert_array_equal(result[0], expected)


def test_largest_window():
    image = np.empty((256, 256, 2), np.int16)
    image[:] = ends = -(2**15), 2**15 - 1
    result = compiled(avgpool, image, precision="16", kernel=(256, 256), out_size=(1, 1))
    np.testing.assert_array_equal(result, [[ends]])


@pytest.mark.parametrize("size", [(1, 2), (2, 2), (3, 3), (2, 4), (3, 5), (7, 7), (6, 8), (1, 49)])
def test_windows_below_50_elements_average_as_in_tflite(size):
    """The sums of all averages k and k + 1/2, and those next to them."""
    count = math.prod(size)
    ties = np.arange(-128 * 2, 127 * 2 + 1) * count // 2
    sums = np.unique(np.clip(ties[:, None] + [-1, 0, 1], -128 * count, 127 * count))
    first = np.clip(sums // count, -128, 127)
    # `rest` elements are greater by one than the others.
    rest = sums - first * count
    values = first[:, None] + (np.arange(count) < rest[:, None])
    planes = values.reshape(-1, *size).astype(np.int8)
    result = compiled(avgpool, planes, kernel=size, out_size=(1, 1), data_format="WHD")
    expected = [round_half_away(total, count) for total in sums.tolist()]
    np.testing.assert_array_equal(result[:, 0, 0], expected)


# Transforms, and parameters that are rejected.


@pytest.mark.parametrize("function", [avgpool, maxpool])
@pytest.mark.parametrize("precision", pool.POOL)
@pytest.mark.parametrize("data_format", ["DWH", "WHD"])
def test_transforms(function, precision, data_format, rng):
    size, where = arguments("uneven")
    shape = (*size, 3) if data_format == "DWH" else (3, *size)
    function = functools.partial(function, precision=precision, data_format=data_format, **where)
    image = jnp.asarray(draw(rng, DTYPES[precision], shape))
    assert_transforms(function, image, exact=precision != "f32")


REJECTED = {
    "precision": {"precision": "asym8s"},
    "inp_data_format": {"data_format": "HWD"},
    "kernel_height": {"kernel": (0, 2)},
    "kernel_width": {"kernel": (2, 0)},
    "y_stride": {"strides": (0, 1)},
    "x_stride": {"strides": (1, 0)},
    "y_padding": {"padding": (-1, 0)},
    "x_padding": {"padding": (0, -1)},
    "out_height": {"out_size": (0, 2)},
    "out_width": {"out_size": (2, 0)},
}


@pytest.mark.parametrize("function", [avgpool, maxpool])
@pytest.mark.parametrize("argument", REJECTED)
def test_rejected(function, argument):
    legal = {"kernel": (2, 2), "out_size": (2, 2)}
    with pytest.raises(NNLibParamError, match=argument) as error:
        function(np.zeros((4, 5, 2), np.int8), **{**legal, **REJECTED[argument]})
    assert error.value.argument == argument
    assert error.value.code == -1


@pytest.mark.parametrize("function", [avgpool, maxpool])
def test_rejected_images(function):
    where = {"kernel": (1, 1), "out_size": (1, 1)}
    with pytest.raises(NNLibParamError, match="p_inp"):
        function(np.zeros((0, 5, 2), np.int8), **where)
    with pytest.raises(NNLibParamError, match="p_inp"):
        function(np.zeros((1, 4, 5, 2), np.int8), **where)
    with pytest.raises(TypeError, match="uint8"):
        function(np.zeros((4, 5, 2), np.uint8), **where)


@pytest.mark.parametrize("precision", pool.POOL)
def test_longest_windows_of_averages(precision):
    image = np.zeros((300, 1, 1), DTYPES[precision])
    for length in (257, 300):
        if precision == "f32":
            avgpool(image, precision=precision, kernel=(length, 1), out_size=(1, 1))
        else:
            with pytest.raises(NNLibParamError, match="kernel_height"):
                avgpool(image, precision=precision, kernel=(length, 1), out_size=(1, 1))
    with pytest.raises(NNLibParamError, match="kernel_width"):
        avgpool(image, precision=precision, kernel=(1, 2), out_size=(1, 1))
