"""`prepare` of JAX functions and modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import TosaError, UnsupportedError
from tosajax import quant as tq

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
PARAMS = {"w": np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5), "b": np.ones(5, np.float32)}


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    """JAX's own settings, for frameworks and functions of users."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def layer(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"] + params["b"])


def test_a_function_is_the_graph_that_export_makes():
    model = tq.prepare(layer, example_args=(X,), params=PARAMS)
    other = tq.prepare(tosajax.export(layer, X, params=PARAMS))
    assert model.plan.trained == other.plan.trained == ("w", "b")
    params = tq.calibrate(model, [X])
    np.testing.assert_array_equal(model.apply(params, X)[0], other.apply(params, X)[0])
    assert tq.check_bit_exact(model, params, X)
    wanted = np.asarray(layer(PARAMS, X))
    np.testing.assert_allclose(model.apply(params, X, mode="float")[0], wanted, rtol=1e-5)
    assert np.abs(np.asarray(model.apply(params, X)[0]) - wanted).max() < 0.05


def test_shapes_are_enough():
    shape = jax.ShapeDtypeStruct(X.shape, jnp.float32)
    model = tq.prepare(
        layer, [tq.rule("w", weight=tq.QSpec(bits=4))], example_args=[shape], params=PARAMS
    )
    assert model.specs["w"].bits == 4


def test_max_unroll():
    def fn(x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, y: jnp.tanh(y) * 0.5, x)

    def loops(**options: Any) -> int:
        graph = tq.prepare(fn, example_args=(X,), **options).graph
        return sum(node.op == "WHILE_LOOP" for node in graph.nodes)

    assert (loops(), loops(max_unroll=5), loops(max_unroll=4)) == (0, 0, 1)


def test_arguments():
    graph = tosajax.export(layer, X, params=PARAMS)
    each: list[dict[str, Any]] = [{"example_args": (X,)}, {"params": PARAMS}]
    for options in each:
        with pytest.raises(TypeError, match="example_args and params are of functions"):
            tq.prepare(graph, **options)
    with pytest.raises(TypeError, match=r"example_args is None .*, expected a tuple"):
        tq.prepare(layer, params=PARAMS)
    with pytest.raises(TypeError, match=r"example_args is array.*, expected a tuple"):
        tq.prepare(layer, example_args=X, params=PARAMS)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"graph is 'model.tosa' .*, expected a Graph, .* or a JAX"):
        tq.prepare("model.tosa")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="max_unroll is 0"):
        tq.prepare(layer, example_args=(X,), params=PARAMS, max_unroll=0)


def test_what_tosa_does_not_have():
    with pytest.raises(UnsupportedError, match="cholesky"):
        tq.prepare(jnp.linalg.cholesky, example_args=(np.eye(3, dtype=np.float32),))
    with pytest.raises((TosaError, ValueError), match="no floats to quantize"):
        tq.prepare(lambda x: x + 1, example_args=(np.arange(3, dtype=np.int32),))


# Modules.


def assert_trains(model: tq.PreparedModel, x: np.ndarray) -> Any:
    """The module with values that have moved."""
    rng = np.random.default_rng(0)
    values = {
        name: value + rng.normal(0, 0.05, value.shape).astype(np.float32)
        for name, value in tq.initial_values(model).items()
    }
    params = model.readable({"values": values})
    found = model.pytree(params)
    wanted = np.asarray(model.apply(params, x, mode="float")[0])
    result = np.asarray(found(x)).reshape(wanted.shape)
    assert np.abs(result - wanted).max() <= 3e-5 * np.abs(wanted).max()
    return found


def test_a_module_of_flax():
    nnx = pytest.importorskip("flax.nnx")
    net = nnx.Sequential(
        nnx.Linear(4, 6, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(6, 2, rngs=nnx.Rngs(1))
    )
    found = assert_trains(tq.prepare(net, example_args=(X,)), X)
    assert type(found) is type(net)
    assert jax.tree.structure(found) == jax.tree.structure(net)
    before, after = (each.layers[0].kernel[...] for each in (net, found))
    assert isinstance(after, jax.Array)
    assert (before != after).all()


def test_a_module_of_equinox():
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.MLP(4, 3, 6, 1, key=jax.random.key(0))
    model = tq.prepare(net, example_args=(X[0],))
    found = assert_trains(model, X[0])
    assert jax.tree.structure(found) == jax.tree.structure(net)
    assert (found.layers[0].weight != net.layers[0].weight).all()


def test_a_module_and_parameters():
    """A pair, where both hold arrays."""
    module = jax.tree_util.Partial(lambda own, p, x: jnp.tanh(x @ own) * p, PARAMS["w"])
    model = tq.prepare(module, example_args=(X,), params=PARAMS["b"])
    found, params = model.pytree({"values": tq.initial_values(model)})
    assert isinstance(found, jax.tree_util.Partial)
    np.testing.assert_array_equal(found.args[0], PARAMS["w"])
    np.testing.assert_array_equal(params, PARAMS["b"])


@pytest.mark.slow
def test_a_network_of_real_size(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    pytest.importorskip("keras")
    from jax_networks import build

    network = build("mobilenet_v3", "full")
    model = tq.prepare(network.fn, example_args=network.args, params=network.params)
    assert len(model.weights) > 50
    found = model.pytree({"values": tq.initial_values(model)})
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(network.params), strict=True):
        np.testing.assert_array_equal(mine, theirs)
