"""Compiled programs inside functions that JAX traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType

X = np.array([[1.0, 2.0]], np.float32)
MESSAGE = "inside jit use tosajax.lower"


def graph() -> tosajax.Graph:
    """A product with a constant that is folded as the graph is compiled."""
    b = Builder()
    two = b.op(
        "ADD", b.const(np.ones((1, 2), np.float32), DType.FP32, name="one"), b.const(X, DType.FP32)
    )
    return b.graph([b.op("MUL", b.input("x", DType.FP32, (1, 2)), two, b.const([0], DType.INT8))])


def saved(tmp_path, **options: Any) -> tosajax.SavedExecutable:
    tosajax.compile(graph()).save(tmp_path / "m.tosax")
    return tosajax.load_executable(tmp_path / "m.tosax", **options)


RUNS: dict[str, Callable[[Any], Any]] = {
    "compile": lambda _: tosajax.compile(graph()),
    "batch": lambda _: tosajax.compile(graph(), batch=1, micro_batch=1),
    "cache_dir": lambda folder: tosajax.compile(graph(), cache_dir=folder),
    "saved": saved,
}
TRACES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda run: jax.jit(run)(X),
    "jit of a constant": lambda run: jax.jit(lambda y: y + run(X)[0])(X),
    "grad": lambda run: jax.grad(lambda x: run(x)[0].sum())(X),
    "scan": lambda run: jax.lax.map(run, X[None]),
    "eval_shape": lambda run: jax.eval_shape(run, X),
    "jit of vmap": lambda run: jax.jit(jax.vmap(run))(X[None]),
    "vmap of grad": lambda run: jax.vmap(jax.grad(lambda x: run(x)[0].sum()))(X[None]),
}


@pytest.mark.parametrize(
    ("kind", "trace"),
    [("compile", trace) for trace in TRACES]
    + [(kind, trace) for kind in RUNS if kind != "compile" for trace in ("jit", "grad")],
)
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_calls_in_traced_functions(kind, trace, is_warm, tmp_path):
    run = RUNS[kind](tmp_path)
    if is_warm:
        run(X)
    with pytest.raises(TypeError, match=MESSAGE):
        TRACES[trace](run)
    np.testing.assert_array_equal(run(X)[0], X * (X + 1))  # no traced value was kept


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_vmap_of_an_executable(is_warm):
    run = tosajax.compile(graph())
    if is_warm:
        run(X)
    np.testing.assert_array_equal(jax.vmap(run)(X[None])[0], (X * (X + 1))[None])


def test_vmap_of_a_saved_executable(tmp_path):
    with pytest.raises(TypeError, match=MESSAGE):
        jax.vmap(saved(tmp_path))(X[None])


@pytest.mark.parametrize("make", [lambda _: tosajax.compile(graph()), saved])
def test_programs_made_inside_jit(make, tmp_path):
    saved(tmp_path)
    with pytest.raises(TypeError, match=MESSAGE):
        jax.jit(lambda x: make(tmp_path)(x))(X)


def test_lower_inside_jit():
    def product(x: jax.Array) -> jax.Array:
        fn, params = tosajax.lower(graph())
        return fn(params, x)[0]

    np.testing.assert_array_equal(jax.jit(product)(X), X * (X + 1))


def test_other_errors_of_a_call_stay_as_they_are(monkeypatch):
    run = tosajax.compile(graph())
    with pytest.raises(TypeError, match="input 'x' has type int32, expected float32"):
        jax.jit(run)(jnp.ones((1, 2), jnp.int32))

    def fails(*_: Any) -> Any:
        raise ValueError("no room")

    monkeypatch.setattr("tosajax.runtime.executable.call_in_parts", fails)
    with pytest.raises(ValueError, match="no room"):
        run(X)
