"""reduce_window against JAX: any axes, padding and dilation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from exports import agrees, drawn, operators
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tosajax.from_jax.export import export

pytestmark = pytest.mark.usefixtures("quick")

_INTEGERS = (np.int8, np.int16, np.int32)
_NARROW = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


def _starts(dtype: Any) -> dict[str, tuple[Any, Any]]:
    """The functions that have primitives of their own, and what they start with."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return {"max": (lax.max, np.False_), "min": (lax.min, np.True_)}
    if jnp.issubdtype(dtype, np.integer):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    else:
        low, high = -np.inf, np.inf
    zero, low, high = (np.asarray(n, dtype) for n in (0, low, high))
    return {"sum": (lax.add, zero), "max": (lax.max, low), "min": (lax.min, high)}


def _random_windows(rng: np.random.Generator) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A shape, and the parameters of windows along some of its axes."""
    rank = int(rng.integers(1, 6))
    some = lambda low, high: [int(n) for n in rng.integers(low, high + 1, rank)]  # noqa: E731
    is_still = rng.random(rank) < 0.4
    window = np.where(is_still, 1, some(1, 4)).tolist()
    strides = np.where(is_still, 1, some(1, 3)).tolist()
    sizes = some(1, 6)
    edge = [
        (0, 0) if still else (a, b)
        for still, a, b in zip(is_still, some(-1, 3), some(-1, 3), strict=True)
    ]
    spread = np.where(is_still, 1, some(1, 2) if rng.random() < 0.3 else 1).tolist()
    dilation = np.where(is_still, 1, some(1, 2) if rng.random() < 0.3 else 1).tolist()
    for i in range(rank):  # At least one position.
        while (sizes[i] - 1) * spread[i] + sum(edge[i]) < (window[i] - 1) * dilation[i]:
            sizes[i] += 1
    options = {
        "window_dimensions": window,
        "window_strides": strides,
        "padding": edge,
        "base_dilation": spread,
        "window_dilation": dilation,
    }
    return tuple(sizes), options


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
@pytest.mark.parametrize("dtype", [np.float32, np.int8], ids=lambda d: d.__name__)
def test_windows_of_any_parameters(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = [_random_windows(rng) for _ in range(2)]
    arrays = [drawn(shape, dtype, seed) for shape, _ in cases]

    def function(*arrays: Any) -> list[Any]:
        return [
            lax.reduce_window(x, start, f, **options)
            for x, (_, options) in zip(arrays, cases, strict=True)
            for f, start in _starts(dtype).values()
        ]

    agrees(function, *arrays, ulp=4, model=True, check=False)


@pytest.mark.parametrize("dtype", [*_INTEGERS, np.bool_, *_NARROW], ids=lambda d: np.dtype(d).name)
def test_types(dtype: Any) -> None:
    x = drawn((1, 5, 6, 2), dtype)

    def function(x: Any) -> list[Any]:
        return [
            lax.reduce_window(x, start, f, (1, 2, 3, 1), (1, 2, 1, 1), padding)
            for f, start in _starts(dtype).values()
            for padding in ("SAME", "VALID")
        ]

    # JAX sums narrow floats one after the other. Arm's model refuses sums beyond int32.
    agrees(function, x, ulp=3, model=dtype != np.int32, check=False)


def _operators(x: np.ndarray, name: str, *args: Any) -> list[str]:
    f, start = _starts(x.dtype)[name]
    return operators(agrees(lambda x: lax.reduce_window(x, start, f, *args), x, ulp=2, model=True))


def test_what_fits_is_one_operator() -> None:
    x, window = drawn((2, 8, 9, 3), np.float32), ((1, 2, 2, 1), (1, 2, 2, 1))
    assert _operators(x, "max", *window, "SAME") == ["MAX_POOL2D"]
    assert _operators(x, "sum", *window, "SAME") == ["AVG_POOL2D", "MUL"]
    assert _operators(x, "min", *window, "SAME") == ["NEGATE", "MAX_POOL2D", "NEGATE"]
    assert _operators(x, "max", *window, "VALID") == ["SLICE", "MAX_POOL2D"]
    assert _operators(drawn((2, 8, 8, 3), np.int8), "max", *window, "SAME") == ["MAX_POOL2D"]
    sums = _operators(drawn((2, 8, 8, 3), np.int8), "sum", *window, "SAME")
    assert sums == ["DEPTHWISE_CONV2D", "CAST"]


def test_padding_as_wide_as_the_window_is_a_pad() -> None:
    x = drawn((1, 4, 4, 2), np.float32)
    around = [(0, 0), (2, 1), (0, 3), (0, 0)]
    assert _operators(x, "max", (1, 2, 2, 1), (1, 1, 1, 1), around) == ["PAD", "MAX_POOL2D"]


def test_axes_in_other_places() -> None:
    nchw = drawn((2, 3, 8, 8), np.float32)
    found = _operators(nchw, "max", (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    assert found == ["TRANSPOSE", "MAX_POOL2D", "TRANSPOSE"]
    volume = drawn((1, 4, 6, 6, 2), np.float32)
    found = _operators(volume, "max", (1, 2, 2, 2, 1), (1, 2, 2, 2, 1), "VALID")
    assert found.count("MAX_POOL2D") == 2
    assert "TRANSPOSE" not in found
    line = drawn((2, 9, 3), np.float32)
    assert _operators(line, "max", (1, 3, 1), (1, 3, 1), "VALID") == [
        "RESHAPE",
        "MAX_POOL2D",
        "RESHAPE",
    ]


def test_average_pools_of_frameworks() -> None:
    """Sums divided by the number of elements, with padding or without."""
    x = drawn((2, 8, 8, 3), np.float32)
    window = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"

    def with_padding(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, *window) / 9

    def without(x: Any) -> Any:
        count = lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, *window)
        return lax.reduce_window(x, 0.0, lax.add, *window) / count

    for function in (with_padding, without):
        found = operators(agrees(function, x, ulp=2, model=True))
        assert found[0] == "AVG_POOL2D"
        assert len(found) <= 3


def test_known_functions_start_anywhere() -> None:
    x, y = drawn((5, 7), np.float32), drawn((5, 7), np.int8)
    args = (2, 3), (1, 2), "SAME"

    def function(x: Any, y: Any) -> list[Any]:
        floats = (lax.max, lax.min, lax.add, lax.mul)
        found = [lax.reduce_window(x, np.float32(0.5), f, *args) for f in floats]
        whole = (lax.max, lax.add, lax.mul, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
        return found + [lax.reduce_window(y, np.int8(3), f, *args) for f in whole]

    agrees(function, x, y, ulp=4, model=True)


def test_any_function() -> None:
    """The largest in each window, and where it is."""
    x, places = drawn((6, 9), np.float32), np.arange(54, dtype=np.int32).reshape(6, 9)
    start = np.float32(-np.inf), np.int32(-1)

    def larger(a: Any, b: Any) -> Any:
        is_first = a[0] >= b[0]
        return jnp.where(is_first, a[0], b[0]), jnp.where(is_first, a[1], b[1])

    def function(x: Any, i: Any, padding: str = "VALID") -> Any:
        return lax.reduce_window((x, i), start, larger, (2, 3), (2, 2), padding)

    graph = agrees(function, x, places, model=True)
    assert not graph.source.rewrites
    padded = export(lambda x, i: function(x, i, "SAME"), x, places)
    assert any("padding" in rewrite.differs for rewrite in padded.source.rewrites)


def test_nan_and_infinity() -> None:
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan], np.float32)
    x = special[np.random.default_rng(3).integers(0, 6, (1, 16, 16, 1))]

    def function(x: Any) -> list[Any]:
        return [
            lax.reduce_window(x, start, f, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
            for f, start in _starts(np.float32).values()
        ]

    agrees(function, x, ulp=2, model=True)


# Derivatives.

_POOLS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]] = {
    "apart": ((1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "overlapping": ((1, 3, 2, 1), (1, 2, 1, 1), "VALID"),
    "padded": ((1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "uneven": ((1, 2, 3, 1), (1, 3, 1, 1), [(0, 0), (1, 0), (0, 2), (0, 0)]),
    "channels": ((2, 1, 1, 2), (1, 1, 1, 1), [(0, 0), (0, 0), (0, 0), (1, 0)]),
    "gaps": ((1, 1, 1, 1), (1, 2, 3, 1), "VALID"),
}  # fmt: skip


def _with_ties(dtype: Any) -> np.ndarray:
    """Few different numbers, with infinities, zeros of both signs, and rows of the same number."""
    x = np.random.default_rng(0).choice([-2, -1, -0.0, 0, 1, np.inf, -np.inf], (2, 5, 6, 2))
    x[1, :3] = 1
    x[1, 3:, :3] = -np.inf
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", _POOLS)
@pytest.mark.parametrize("function", [lax.max, lax.min])
def test_gradients_go_to_the_first_of_the_greatest(name, function, dtype):
    """Sums in JAX's order, bit for bit."""
    start = np.asarray(-np.inf if function is lax.max else np.inf, dtype)

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, start, function, *_POOLS[name])

    x = _with_ties(dtype)
    shape = jax.eval_shape(pool, x).shape
    back = drawn(shape, dtype, 1)
    found = agrees(lambda y, x: jax.vjp(pool, x)[1](y)[0], back, x, model=dtype is np.float32)
    assert not found.source.rewrites
    agrees(lambda x, t: jax.jvp(pool, (x,), (t,)), x, drawn(x.shape, dtype, 2))


@pytest.mark.parametrize("place", [0, 3, 7])
def test_gradients_beside_nan(place):
    """NaN stays the greatest in no window, as in JAX."""
    x = np.arange(8, dtype=np.float32)
    x[place] = np.nan
    pool = lambda x: lax.reduce_window(x, np.float32(-np.inf), lax.max, (3,), (1,), "SAME")  # noqa: E731
    agrees(lambda y, x: jax.vjp(pool, x)[1](y)[0], drawn((8,), np.float32), x)


def test_a_network_with_max_pooling_has_a_gradient():
    def loss(x: Any) -> Any:
        pooled = lax.reduce_window(jnp.tanh(x), -jnp.inf, lax.max, *_POOLS["padded"])
        return (pooled**2).sum()

    agrees(jax.grad(loss), drawn((2, 5, 6, 2), np.float32), ulp=8)
