"""States: an input and the output with its next value have one scale."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import DType, quant, reference_model
from tosajax.quant import QSpec, rule

ROW = np.zeros((1, 4), np.float32)
AGAINST = ("frozen", "reference_model") if reference_model.is_installed() else ("frozen",)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


W = drawn(4, 4, seed=9) / 2


def prepared(fn: Any, *args: Any, rules: Any = (), **states: str) -> quant.PreparedModel:
    return quant.prepare(fn, rules, example_args=args, states=states)


def owners(model: quant.PreparedModel, *names: str) -> set[str]:
    return {model.owners[name] for name in names}


def cell(x, h):
    h = jnp.tanh(x @ W + h)
    return {"y": h * 2, "h_next": h}


def test_the_two_have_one_scale_and_its_range_holds_both():
    model = prepared(cell, ROW, ROW, h="h_next")
    assert owners(model, "h", "h_next") == {"h"}
    assert model.activations.count("h") == 1
    assert "h_next" not in model.activations
    large = np.array([[8, -8, 8, -8]], np.float32)
    for h, most in ((ROW, 1), (large, 8)):  # tanh, then the state itself
        scale = quant.calibrate(model, [(large, h)])["qparams"]["h"].scale
        assert most * 0.99 <= 127.5 * scale <= most * 1.01, h


def test_without_states_each_has_its_own():
    model = prepared(cell, ROW, ROW)
    assert owners(model, "h", "h_next") == {"h", "h_next"}


@pytest.mark.parametrize("name", ["^h$", "^h_next$"])
def test_rules_may_name_either(name):
    model = prepared(cell, ROW, ROW, rules=[rule(name, act=QSpec("i16"))], h="h_next")
    types = {t.name: t.dtype for t in (*model.graph.input_tensors, *model.graph.output_tensors)}
    assert types["h"] == types["h_next"] == DType.INT16


def delay(x, a, b):
    return {"y": x @ W + a + b, "a_next": x, "b_next": a}


def test_a_delay_line_moves_integers_as_they_are():
    model = prepared(delay, ROW, ROW, ROW, a="a_next", b="b_next")
    assert owners(model, "x", "a", "b", "a_next", "b_next") == {"x"}
    params = quant.calibrate(model, [(drawn(8, 1, 4), drawn(8, 1, 4), 3 * drawn(8, 1, 4))])
    x, a = np.array([[1, -128, 127, 0]], np.int8), np.array([[-3, 127, -128, 5]], np.int8)
    a_next, b_next, _ = tosajax.run(model.freeze(params), x, a, a)
    np.testing.assert_array_equal(a_next, x)
    np.testing.assert_array_equal(b_next, a)
    assert 127.5 * params["qparams"]["x"].scale >= 3  # the range of b as well


def window(x, past):
    past = jnp.concatenate([past[:, 1:], x], 1)
    return {"y": past.reshape(1, 12) @ drawn(12, 2), "next": past}


def other_window(x, past):
    """What is joined has one scale already, and not that of the state."""
    return {"y": past.sum(1), "next": jnp.concatenate([x[:, :2], x[:, 1:]], 1)}


@pytest.mark.parametrize(("fn", "joined"), [(window, 1), (other_window, 2)])
def test_a_window_of_the_past(fn, joined):
    x, past = np.zeros((1, joined, 4), np.float32), np.zeros((1, 3, 4), np.float32)
    model = prepared(fn, x, past, past="next")
    assert len(owners(model, "past", "next")) == 1
    examples = drawn(8, 1, joined, 4), 2 * drawn(8, 1, 3, 4)
    params = quant.calibrate(model, [examples])
    assert quant.check_bit_exact(model, params, *examples, against=AGAINST)


def moved(x, h):
    return {"y": h @ W, "h_next": jax.nn.sigmoid(x @ W).T.reshape(4, 1).T[:, ::-1]}


def test_operators_that_move_elements_keep_the_scale():
    model = prepared(moved, ROW, ROW, h="h_next")
    assert owners(model, "h", "h_next") == {"h"}
    assert not [n for n in model.graph.nodes if n.op == "RESCALE" and "h_next" in n.outputs[0]]


def loop(x, h, k):
    body = lambda _, c: (c[0] * 0.5, c[1])  # noqa: E731
    a, b = jax.lax.fori_loop(0, 3, body, (x, h))
    return {"h_next": a, "k_next": b + 0, "y": a + k}


def test_states_of_loops():
    """One is the result of turns, the other passes through and belongs to another state."""
    model = quant.prepare(
        loop, example_args=(ROW,) * 3, states={"h": "h_next", "k": "k_next"}, max_unroll=2
    )
    assert owners(model, "h", "h_next") == {"h"}
    examples = [2**i * drawn(8, 1, 4, seed=i) for i in range(3)]
    params = quant.calibrate(model, [tuple(examples)])
    assert quant.check_bit_exact(model, params, *examples, against=AGAINST)


def test_a_state_of_integers_is_as_it_is():
    model = prepared(
        lambda x, n: {"y": x @ W, "n_next": n + 1}, ROW, np.zeros((1,), np.int32), n="n_next"
    )
    assert "n" not in model.owners


def test_open_batches_and_other_rules():
    graph = tosajax.export(cell, ROW, ROW, dynamic_batch=True)
    model = quant.prepare(graph, states={"h": "h_next"})
    params = quant.calibrate(model, [(drawn(8, 4), drawn(8, 4))])
    scales = model.freeze(params).quantization
    assert scales["h"] == scales["h_next"]
    lifted, _ = quant.with_rules(model, params, [rule("h", act=QSpec("i16"))])
    assert owners(lifted, "h", "h_next") == {"h"}


def test_auto_keeps_them_tied():
    examples = drawn(8, 1, 4), drawn(8, 1, 4, seed=1)
    result = quant.auto(
        cell,
        [examples],
        example_args=(ROW, ROW),
        states={"h": "h_next"},
        budget=quant.Budget(seconds=0),
    )
    assert owners(result.model, "h", "h_next") == {"h"}
    assert result.graph.quantization["h"] == result.graph.quantization["h_next"]


def test_a_gradient_reaches_the_one_scale_from_both_sides():
    model = prepared(cell, ROW, ROW, h="h_next")
    x, h = drawn(8, 1, 4), drawn(8, 1, 4, seed=1)
    params = quant.calibrate(model, [(x, h)])

    def loss(scale: jax.Array, output: int) -> jax.Array:
        own = {**params["qparams"]}
        own["h"] = quant.QParams(scale, own["h"].zero_point, own["h"].bits)
        return (model.apply({**params, "qparams": own}, x, h)[output] ** 2).sum()

    for output in (0, 1):
        assert jax.grad(loss)(params["qparams"]["h"].scale, output) != 0


@pytest.mark.parametrize(
    ("states", "error", "message"),
    [
        ("h", TypeError, r"states is 'h' \(str\), expected a dictionary of outputs by input"),
        ({"h": 3}, TypeError, r"an output of states is 3 \(int\), expected a name"),
        ({1: "h_next"}, TypeError, r"an input of states is 1 \(int\), expected a name"),
        ({"hh": "h_next"}, ValueError, "states has 'hh', which is not an input of the graph"),
        ({"h": "h_nxt"}, ValueError, "not an output of the graph; did you mean 'h_next'\\?"),
        ({"h": "z"}, ValueError, r"input 'h' is FP32\[1,4\], and output 'z', its next value, is"),
        ({"h": "k"}, ValueError, "output 'k', the next value of 'h', is constant"),
    ],
)
def test_wrong_states(states, error, message):
    def fn(x, h):
        return {**cell(x, h), "z": x[:, :2], "k": jnp.ones((1, 4))}

    with pytest.raises(error, match=message):
        quant.prepare(fn, example_args=(ROW, ROW), states=states)


def test_fp8_has_no_states():
    rules = [rule(".*", weight=QSpec("fp8e4m3"), act=QSpec("fp8e4m3"))]
    with pytest.raises(ValueError, match="states are of integers, and the rules ask for FP8E4M3"):
        prepared(cell, ROW, ROW, rules=rules, h="h_next")
