"""Scales and offsets of channels go into convolutions through RESHAPE and CONCAT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.quant.graphs.simplify import simplify


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    with jax.numpy_rank_promotion("allow"):
        yield


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


W, KERNEL = drawn(6, 4), drawn(3, 3, 2, 4)
PARAMS = {
    "gamma": 1 + drawn(4, seed=1) / 4,
    "beta": drawn(4, seed=2),
    "mean": drawn(4, seed=3) / 4,
}
IMAGES, ROWS = drawn(2, 5, 5, 4, seed=4), drawn(8, 6, seed=4)


def norm(p: Any, y: Any) -> Any:
    return (y - p["mean"]) * p["gamma"] + p["beta"]


def dense(p, x):
    return norm(p, x @ W)


def grouped(p, x):
    dims = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        x, jnp.asarray(KERNEL), (1, 1), "SAME", dimension_numbers=dims, feature_group_count=2
    )
    return norm(p, y)


def reshaped(p, x):
    return norm(p, (x @ W).reshape(2, 4, 4))


CASES = {"dense": (dense, ROWS), "grouped": (grouped, IMAGES), "reshaped": (reshaped, ROWS)}


def exported(name: str) -> tuple[Graph, np.ndarray]:
    fn, x = CASES[name]
    return tosajax.export(fn, x, params=PARAMS), x


def operators(graph: Graph) -> set[str]:
    return {node.op for node in graph.nodes}


def scalings(graph: Graph) -> int:
    return sum(node.op in ("MUL", "SUB", "ADD") for node in graph.nodes)


def run(graph: Graph, *inputs: np.ndarray) -> np.ndarray:
    function, params = tosajax.lower(graph)
    return np.asarray(function(params, *inputs)[0])


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_left_of_a_batch_norm(name):
    graph, x = exported(name)
    assert operators(graph) & {"MUL", "ADD", "SUB"}
    simple = simplify(graph)
    tosajax.validate(simple).raise_errors()
    assert not operators(simple) & {"MUL", "ADD", "SUB"}
    np.testing.assert_allclose(run(simple, x), run(graph, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_integers_and_parameters_that_are_read_back(name):
    fn, x = CASES[name]
    model = tq.prepare(fn, params=PARAMS, example_args=(x,))
    values = dict(tq.initial_values(model))
    biases = [n for n, v in values.items() if v.ndim == 1]
    for number, bias in enumerate(biases):
        values[bias] = values[bias] + 0.5 + number
    params = tq.calibrate(model, [x], values=values)
    trained = model.pytree(params)
    changed = [name for name in PARAMS if (trained[name] != PARAMS[name]).any()]
    assert changed == ["beta"]
    wanted = np.asarray(fn(trained, x))
    (y,) = model.apply(params, x, mode="float")
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    (y,) = model.apply(params, x)
    assert np.square(y - wanted).mean() < 1e-3 * np.square(wanted).mean()
    assert tq.check_bit_exact(model, params, x, against="frozen")


# What stays.


def conv(
    b: Builder, x: tosajax.Tensor, channels: int, seed: int, *, is_computed: bool = False
) -> tosajax.Tensor:
    weight = b.const(drawn(channels, 1, 1, 3, seed=seed), DType.FP32)
    if is_computed:
        pixel = b.op("REDUCE_SUM", b.op("REDUCE_SUM", x, axis=1), axis=2)
        weight = b.op("ADD", weight, pixel)
    bias, zero = b.const(drawn(channels, seed=seed), DType.FP32), b.const([0], DType.FP32)
    sizes = {"pad": [0] * 4, "stride": [1, 1], "dilation": [1, 1], "acc_type": DType.FP32}
    return b.op("CONV2D", x, weight, bias, zero, zero, **sizes)


def joined(kind: str) -> Graph:
    """A CONCAT of two convolutions, scaled; `kind` says in which way it differs."""
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2, 2, 3))
    sizes = (2, 2) if kind == "other axis" else (2, 3)
    parts = [conv(b, x, size, seed) for seed, size in enumerate(sizes)]
    if kind == "no convolution":
        parts[1] = b.op("TANH", parts[1])
    if kind == "input":
        parts[1] = x
    if kind == "computed weight":
        parts[1] = conv(b, x, 3, 1, is_computed=True)
    y = b.op("CONCAT", *parts, axis=1 if kind == "other axis" else 3)
    shape = tuple(y.shape or ())
    values = drawn(1, *shape[1:]) if kind == "pixels" else drawn(1, 1, 1, shape[3])
    scale = b.const(drawn(1, 1, 1, 1) if kind == "one scale" else values, DType.FP32)
    shift = b.const([1 if kind == "shift" else 0], DType.INT8)
    pair = (scale, y) if kind == "constant first" else (y, scale)
    z = b.op("MUL", *pair, shift) if kind != "difference" else b.op("SUB", scale, y)
    z = b.op("ADD", z, scale, name="z")
    if kind == "read twice":
        return b.graph([b.op("ADD", y, z)])
    return b.graph([z, y] if kind == "output" else [z])


FOLDED = ("plain", "other axis", "one scale", "constant first", "difference")
LEFT = ("no convolution", "computed weight", "input", "pixels", "read twice", "output")


@pytest.mark.parametrize("kind", [*FOLDED, *LEFT])
def test_only_what_convolutions_compute_for_it_alone(kind):
    graph = joined(kind)
    x = drawn(1, 2, 2, 3, seed=9)
    simple = simplify(graph)
    tosajax.validate(simple).raise_errors()
    assert scalings(simple) == (0 if kind in FOLDED else scalings(graph))
    concats = [next(n for n in g.nodes if n.op == "CONCAT") for g in (graph, simple)]
    assert (concats[0] == concats[1]) == (kind in LEFT)
    np.testing.assert_allclose(run(simple, x), run(graph, x), rtol=1e-4, atol=1e-5)


def test_a_reshape_that_mixes_channels():
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2, 2, 3))
    y = b.op("RESHAPE", conv(b, x, 4, 0), b.const_shape((1, 2, 2, 2, 2)))
    z = b.op("MUL", y, b.const(drawn(1, 1, 1, 1, 2), DType.FP32), b.const([0], DType.INT8))
    graph = b.graph([z])
    assert "MUL" in operators(simplify(graph))


def test_jax_numpy_is_the_oracle():
    """Of the grouped convolution with its norm."""
    graph, x = exported("grouped")
    wanted = grouped(jax.tree.map(jnp.asarray, PARAMS), x)
    np.testing.assert_allclose(run(simplify(graph), x), wanted, rtol=1e-4, atol=1e-4)
