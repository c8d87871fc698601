"""Reductions and places of extremes against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from exports import agrees, drawn, operators
from jax import lax

import tosajax
from tosajax.from_jax.export import export
from tosajax.from_jax.rules._monoids import monoid_of
from tosajax.report import UnsupportedError

pytestmark = pytest.mark.usefixtures("quick")

_INTEGERS = (np.int8, np.int16, np.int32)
_NARROW = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


# Some axes of some ranks: none, one, side by side, apart, all; more than level 8K has.
_AXES = {
    (): [()],
    (5,): [(), (0,)],
    (3, 4): [(0,), (1,), (0, 1)],
    (2, 1, 3, 4): [(1,), (1, 2), (0, 2), (0, 3), (1, 2, 3), (0, 1, 2, 3)],
    (2, 2, 1, 2, 3, 2): [(0, 2, 4), (1, 3, 5), (3, 4)],
}


def _everywhere(reduce: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A reduction over all those axes; the results are flat, as outputs have few axes."""

    def function(*arrays: Any) -> list[Any]:
        found = []
        for x, axes in zip(arrays, _AXES.values(), strict=True):
            found += [reduce(x, each).reshape(-1) for each in axes]
        return found

    return function


def _arrays(dtype: Any) -> list[np.ndarray]:
    return [drawn(shape, dtype, i) for i, shape in enumerate(_AXES)]


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_floats(name: str) -> None:
    reduce = getattr(lax, f"reduce_{name}")
    bound = {"sum": 4, "prod": 16}.get(name, 0)
    agrees(_everywhere(reduce), *_arrays(np.float32), ulp=bound, model=True)


@pytest.mark.parametrize("dtype", _INTEGERS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "and", "or", "xor"])
def test_integers_wrap_as_in_jax(name: str, dtype: Any) -> None:
    reduce = getattr(lax, f"reduce_{name}")
    # Arm's model refuses sums beyond int32, which wrap in JAX.
    fits = name not in ("sum", "prod") or (name == "sum" and dtype != np.int32)
    agrees(_everywhere(reduce), *_arrays(dtype), model=fits, check=False)


@pytest.mark.parametrize("name", ["max", "min", "and", "or", "xor"])
def test_booleans(name: str) -> None:
    agrees(_everywhere(getattr(lax, f"reduce_{name}")), *_arrays(np.bool_), model=True)


@pytest.mark.parametrize("dtype", _NARROW, ids=lambda d: np.dtype(d).name)
def test_narrow_floats_are_summed_in_float32(dtype: Any) -> None:
    x = drawn((3, 40), dtype)

    def function(x: Any) -> list[Any]:
        return [lax.reduce_max(x, (1,)), lax.reduce_min(x, (0, 1)), lax.reduce_sum(x, (1,))]

    agrees(function, x, ulp=1.01, model=True)
    graph = export(lambda x: [lax.reduce_sum(x, (1,)), lax.reduce_prod(x[:, :4], (1,))], x)
    notes = [rewrite.differs for rewrite in graph.source.rewrites]
    assert len(notes) == (2 if dtype == np.float16 else 0)


def test_float16_does_not_overflow_on_the_way() -> None:
    """It does in JAX on CPU, which is what the note says."""
    x = np.array([[6e4, 6e4, -6e4]], np.float16)
    graph = export(lambda x: lax.reduce_sum(x, (1,)), x, check=False)
    assert np.asarray(tosajax.compile(graph)(x)) == np.float16(6e4)


def test_nan_infinity_and_signs_of_zero() -> None:
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
    x = special[np.indices((6, 6, 6)).reshape(3, -1)]

    def function(x: Any) -> list[Any]:
        functions = (lax.reduce_sum, lax.reduce_prod, lax.reduce_max, lax.reduce_min)
        places = [f(x, 0, jnp.int32) for f in (lax.argmax, lax.argmin)]
        return [f(x, (0,)) for f in functions] + places

    agrees(function, x, model=True)


def test_operators_are_few() -> None:
    x = drawn((2, 8, 8, 4), np.float32)

    def count(function: Callable[..., Any]) -> list[str]:
        return operators(agrees(function, x, ulp=4, model=True))

    assert count(lambda x: lax.reduce_max(x, (3,))) == ["REDUCE_MAX", "RESHAPE"]
    assert count(lambda x: jnp.mean(x, (1, 2))) == ["RESHAPE", "REDUCE_SUM", "RESHAPE", "MUL"]
    assert count(lambda x: x - jnp.max(x, 3, keepdims=True)) == ["REDUCE_MAX", "SUB"]
    assert count(lambda x: lax.reduce_max(x, (0, 1, 2, 3))) == ["RESHAPE", "REDUCE_MAX", "RESHAPE"]
    assert count(lambda x: lax.argmax(x, 3, jnp.int32)) == ["ARGMAX"]
    # What repeats is reduced once.
    repeated = count(lambda x: lax.reduce_max(jnp.broadcast_to(x[:, :1], x.shape), (3,)))
    assert "REDUCE_MAX" in repeated
    assert repeated.index("REDUCE_MAX") < repeated.index("TILE")


@pytest.mark.parametrize(
    "dtype", [np.float32, *_NARROW, *_INTEGERS, np.bool_], ids=lambda d: np.dtype(d).name
)
def test_places_of_extremes(dtype: Any) -> None:
    arrays = [drawn(shape, dtype, i) for i, shape in enumerate([(7,), (3, 5), (2, 3, 4, 2)])]
    if dtype != np.bool_:  # Several of the same, of which the first is found.
        arrays[1][:, 1:4] = arrays[1][:, :1]

    def function(*arrays: Any) -> list[Any]:
        return [
            f(x, axis, index)
            for f in (lax.argmax, lax.argmin)
            for x in arrays
            for axis, index in ((0, jnp.int32), (x.ndim - 1, jnp.int8))
        ]

    agrees(function, *arrays, model=True)


def test_places_along_an_axis_of_many() -> None:
    x = drawn((2, 1, 3, 2, 2, 2), np.float32)

    def function(x: Any) -> list[Any]:
        y = x.reshape(2, 1, 3, 1, 2, 2, 2)
        return [lax.argmax(y, 2, jnp.int32).reshape(-1), lax.argmin(y, 6, jnp.int32).reshape(-1)]

    agrees(function, x, model=True)


def test_index_types() -> None:
    x = drawn((3, 300), np.float32)
    agrees(lambda x: lax.argmax(x, 1, jnp.int16), x)
    with pytest.raises(UnsupportedError, match="uint8"):
        export(lambda x: lax.argmax(x, 1, jnp.uint8), x)


@pytest.mark.parametrize(("size", "start"), [(1, 2), (7, 0), (16, -3)])
def test_reduce_of_known_functions_starts_anywhere(size: int, start: int) -> None:
    x, y = drawn((3, size, 2), np.float32), drawn((3, size, 2), np.int8)
    number = np.float32(start)

    def function(x: Any, y: Any) -> list[Any]:
        floats = [lax.reduce(x, number, f, (1,)) for f in (lax.add, lax.max, lax.min)]
        whole = (lax.bitwise_xor, lax.bitwise_and, lax.bitwise_or, lax.mul, lax.add)
        return floats + [lax.reduce(y, np.int8(start), f, (0, 1)) for f in whole]

    agrees(function, x, y, ulp=8, check=False)


def test_reduce_of_any_function() -> None:
    """The largest, and where it is: a function of pairs."""
    x, places = drawn((3, 11), np.float32), np.arange(33, dtype=np.int32).reshape(3, 11)
    start = np.float32(-np.inf), np.int32(-1)

    def larger(a: Any, b: Any) -> Any:
        is_first = a[0] >= b[0]
        return jnp.where(is_first, a[0], b[0]), jnp.where(is_first, a[1], b[1])

    agrees(lambda x, i: lax.reduce((x, i), start, larger, (1,)), x, places, model=True)
    agrees(lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + a * b, (0, 1)), x * 0.1, ulp=16)


def test_functions_that_are_monoids() -> None:
    """The one equation of the jaxpr has both arguments, and is the result."""

    def found(fn: Callable[..., Any]) -> Any:
        return monoid_of(jax.make_jaxpr(fn)(1.0, 2.0))

    for fn in (lax.add, lax.mul, lax.max, lambda a, b: lax.min(b, a)):
        assert found(fn) is not None
    for fn in (lax.sub, lambda a, b: a + a, lambda a, b: a, lambda a, b: 2 * (a + b)):
        assert found(fn) is None
    assert found(lambda a, b: (a + b, a)[1]) is None  # the sum is not what it returns
