"""Sorting, beside JAX: orders of NaN, of zeros and of equal elements, and few nodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import agrees, drawn, operators

import tosajax
from tosajax import UnsupportedError
from tosajax.from_jax.export import export
from tosajax.from_jax.rules import sorting

# Its functions take arrays of NumPy, whatever their annotations tell.
lax: Any = jax.lax

pytestmark = pytest.mark.usefixtures("quick")

SPECIAL = jnp.float32([1, np.nan, -np.inf, 0.0, -0.0, np.inf, np.nan, 2, -0.0, 0.0, 1])
_RNG = np.random.default_rng(0)
SMALL = jnp.asarray(_RNG.integers(-5, 5, (3, 20)))
TYPES = ["bool", "int8", "int16", "int32", "float32", "float16", "bfloat16"]


def _sorts(x):
    return jnp.sort(x), jnp.argsort(x), jnp.argsort(x, descending=True), jnp.sort(x, 0)


def _lexical(a, b, c):
    return lax.sort((a, b, c), dimension=0, num_keys=2)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type(dtype):
    agrees(
        lambda x: (_sorts(x), lax.top_k(x, 3), lax.top_k(x, 12)), SMALL.astype(dtype), model=True
    )


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8(dtype):
    agrees(lambda x: lax.sort(x), SMALL.astype(dtype), model=True)


@pytest.mark.parametrize("most", [1024, 4])
def test_nan_and_zeros_are_ordered_as_in_jax(most, monkeypatch):
    monkeypatch.setattr(sorting, "_MOST_RANKED", most)
    places = jnp.arange(11, dtype=jnp.int32)

    def ordered(x, y, places):
        return *_sorts(x), *_lexical(x, y, places), *_lexical(x > 0, places % 2, y)

    args = SPECIAL, SPECIAL[::-1], places
    graph = agrees(ordered, *args, model=True)
    found = tosajax.compile(graph)(*map(np.asarray, args))
    for ours, theirs in zip(found, ordered(*args), strict=True):
        theirs = np.asarray(theirs)
        is_number = theirs == theirs
        np.testing.assert_array_equal(np.signbit(ours)[is_number], np.signbit(theirs)[is_number])


@pytest.mark.parametrize("most", [1024, 4])
@pytest.mark.parametrize("few", [8, 0])
def test_top_k_of_special_numbers(most, few, monkeypatch):
    monkeypatch.setattr(sorting, "_MOST_RANKED", most)
    monkeypatch.setattr(sorting, "_FEW", few)
    x = jnp.float32([1, -np.inf, np.nan, 3, -np.inf, 3, -3e38, np.nan])
    graph = agrees(lambda x: lax.top_k(x, 8), x, model=True)
    assert "XLA orders them by sign" in graph.source.rewrites[0].differs
    assert ("ARGMAX" in operators(graph)) == (few == 8 or most == 4)
    agrees(lambda x: lax.top_k(x, 5), jnp.int32([5, -(2**31), 7, 5, 2**31 - 1, 7]))


def test_ranks_put_nan_before_infinity_in_top_k(monkeypatch):
    monkeypatch.setattr(sorting, "_FEW", 0)
    agrees(lambda x: lax.top_k(x, 4), jnp.float32([np.inf, 1, np.nan, -np.inf]), model=True)


@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_networks_of_any_length(n, monkeypatch):
    monkeypatch.setattr(sorting, "_MOST_RANKED", 1)
    x = jnp.asarray(_RNG.integers(-4, 4, (2, n)), jnp.int32)
    extreme = x.at[:, 0].set(2**31 - 1).at[:, 1].set(-(2**31))
    agrees(lambda x, y: (lax.sort(x), jnp.argsort(x), lax.sort(y), lax.top_k(y, n)), x, extreme)


def test_long_arrays():
    x = jnp.asarray(_RNG.normal(size=(1100,)), jnp.float32).at[3].set(jnp.nan)
    graph = agrees(lambda x: lax.top_k(x, 10), x)
    assert operators(graph).count("ARGMAX") == 10
    whole = jnp.asarray(_RNG.integers(-500, 500, (1100,)), jnp.int16)
    assert "MINIMUM" in operators(agrees(jnp.sort, whole))


def test_approximate_top_k():
    x = jnp.asarray(_RNG.normal(size=(3, 8, 2)), jnp.float32)

    def found(x):
        return lax.approx_max_k(x, 3), lax.approx_min_k(x, 2, reduction_dimension=1)

    assert "approx_top_k" in str(jax.make_jaxpr(found)(x[..., 0]))
    agrees(lambda x: [found(x[..., 0]), lax.approx_max_k(x, 2)], x)


def test_constant_keys():
    keys = np.asarray([3, 2**32 - 1, 0, 3], np.uint32)

    def ordered(x):
        pairs = lax.sort((keys, x * 2, x), num_keys=1)[1:]
        return *pairs, *lax.sort((keys > 2, x), num_keys=2), *lax.sort((x, keys > 2))

    graph = agrees(ordered, jnp.float32([4, 3, np.nan, 1]), model=True)
    assert operators(graph).count("GATHER") == 2


def test_functions_that_sort():
    x = jnp.asarray(_RNG.normal(size=(4, 9)), jnp.float32)
    agrees(lambda x: (jnp.median(x, 1), jnp.percentile(x, 50, axis=0)), x, ulp=1)
    agrees(lambda x: jnp.unique(x, size=4), jnp.int32([3, 1, 3, 2, 1]))
    agrees(lambda x: lax.sort(x[:, :1], dimension=1), x)


def test_nodes_are_as_few_as_by_hand():
    compared = ["EQUAL", "GREATER", "SELECT", "CAST", "REDUCE_SUM"]
    ranked = [*compared, "SCATTER"]

    def nodes(fn, shape, dtype="float32"):
        found = operators(export(fn, jax.ShapeDtypeStruct(shape, dtype)))
        assert found.count("RESHAPE") <= 9
        return [op for op in found if op != "RESHAPE"]

    assert nodes(jnp.sort, (64,), "int32") == ranked
    assert nodes(jnp.argsort, (2, 64), "int32") == ranked
    assert nodes(jnp.sort, (64,)) == ["EQUAL", "SELECT", "SELECT", "GREATER", *ranked]
    each = ["ARGMAX", "EQUAL", "SELECT"]
    wanted = ["EQUAL", "SELECT", *each * 4, "ARGMAX", "CONCAT", "GATHER"]
    assert nodes(lambda x: lax.top_k(x, 5), (1000,)) == wanted
    wanted = [*ranked, "SCATTER", "SLICE", "SLICE"]
    assert nodes(lambda x: lax.top_k(x, 5), (1000,), "int32") == wanted


def test_what_is_too_long_is_an_error():
    x = jax.ShapeDtypeStruct((2**16 + 1,), np.int32)
    with pytest.raises(
        UnsupportedError, match=r"sort.*65537 elements to sort, expected at most 65536"
    ):
        export(jnp.sort, x)


def test_every_rule_is_tested():
    assert {"sort", "top_k", "approx_top_k"} == sorting.RULES.keys()


# Derivatives: elements go back to their places.


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_gradient_of_sort_goes_back(axis):
    x = np.random.default_rng(0).integers(-2, 3, (3, 5, 4)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    sort = lambda x: jnp.sort(x, axis=axis)  # noqa: E731
    agrees(lambda y, x: jax.vjp(sort, x)[1](y)[0], weights, x, model=axis == 1)
    agrees(lambda x, t: jax.jvp(sort, (x,), (t,)), x, weights)


def test_the_gradient_of_what_is_sorted_along():
    x, y = drawn((3, 7), np.float32), drawn((3, 7), np.float32, 1)
    along = lambda x, y: lax.sort((x, y), dimension=1)[1]  # noqa: E731
    agrees(lambda t, x, y: jax.vjp(along, x, y)[1](t), y * 2, x, y)


@pytest.mark.parametrize("name", ["median", "quantile", "descending"])
def test_gradients_of_functions_that_sort(name):
    function = {
        "median": lambda x: jnp.median(x, axis=1),
        "quantile": lambda x: jnp.quantile(x, 0.3, axis=1),
        "descending": lambda x: jnp.sort(x, axis=1, descending=True) ** 2,
    }[name]
    agrees(jax.grad(lambda x: function(x).sum()), drawn((3, 6), np.float32), ulp=2)


def test_unsigned_places_are_for_moves_alone():
    """Arithmetic of uint32 would be that of int32."""

    def function(x: Any) -> Any:
        _, places = lax.sort((x, lax.iota(np.uint32, 5)), num_keys=1)
        return places - np.uint32(1) > places

    with pytest.raises(UnsupportedError, match=r"sub .*an array of uint32"):
        export(function, drawn((5,), np.float32))
