"""Graphs of any batch: calibrated with batches of any size, and frozen with theirs open."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import floats, uniform

import tosajax
from tosajax import Builder, Graph, UnsupportedError, quant
from tosajax.grad.qtensor import payload
from tosajax.graph import DYNAMIC
from tosajax.quant import (
    QSpec,
    calibrate,
    check_bit_exact,
    fit,
    observe,
    prepare,
    report,
    rule,
    settle,
    with_rules,
)

W = jnp.asarray(uniform(0, 3, 3, 2, 4, low=-1))
V = jnp.asarray(uniform(1, 64, 5, low=-1))


def network(x: jax.Array) -> jax.Array:
    x = jax.lax.conv_general_dilated(
        x, W, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jax.nn.gelu(jnp.maximum(x, 0.1)).reshape(x.shape[0], -1)
    return jax.nn.softmax(x @ V, axis=1)


def images(count: int) -> np.ndarray:
    return uniform(2, count, 4, 4, 2)


@pytest.fixture(scope="module")
def graph() -> Graph:
    found = tosajax.export(network, images(2), dynamic_batch=True)
    assert found.is_dynamic
    return found


@pytest.mark.parametrize("kind", ["i8", "fp8"])
def test_a_model_takes_and_freezes_any_batch(graph, kind):
    """The bits are those of the graph that was bound first."""
    fp8 = QSpec("fp8e4m3")
    rules = [] if kind == "i8" else [rule(".*", weight=fp8, act=fp8)]
    x = images(5)
    model, bound = prepare(graph, rules), prepare(tosajax.bind(graph, batch=1), rules)
    params = calibrate(model, [x[:3], x[3:], x[:1]])
    known = calibrate(bound, [x[:3], x[3:], x[:1]])
    jax.tree.map(np.testing.assert_array_equal, params, known)
    frozen, whole = model.freeze(params), bound.freeze(known)
    assert frozen.input_tensors[0].shape == (DYNAMIC, 4, 4, 2)
    assert tosajax.bind(frozen, batch=1).quantization == whole.quantization
    (integers,) = model.input_integers(params, x)
    given = np.asarray(getattr(integers, "q", integers))
    found = tosajax.compile(frozen, batch=5)(given)[0]
    expected = [tosajax.compile(whole)(each[None])[0] for each in given]
    np.testing.assert_array_equal(found, np.concatenate(expected))


@pytest.mark.slow
def test_every_verb_takes_an_open_batch(graph):
    x = images(4)
    model = prepare(graph)
    params = settle(model, observe(model, [x, x[:3]]))
    assert check_bit_exact(model, params, x)
    assert report(model, params, x).rows
    trained = fit(model, params, [(x, np.float32(0))], lambda y, t: (y[0] ** 2).sum() + t).params
    narrow, changed = with_rules(model, trained, [rule("output", act=QSpec(bits=5))])
    assert narrow.freeze(changed).input_tensors[0].shape == (DYNAMIC, 4, 4, 2)
    assert check_bit_exact(narrow, changed, x)


def test_other_open_dimensions_are_refused():
    b = Builder()
    x = b.input("x", tosajax.DType.FP32, (1, DYNAMIC))
    graph = b.graph([b.op("TANH", x)])
    with pytest.raises(UnsupportedError, match="open dimensions: bind them first"):
        prepare(graph)


def test_sums_of_residuals_with_their_copies():
    """Products read INT8 copies of INT16 sums."""

    def residual(x: jax.Array) -> jax.Array:
        y = x + jnp.tanh(x @ V[:4, :4])
        return y + y @ V[4:8, :4]

    model = prepare(tosajax.export(residual, uniform(3, 2, 4), dynamic_batch=True))
    assert any(name.endswith("/copy") for name in model.activations)
    x = uniform(4, 5, 4)
    params = calibrate(model, [x])
    frozen = model.freeze(params)
    assert frozen.input_tensors[0].shape == (DYNAMIC, 4)
    (given,), (wanted,) = model.input_integers(params, x), model.integers(params, x)
    (y,) = tosajax.compile(frozen)(np.asarray(payload(given)))
    np.testing.assert_array_equal(y, np.asarray(payload(wanted)))


def test_what_depends_on_the_batch_is_named():
    """Whether numbers are numbers is a constant, of as many elements as there are examples."""
    b = Builder()
    x = floats(b, "x", DYNAMIC, 3)
    model = prepare(b.graph([b.op("ABS", x), b.op("EQUAL", x, x, name="is_number")]))
    params = calibrate(model, [uniform(0, 4, 3)])
    wanted = r"freeze of a graph of any batch: .*'is_number'.*bind\(graph, batch=1\)"
    with pytest.raises(UnsupportedError, match=wanted):
        model.freeze(params)


TUNED = {
    "bias_correct": lambda model, params, x: quant.bias_correct(model, params, [x[:3], x[3:]]),
    "equalize": lambda model, params, x: quant.equalize(model),
    "gptq": lambda model, params, x: quant.gptq(model, params, [x[:3], x[3:]]),
    "learned_rounding": lambda model, params, x: quant.learned_rounding(
        model, params, [x[:3], x[3:]], steps=2
    ),
    "mixed_precision": lambda model, params, x: (
        quant.mixed_precision(model, params, x, budget=4000, points=2).params
    ),
    "reconstruct": lambda model, params, x: quant.reconstruct(
        model, params, [x[:3], x[3:]], steps=2
    ),
    "rescue": lambda model, params, x: quant.rescue(model, params, x, budget=1).lifted,
    "sensitivity": lambda model, params, x: quant.sensitivity(model, params, x, bits=(4, 8)),
    "smooth": lambda model, params, x: quant.smooth(model, [x[:3], x[3:]]),
}


@pytest.mark.parametrize(
    "name", [n if n == "rescue" else pytest.param(n, marks=pytest.mark.slow) for n in TUNED]
)
def test_tuning_is_that_of_a_bound_graph(graph, name):
    x = images(5)
    models = prepare(graph), prepare(tosajax.bind(graph, batch=1))
    results = [TUNED[name](model, calibrate(model, [x[:3], x[3:]]), x) for model in models]
    jax.tree.map(np.testing.assert_array_equal, *results)
