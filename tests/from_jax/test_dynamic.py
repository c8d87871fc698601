"""Graphs of any batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exports import check

import tosajax
from tosajax import UnsupportedError
from tosajax.graph.alike import difference

X = np.arange(48, dtype=np.float32).reshape(2, 4, 6) / 7


def rows(x: jax.Array) -> jax.Array:
    """A reshape that joins the batch with another axis, and one that does not."""
    return jnp.tanh(x.reshape(-1, 6)).reshape(x.shape[0], 24) * 2


def test_every_batch_is_the_function():
    graph = tosajax.export(rows, X, dynamic_batch=True)
    assert graph.tensors["x"].shape == (-1, 4, 6)
    assert graph.tensors["output"].shape == (-1, 24)
    assert graph.source.agreement[0].output == "output"
    run = tosajax.compile(graph)
    for count in (1, 3, 8):
        x = np.resize(X, (count, 4, 6))
        check(run(x), [rows(jnp.asarray(x))], 2)


def test_a_bound_graph_is_that_of_the_batch():
    bound = tosajax.bind(tosajax.export(rows, X, dynamic_batch=True), batch=2)
    assert difference(bound, tosajax.export(rows, X)) is None


def test_names_of_open_shapes():
    graph = tosajax.export(rows, X, dynamic_batch=True)
    names = [n for n, t in graph.tensors.items() if t.dtype.name == "SHAPE"]
    assert names
    assert all("any" in name for name in names)


def test_inputs_of_the_same_batch_are_open_and_others_are_not():
    def fn(x: jax.Array, y: jax.Array, scale: jax.Array) -> jax.Array:
        return (x + y) * scale

    graph = tosajax.export(fn, X, X, np.ones((1, 1, 1), np.float32), dynamic_batch=True)
    assert [t.shape for t in graph.input_tensors] == [(-1, 4, 6), (-1, 4, 6), (1, 1, 1)]


def test_constants_that_depend_on_the_batch():
    with pytest.raises(UnsupportedError, match=r"dynamic_batch: .*depends on the batch"):
        tosajax.export(lambda x: x * x.shape[0], X, dynamic_batch=True)
    with pytest.raises(UnsupportedError, match=r"dynamic_batch: .*depends on the batch"):
        tosajax.export(lambda x: jnp.tanh(x) if x.shape[0] == 5 else x + 1, X, dynamic_batch=True)


def test_attributes_that_depend_on_the_batch():
    with pytest.raises(
        UnsupportedError, match=r"REVERSE .*depends on the batch, expected the same"
    ):
        tosajax.export(lambda x: jnp.flip(x, x.shape[0] == 5), X, dynamic_batch=True)


def test_repeats_that_depend_on_the_batch():
    def fn(x: jax.Array, token: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, 6)), x], 1)

    with pytest.raises(UnsupportedError, match=r"an operand of TILE .*depends on the batch"):
        tosajax.export(fn, X, np.ones((1, 1, 6), np.float32), dynamic_batch=True)


@pytest.mark.filterwarnings("ignore:each example of")
def test_two_sizes_that_depend_on_the_batch():
    def fn(x: jax.Array) -> jax.Array:
        return (x[:, None] + x[None]).reshape(x.shape[0], x.shape[0], 24)

    with pytest.raises(UnsupportedError, match="more than one size in RESHAPE"):
        tosajax.export(fn, X, dynamic_batch=True)


def test_a_first_input_without_dimensions():
    with pytest.raises(ValueError, match="the first input has no dimension"):
        tosajax.export(lambda x: x + 1, np.float32(1), dynamic_batch=True)
