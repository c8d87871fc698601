"""Trained parameters in the user's pytree: the function with them is the float graph."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tosajax import quant as tq

ONE = (1, 6, 6, 3)


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    """JAX's own setting, for functions of users."""
    with jax.numpy_rank_promotion("allow"):
        yield


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Away from 0, of both signs."""
    return (rng.uniform(0.4, 1.2, shape) * rng.choice([-1, 1], shape)).astype(np.float32)


def prepared(fn: Callable[..., Any], params: Any, *args: Any, **options: Any) -> tq.PreparedModel:
    return tq.prepare(fn, example_args=args, params=params, **options)


def start(model: tq.PreparedModel) -> dict[str, Any]:
    return {"values": tq.initial_values(model)}


def moved(model: tq.PreparedModel, names: Any = None, seed: int = 0) -> dict[str, Any]:
    """Parameters for mode "float", all values a little different."""
    rng = np.random.default_rng(seed)
    values = dict(start(model)["values"])
    for name in values if names is None else names:
        values[name] = values[name] + 0.1 * numbers(rng, *values[name].shape)
    return {"values": values}


def assert_same(fn: Callable[..., Any], model: tq.PreparedModel, params: Any, x: np.ndarray) -> Any:
    """The parameters, with which the function is the float graph."""
    found = model.pytree(params)
    wanted = np.asarray(model.apply(params, x, mode="float")[0])
    result = np.asarray(fn(found, x)).reshape(wanted.shape)
    assert np.abs(result - wanted).max() <= 3e-5 * np.abs(wanted).max()
    before = np.asarray(fn(model.pytree(start(model)), x)).reshape(wanted.shape)
    assert np.abs(before - wanted).max() > 1e-3 * np.abs(wanted).max()
    return found


def assert_equal(found: Any, wanted: Any) -> None:
    """Structure, kinds of arrays, types and bits."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(mine, np.ndarray) == isinstance(theirs, np.ndarray)
        assert isinstance(mine, jax.Array) == isinstance(theirs, jax.Array)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


# Networks of convolutions, norms and linear layers.


def conv(x: Any, w: Any, groups: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def flax_norm(x: Any, p: Any) -> Any:
    return (x - p["mean"]) * (lax.rsqrt(p["var"] + 1e-5) * p["gamma"]) + p["beta"]


def keras_norm(x: Any, p: Any) -> Any:
    gain = lax.rsqrt(p["var"] + 1e-3) * p["gamma"]
    return x * gain + (-p["mean"] * gain + p["beta"])


def plain_norm(x: Any, p: Any) -> Any:
    """As it is written in papers."""
    return p["gamma"] * (x - p["mean"]) / jnp.sqrt(p["var"] + 1e-5) + p["beta"]


def negative_norm(x: Any, p: Any) -> Any:
    """With differences the other way round."""
    return p["beta"] - (p["mean"] - x) * p["gamma"] * lax.rsqrt(p["var"])


NORMS = (flax_norm, keras_norm, plain_norm, negative_norm)


class Shape(NamedTuple):
    """What a random network looks like."""

    norms: tuple[int, int]
    has_bias: bool
    depthwise: int
    is_tied: bool


def network(shape: Shape) -> Callable[[Any, Any], Any]:
    def fn(p: Any, x: Any) -> Any:
        y = conv(x, p["first"]["w"])
        y = y + p["first"]["b"] if shape.has_bias else y
        y = jax.nn.relu(NORMS[shape.norms[0]](y, p["norm1"]))
        y = conv(y, p["second"], groups=4) if shape.depthwise else conv(y, p["second"])
        y = jnp.maximum(NORMS[shape.norms[1]](y, p["norm2"]), -0.5)
        y = y.mean((1, 2)) @ p["square"] + p["bias"]
        return y @ p["square"].T if shape.is_tied else y

    return fn


def parameters(shape: Shape, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    wide = 4 * max(shape.depthwise, 1)

    def norm(channels: int) -> dict[str, np.ndarray]:
        made = {name: numbers(rng, channels) for name in ("mean", "var", "gamma", "beta")}
        return {**made, "var": np.abs(made["var"])}

    second = (3, 3, 1, wide) if shape.depthwise else (1, 1, 4, wide)
    return {
        "first": {"w": jnp.asarray(numbers(rng, 3, 3, 3, 4)), "b": numbers(rng, 4)},
        "norm1": norm(4),
        "second": numbers(rng, *second),
        "norm2": norm(wide),
        "square": numbers(rng, wide, wide),
        "bias": numbers(rng, wide),
    }


SHAPES = st.builds(
    Shape,
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(SHAPES, st.integers(0, 2**20))
def test_random_networks(shape: Shape, seed: int):
    fn, params = network(shape), parameters(shape, seed)
    x = numbers(np.random.default_rng(seed), *ONE)
    model = prepared(fn, params, x)
    assert_equal(model.pytree(start(model)), params)
    trained = model.readable(moved(model, seed=seed))
    found = assert_same(fn, model, trained, x)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    for norm in ("norm1", "norm2"):  # Scales and statistics stay.
        for name in ("mean", "var", "gamma"):
            np.testing.assert_array_equal(found[norm][name], params[norm][name])
        assert (found[norm]["beta"] != params[norm]["beta"]).all()


def test_a_bias_before_a_scale():
    """Without another offset it takes the change, divided by the scale, which may be negative."""
    rng = np.random.default_rng(1)
    params = {"w": numbers(rng, 1, 1, 3, 4), "b": numbers(rng, 4), "scale": numbers(rng, 4)}

    def fn(p: Any, x: Any) -> Any:
        return (conv(x, p["w"]) + p["b"]) * p["scale"]

    x = numbers(rng, *ONE)
    model = prepared(fn, params, x)
    found = assert_same(fn, model, moved(model), x)
    np.testing.assert_array_equal(found["scale"], params["scale"])


OFFSETS: dict[str, Callable[[Any, Any], Any]] = {
    "subtracted": lambda y, b: y - b,
    "subtracted from": lambda y, b: b - y,
    "scaled": lambda y, b: (y - b) * np.array([2, -1, 3, 4], np.float32),
}


@pytest.mark.parametrize("way", OFFSETS)
def test_offsets(way: str):
    rng = np.random.default_rng(1)
    params, x = (numbers(rng, 1, 1, 3, 4), numbers(rng, 4)), numbers(rng, *ONE)

    def fn(p: Any, x: Any) -> Any:
        return OFFSETS[way](conv(x, p[0]), p[1])

    model = prepared(fn, params, x)
    assert_same(fn, model, moved(model), x)


def test_norms_that_are_kept():
    """What they learn goes into the weights before them and one offset after them."""
    shape = Shape((0, 1), False, 1, False)
    fn, params = network(shape), parameters(shape, 3)
    x = numbers(np.random.default_rng(3), *ONE)
    model = prepared(fn, params, x, batch_norms=True)
    trained = tq.calibrate(model, [x])
    rng = np.random.default_rng(4)
    trained["norms"] = jax.tree.map(
        lambda v: v * rng.uniform(0.8, 1.2, v.shape).astype(np.float32), trained["norms"]
    )
    assert len(trained["norms"]) == 2
    found = assert_same(fn, model, trained, x)
    np.testing.assert_array_equal(found["norm1"]["gamma"], params["norm1"]["gamma"])


# What is done to a parameter on its way.


WAYS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda w: w,
    "transposed": lambda w: w.T,
    "reshaped": lambda w: w.reshape(3, 2, 4).transpose(1, 0, 2).reshape(6, 4).T,
    "reversed": lambda w: w[::-1, :],
    "part": lambda w: w[1:3, ::2],
    "repeated": lambda w: jnp.broadcast_to(w[:1], (5, 4)),
    "broadcast": lambda w: jax.lax.broadcast_in_dim(w.reshape(-1), (2, 24, 3), (1,)),
    "sum": lambda w: 0.5 - w,
    "quotient": lambda w: (w + 3) / np.float32(-7),
}


def test_ways_of_a_parameter():
    for name, way in WAYS.items():
        rng = np.random.default_rng(2)
        w = numbers(rng, 4, 6).T if name == "itself" else numbers(rng, 6, 4)
        x = numbers(rng, *np.shape(way(w)))

        def fn(p: Any, x: Any, way: Callable[[Any], Any] = way) -> Any:
            return x * way(p[0])

        model = prepared(fn, (w,), x)
        trained = moved(model)
        (found,) = assert_same(fn, model, trained, x)
        if name == "broadcast":
            (value,) = trained["values"].values()
            np.testing.assert_array_equal(np.ravel(found), np.ravel(value))
        elif name not in ("sum", "quotient", "repeated"):
            (value,) = trained["values"].values()
            np.testing.assert_array_equal(way(found), value)
        if name == "part":
            np.testing.assert_array_equal(found[0], w[0])  # None of it is read.


def test_a_type_below_float32():
    """The parameter is rounded to its own type."""
    w = numbers(np.random.default_rng(0), 4).astype(ml_dtypes.bfloat16)
    x = numbers(np.random.default_rng(1), 3, 4)

    def fn(p: Any, x: Any) -> Any:
        return x * p.astype(jnp.float32)

    model = prepared(fn, w, x)
    trained = moved(model)
    found = model.pytree(trained)
    (value,) = trained["values"].values()
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, np.asarray(value).reshape(-1).astype(ml_dtypes.bfloat16))


def test_equal_parameters_train_apart():
    """New biases are all 0, and yet not one."""
    rng = np.random.default_rng(0)
    params = {"w": [numbers(rng, 3, 3), numbers(rng, 3, 3)], "b": [np.zeros(3, np.float32)] * 2}

    def fn(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["w"][0] + p["b"][0]) @ p["w"][1] + p["b"][1]

    x = numbers(rng, 2, 3)
    model = prepared(fn, params, x)
    found = assert_same(fn, model, moved(model), x)
    assert (found["b"][0] != found["b"][1]).all()


def test_constants_inside_a_loop():
    rng = np.random.default_rng(0)
    params = {"w": numbers(rng, 3, 3) / 4, "b": numbers(rng, 3)}

    def fn(p: Any, x: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            return jnp.tanh(state @ p["w"] + p["b"]), None

        return lax.scan(turn, x, None, length=5)[0]

    x = numbers(rng, 2, 3)
    model = prepared(fn, params, x, max_unroll=1)
    assert any(node.op == "WHILE_LOOP" for node in model.graph.nodes)
    assert_same(fn, model, model.readable(moved(model)), x)


# Parameters that several constants are made of.


def tied(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"]) @ p["w"].T


def test_constants_of_one_parameter():
    rng = np.random.default_rng(5)
    params, x = {"w": numbers(rng, 3, 4)}, numbers(rng, 2, 3)
    model = prepared(tied, params, x)
    weights = [name for name in model.plan.trained if name.startswith("w")]
    assert len(weights) == 2
    with pytest.raises(ValueError, match=r"'w' cannot be read back: .* differ; model.readable"):
        model.pytree(moved(model, weights))
    with pytest.raises(ValueError, match="'w' cannot be read back"):
        model.pytree(moved(model, weights[:1]))  # The other one stays, which is not the same.
    assert_same(tied, model, model.readable(moved(model)), x)


def test_a_parameter_in_the_scale_of_another_constant():
    """Gamma cannot change for one layer and stay for another."""
    rng = np.random.default_rng(6)
    params = {"w": numbers(rng, 1, 1, 3, 3), "g": numbers(rng, 3), "b": numbers(rng, 3)}

    def fn(p: Any, x: Any) -> Any:
        return jax.nn.relu(conv(x * p["g"], p["w"]) * p["g"] + p["b"])

    model = prepared(fn, params, numbers(rng, *ONE))
    (name,) = (n for n in model.plan.trained if n.startswith("g"))
    with pytest.raises(ValueError, match=r"'g' was trained as 'g.*', and 'g.*' depends on it"):
        model.pytree(moved(model, [name]))


def test_a_parameter_that_has_no_effect_elsewhere():
    """An offset of 0 is dropped from the graph, and would come back with the trained one."""
    rng = np.random.default_rng(6)
    params = {"w": numbers(rng, 1, 1, 3, 3), "b": np.zeros((1, 1, 1, 3), np.float32)}

    def fn(p: Any, x: Any) -> Any:
        return conv(jax.nn.relu(x + p["b"]), p["w"]) + p["b"]

    model = prepared(fn, params, numbers(rng, *ONE))
    (name,) = (name for name in model.plan.trained if name != "w")
    with pytest.raises(ValueError, match=r"'b' was trained as .*, and 'b' depends on it"):
        model.pytree(moved(model, [name]))
    zeros = np.zeros(4, np.float32)
    model = prepared(lambda p, x: jnp.tanh(x * p) + p, zeros, numbers(rng, 2, 4))
    with pytest.raises(ValueError, match="depends on it as well"):
        model.pytree(moved(model))


# What cannot be read back, and `readable`.


def assert_held(model: tq.PreparedModel, name: str, message: str) -> None:
    trained = moved(model, [name])
    with pytest.raises(ValueError, match=message):
        model.pytree(trained)
    held = model.readable(trained)
    np.testing.assert_array_equal(held["values"][name], start(model)["values"][name])
    model.pytree(held)


def test_a_layer_without_a_bias():
    rng = np.random.default_rng(0)
    w, x = numbers(rng, 3, 3, 3, 4), numbers(rng, *ONE)
    model = prepared(lambda p, x: conv(conv(x, p[0]), p[1]), (w, numbers(rng, 1, 1, 4, 4)), x)
    biases = [name for name in model.plan.trained if name.endswith("bias")]
    assert len(biases) == 2  # Equal ones are not one.
    assert_held(model, biases[0], f"'{biases[0]}' cannot be read back: it is not made of a param")


def test_a_scale_without_an_offset():
    rng = np.random.default_rng(0)
    params = {"w": numbers(rng, 1, 1, 3, 4), "g": numbers(rng, 4)}
    model = prepared(lambda p, x: conv(x, p["w"]) * p["g"], params, numbers(rng, *ONE))
    (name,) = (n for n in model.plan.trained if n.endswith("bias"))
    assert_held(model, name, "no parameter is an offset of the channels of 'output'")


def test_channels_that_are_multiplied_by_0():
    rng = np.random.default_rng(0)
    params = {
        "w": numbers(rng, 1, 1, 3, 4),
        "g": np.array([1, 0, 2, 0], np.float32),
        "b": numbers(rng, 4),
    }

    def fn(p: Any, x: Any) -> Any:
        return conv(x, p["w"]) * p["g"] + p["b"]

    x = numbers(rng, *ONE)
    model = prepared(fn, params, x)
    with pytest.raises(ValueError, match="channels that the function multiplies by 0 after 'w'"):
        model.pytree(moved(model))
    assert_same(fn, model, model.readable(moved(model)), x)


def test_a_parameter_that_is_changed_for_good():
    rng = np.random.default_rng(0)
    model = prepared(lambda p, x: x * jnp.exp(p), numbers(rng, 4), numbers(rng, 2, 4))
    (name,) = model.plan.trained
    assert_held(model, name, "what the function makes of the parameter '' cannot be undone")


def test_an_array_that_is_closed_over():
    rng = np.random.default_rng(0)
    other = jnp.asarray(numbers(rng, 4))
    model = prepared(lambda p, x: x * other + p, numbers(rng, 4), numbers(rng, 2, 4))
    name = next(n for n in model.plan.trained if n.startswith("other"))
    assert_held(model, name, "closed over 'other', expected it among params")


def test_readable_is_for_training():
    """Gradients reach what a constant follows, and nothing that is held."""
    rng = np.random.default_rng(5)
    params, x = {"w": numbers(rng, 3, 4)}, numbers(rng, 2, 3)
    model = prepared(tied, params, x)
    weights = tq.calibrate(model, [x])
    found = tq.fit(
        model,
        weights,
        [(x, np.zeros((2, 3), np.float32))] * 3,
        lambda outputs, wanted: jnp.square(outputs[0] - wanted).mean(),
        derive=model.readable,
    ).params
    assert_same(tied, model, found, x)


# Models that have no parameters to give.


def test_models_without_a_function():
    rng = np.random.default_rng(0)
    x = numbers(rng, 2, 4)
    model = prepared(lambda p, x: x * p, numbers(rng, 4), x)
    copy = pickle.loads(pickle.dumps(model))
    for name in ("pytree", "readable"):
        with pytest.raises(ValueError, match="the model has no function"):
            getattr(copy, name)(start(model))
    without = prepared(lambda x: x * 0.3, None, x)
    with pytest.raises(ValueError, match="the function has no parameters"):
        without.pytree(start(without))


def test_parameters_of_another_model():
    rng = np.random.default_rng(0)
    model = prepared(lambda p, x: x * p, numbers(rng, 4), numbers(rng, 2, 4))
    with pytest.raises(ValueError, match="values"):
        model.pytree({"values": {}})
