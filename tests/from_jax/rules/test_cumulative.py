"""Cumulative sums and the like against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from exports import agrees, operators
from jax import lax

import tosajax

pytestmark = pytest.mark.usefixtures("quick")

_FUNCTIONS = {
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "cumlogsumexp": lax.cumlogsumexp,
}


def _along_all(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Both ways, along each axis."""

    def along_all(*arrays: Any) -> list[Any]:
        return [function(x, i, way) for x in arrays for i in range(x.ndim) for way in (False, True)]

    return along_all


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_floats_along_all_axes(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((1,), (2, 7, 3), (33,))]
    bound = {"cummax": 0, "cummin": 0}.get(name, 8)
    agrees(_along_all(_FUNCTIONS[name]), *arrays, ulp=bound, model=True)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32], ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_integers_wrap_as_in_jax(name: str, dtype: Any) -> None:
    rng, info = np.random.default_rng(1), np.iinfo(dtype)
    arrays = [rng.choice([info.min, info.max, -1, 0, 1, 3], s) for s in ((5,), (4, 6))]
    arrays = [x.astype(dtype) for x in arrays]
    # Arm's model refuses sums beyond int32, which wrap in JAX.
    fits = name in ("cummax", "cummin") or (name == "cumsum" and dtype != np.int32)
    agrees(_along_all(_FUNCTIONS[name]), *arrays, model=fits, check=False)


@pytest.mark.parametrize(
    "dtype",
    [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2],
    ids=lambda d: np.dtype(d).name,
)
def test_narrow_floats_are_rounded_once(dtype: Any) -> None:
    x = np.random.default_rng(2).uniform(0.5, 1.5, (8,)).astype(dtype)
    # In FP8E4M3, which has no infinity, JAX's cumlogsumexp is NaN.
    names = [n for n in _FUNCTIONS if n != "cumlogsumexp" or dtype != ml_dtypes.float8_e4m3fn]
    found = agrees(lambda x: [_FUNCTIONS[n](x) for n in names], x, ulp=4, model=True)
    exact = np.cumsum(x.astype(np.float64))
    (ours, *_) = tosajax.compile(found)(x)
    unit = exact * float(jnp.finfo(dtype).eps)
    assert (np.abs(np.asarray(ours).astype(np.float64) - exact) <= 0.501 * unit).all()


def test_nan_and_infinity_stay_behind() -> None:
    lines = [
        [1, np.nan, 2, 3],
        [np.inf, 1, -np.inf, 2],
        [-np.inf, -np.inf, 1, 0],
        [-0.0, 0, -0.0, 1],
    ]
    x = np.array(lines, np.float32)

    def function(x: Any) -> list[Any]:
        return [f(x, 1, way) for f in _FUNCTIONS.values() for way in (False, True)]

    agrees(function, x, ulp=4, model=True)


def test_steps_are_as_many_as_the_logarithm_says() -> None:
    x = np.ones((64,), np.float32)
    assert operators(agrees(lambda x: lax.cumsum(x), x)) == ["SLICE", "PAD", "ADD"] * 6
    assert operators(agrees(lambda x: lax.cumsum(x), x[:1])) == ["IDENTITY"]
    found = operators(agrees(lambda x: lax.cummax(x), x[:8].astype(np.int8)))
    assert found == ["CAST", *["SLICE", "PAD", "MAXIMUM"] * 3, "CAST"]
