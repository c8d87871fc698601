"""The run that compares a graph with its function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import TosaError
from tosajax.from_jax import checking
from tosajax.from_jax.export import written
from tosajax.from_jax.scope import Options
from tosajax.from_jax.tracing import traced
from tosajax.spec.target import target_of

X = np.asarray([1.0, -2.0, np.inf, 3.0], np.float32)


def agreement(fn, x, change):
    """What the check finds of a graph with one constant changed."""
    found = traced(fn, (x,), None)
    options = Options(target_of(None), 8)
    graph = written(found, options).graph
    (constant,) = (t for t in graph.tensors.values() if t.values is not None)
    changed = dataclasses.replace(constant, values=change(constant.values))
    graph = dataclasses.replace(graph, tensors={**graph.tensors, constant.name: changed})
    return checking.agreement(graph, found, options.target)


def test_equal_outputs():
    ((name, ulp),) = agreement(lambda x: x + 1, X, lambda v: v)
    assert (name, ulp) == ("output", 0.0)


def test_a_float_that_is_near():
    ((_, ulp),) = agreement(lambda x: x + 1, X, lambda v: v * np.float32(1 + 2**-20))
    assert 1 < ulp < 4  # 2^-20 of 1, in units of 2^-23 of 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v * np.float32(1.01), "output 'output' has"),
        (lambda v: v * np.float32(np.nan), "has nan at [0], expected 2.0"),
        (lambda v: v * np.float32(np.inf), "has inf at [0], expected 2.0"),
    ],
)
def test_a_float_that_is_not(change, words):
    with pytest.raises(TosaError) as error:
        agreement(lambda x: x + 1, X, change)
    assert words in str(error.value)
    assert "check=False" in str(error.value)


def test_small_floats_that_xla_keeps_or_flushes():
    """XLA flushes subnormals of float32 and bfloat16 to 0, not those of float16."""
    for dtype, is_kept in ((np.float16, True), (jnp.bfloat16, False), (np.float32, False)):
        x = np.full(2, jnp.finfo(dtype).smallest_normal, dtype)
        fn = functools.partial(jnp.add, x / 2)
        is_wrong = pytest.raises(TosaError, match="output 'output' has")
        with is_wrong if is_kept else contextlib.nullcontext():
            agreement(fn, x, lambda v: v / 2)


def test_an_integer_that_differs():
    x = np.arange(4, dtype=np.int32)
    with pytest.raises(TosaError, match=r"has 2 at \[0\], expected 1"):
        agreement(lambda x: x + 1, x, lambda v: v + 1)


def test_bool_and_nan():
    x = np.asarray([np.nan, 1, -1], np.float32)
    graph = tosajax.export(lambda x: (x > 0, x + 1, jnp.maximum(x, 0)), x)
    assert [ulp for _, ulp in graph.source.agreement] == [0, 0, 0]


def test_values_for_which_tosa_leaves_the_result_open():
    def fn(x):
        return tosajax.ops.intdiv(x, x - x)

    with pytest.raises(TosaError, match=r"a run breaks rules of TOSA: INTDIV .* intdiv\.r1"):
        tosajax.export(fn, np.ones(3, np.int32))


def test_beyond_the_level():
    x = np.ones((1,) * 7, np.int32)
    with pytest.raises(TosaError, match="rank"):
        tosajax.export(lambda x: tosajax.ops.identity(x), x)
    graph = tosajax.export(lambda x: tosajax.ops.identity(x), x, target="PRO-INT@none")
    assert graph.source.agreement[0].ulp == 0
