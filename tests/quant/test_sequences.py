"""Sequences: integers of states go from step to step; examples of states; gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tosajax
from tosajax import Builder, DType, quant, reference_model

INPUTS, UNITS, STEPS = 3, 8, 6


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


WEIGHTS = {"x": drawn(INPUTS, 3 * UNITS, seed=1), "h": drawn(UNITS, 3 * UNITS, seed=2) / 2}


def gru(weights, x, h):
    of_x, of_h = x @ weights["x"], h @ weights["h"]
    both = of_x[:, : 2 * UNITS] + of_h[:, : 2 * UNITS]
    z, r = jnp.split(jax.nn.sigmoid(both), 2, -1)
    n = jnp.tanh(of_x[:, 2 * UNITS :] + r * of_h[:, 2 * UNITS :])
    h = (1 - z) * n + z * h
    return h[:, :2], h


@functools.cache
def model() -> tuple[quant.PreparedModel, Any]:
    args = np.zeros((1, INPUTS), np.float32), np.zeros((1, UNITS), np.float32)
    model = quant.prepare(gru, params=WEIGHTS, example_args=args, states={"h": "output_1"})
    return model, quant.calibrate(model, quant.rollout(model, [drawn(STEPS, 8, INPUTS)]))


def by_hand(x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    """The outputs of the function, one step after the other."""
    steps = []
    for row in x:
        steps.append(gru(WEIGHTS, row, h))
        h = steps[-1][1]
    return [np.stack(step) for step in zip(*steps, strict=True)]


# Integers.


@pytest.mark.slow
@pytest.mark.parametrize("run", ["tosajax", "reference_model"])
def test_the_frozen_graph_fed_with_its_own_integers(run):
    if run == "reference_model" and not reference_model.is_installed():
        pytest.skip("Arm's model is not installed")
    quantized, params = model()
    x = drawn(STEPS, 1, INPUTS, seed=5)
    frozen = quantized.freeze(params)
    own = {name: params["qparams"][quantized.owners[name]] for name in ("x", "h", "output_0")}
    h = np.asarray(quant.quantize(jnp.zeros((1, UNITS)), own["h"]).q)
    y, h_next = quant.scan(quantized, params, x)
    for step in range(STEPS):
        integers = np.asarray(quant.quantize(jnp.asarray(x[step]), own["x"]).q)
        if run == "tosajax":
            out, h = map(np.asarray, tosajax.run(frozen, integers, h))
        else:
            outputs = reference_model.run(frozen, integers[None], h[None], tensors=frozen.outputs)
            out, h = (outputs[name].reshape(1, -1) for name in frozen.outputs)
        for real, value, name in ((y, out, "output_0"), (h_next, h, "h")):
            expected = (value.astype(np.float32) - own[name].zero_point) * own[name].scale
            np.testing.assert_array_equal(real[step], expected)


def test_integers_are_near_floats():
    quantized, params = model()
    x = drawn(20, 16, INPUTS, seed=6)
    floats = quant.scan(quantized, params, x, mode="float")
    for wanted, hand in zip(floats, by_hand(x, np.zeros((16, UNITS), np.float32)), strict=True):
        np.testing.assert_allclose(wanted, hand, atol=1e-5)
    for mode in ("exact", "fake_quant"):
        for y, wanted in zip(quant.scan(quantized, params, x, mode=mode), floats, strict=True):
            assert np.square(y - wanted).mean() < 0.01 * np.square(wanted).mean()


# Examples of states.


def noise(quantized: quant.PreparedModel, params: Any, x: np.ndarray) -> float:
    """Of all outputs of all steps, relative to them."""
    pairs = zip(
        quant.scan(quantized, params, x),
        quant.scan(quantized, params, x, mode="float"),
        strict=True,
    )
    return max(float(np.square(y - z).sum() / np.square(z).sum()) for y, z in pairs)


def test_ranges_of_states_of_0_hold_no_states():
    quantized, params = model()
    x = drawn(20, 8, INPUTS, seed=7)
    zeros = [(drawn(48, 1, INPUTS), np.zeros((48, 1, UNITS), np.float32))]
    at_start = quant.calibrate(quantized, zeros)
    assert noise(quantized, at_start, x) > 10 * noise(quantized, params, x)


@pytest.mark.slow
def test_a_cell_state_gains_by_int16():
    """It adds up from step to step."""
    units, weights = 16, {"x": drawn(8, 64, seed=1) / 3, "h": drawn(16, 64, seed=2) / 4}

    def lstm(weights, x, h, c):
        gates = x @ weights["x"] + h @ weights["h"]
        i, f, o = (jax.nn.sigmoid(gates[:, k * units : (k + 1) * units]) for k in range(3))
        c = f * c + i * jnp.tanh(gates[:, 3 * units :])
        return {"h_next": o * jnp.tanh(c), "c_next": c}

    zeros = np.zeros((1, units), np.float32)
    x, found = drawn(50, 8, 8, seed=3), {}
    for bits in ("i8", "i16"):
        quantized = quant.prepare(
            lstm,
            [quant.rule("^c$", act=quant.QSpec(bits, symmetric=bits == "i16"))],
            params=weights,
            example_args=(np.zeros((1, 8), np.float32), zeros, zeros),
            states={"h": "h_next", "c": "c_next"},
        )
        params = quant.calibrate(quantized, quant.rollout(quantized, [x]))
        found[bits] = noise(quantized, params, drawn(50, 8, 8, seed=4))
    assert found["i16"] < 0.9 * found["i8"], found


def test_examples_are_the_states_of_floats():
    quantized, _ = model()
    x = drawn(STEPS, 2, INPUTS)
    _, h_next = by_hand(x, np.zeros((2, UNITS), np.float32))
    batches = quant.rollout(quantized, [x, x[:, :1]])
    assert [[a.shape for a in batch] for batch in batches] == [
        [(2 * STEPS, 1, INPUTS), (2 * STEPS, 1, UNITS)],
        [(STEPS, 1, INPUTS), (STEPS, 1, UNITS)],
    ]
    first, states = (np.reshape(a, (STEPS, 2, -1)) for a in batches[0])
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(states[0], np.zeros((2, UNITS)))
    np.testing.assert_allclose(states[1:], h_next[:-1], atol=1e-6)


def test_initial_states_and_trained_values():
    quantized, _ = model()
    x, h = drawn(2, 1, INPUTS), drawn(1, UNITS, seed=3)
    values = {name: 2 * x for name, x in quant.initial_values(quantized).items()}
    ((_, states),) = quant.rollout(quantized, [x], initial={"h": h})
    ((_, changed),) = quant.rollout(quantized, [x], initial={"h": h}, values=values)
    np.testing.assert_array_equal(states[0], h)
    np.testing.assert_array_equal(changed[0], h)
    assert (np.abs(np.asarray(states[1]) - changed[1]) > 1e-3).any()


def test_few_examples_at_once_where_tensors_are_large(monkeypatch):
    quantized, _ = model()
    (whole,) = quant.rollout(quantized, [drawn(5, 1, INPUTS)])
    monkeypatch.setattr("tosajax.quant.sequences.examples_at_once", lambda graph: 2)
    parts = quant.rollout(quantized, [drawn(5, 1, INPUTS)])
    assert [len(x) for x, _ in parts] == [2, 2, 1]
    for at in (0, 1):
        np.testing.assert_array_equal(np.concatenate([part[at] for part in parts]), whole[at])


# Batches.


@pytest.mark.parametrize("mode", ["exact", "float"])
def test_forms_of_batches(mode):
    """The graph's own batch, examples in front, and along a first axis of 1."""
    quantized, params = model()
    x, h = drawn(STEPS, 3, INPUTS, seed=4), drawn(3, UNITS, seed=3)
    run = functools.partial(quant.scan, quantized, params, mode=mode)
    first = run(x, initial={"h": h})
    front = run(x[:, :, None], initial={"h": h[:, None]})
    alone = [run(x[:, i : i + 1], initial={"h": h[i : i + 1]}) for i in range(3)]
    for at, y in enumerate(first):
        assert y.shape == (STEPS, 3, (2, UNITS)[at])
        np.testing.assert_allclose(front[at][:, :, 0], y, atol=1e-6)
        np.testing.assert_allclose(np.concatenate([a[at] for a in alone], 1), y, atol=1e-6)


def test_one_initial_state_is_for_all_examples():
    quantized, params = model()
    x, h = drawn(STEPS, 3, INPUTS, seed=4), drawn(1, UNITS, seed=3)
    for a, b in zip(
        quant.scan(quantized, params, x, initial={"h": h}),
        quant.scan(quantized, params, x, initial={"h": np.repeat(h, 3, 0)}),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_integers_and_states_of_integers():
    def step(x, n):
        return 2 * x, n + 1

    args = np.zeros((1, 4), np.float32), np.zeros((1,), np.int32)
    counter = quant.prepare(step, example_args=args, states={"n": "output_1"})
    x = drawn(3, 2, 4)
    params = quant.calibrate(counter, quant.rollout(counter, [x]))
    for mode in ("exact", "float"):
        _, n = quant.scan(counter, params, x, mode=mode)
        np.testing.assert_array_equal(np.squeeze(n), [[1, 1], [2, 2], [3, 3]])
        _, n = quant.scan(counter, params, x, mode=mode, initial={"n": np.array([5], np.int32)})
        assert np.asarray(n)[0].max() == 6
    integers = np.array([[[1, 2, 3, 4]]], np.int8)  # taken as they are
    y, _ = quant.scan(counter, params, integers)
    own = params["qparams"]["x"]
    real = own.scale * (integers[0, 0].astype(np.float32) - own.zero_point)
    np.testing.assert_allclose(y[0, 0], 2 * real, rtol=0.02, atol=0.02)


# Gradients and transformations.


@pytest.mark.parametrize("mode", ["exact", "fake_quant", "float"])
def test_gradients_go_through_all_steps(mode):
    quantized, params = model()
    x = drawn(4, 2, INPUTS, seed=8)

    def scanned(params):
        return quant.scan(quantized, params, x, mode=mode)[0][-1].sum()

    def looped(params):
        h, y = jnp.zeros((2, UNITS)), jnp.zeros(())
        for row in x:
            if mode == "exact":  # integers go on as they are
                integers, h = quantized.integers(params, row, h)
                y = quantized.real(params, "output_0", integers)
            else:
                y, h = quantized.apply(params, row, h, mode=mode)
        return y.sum()

    value, gradient = jax.value_and_grad(scanned)(params)
    wanted, other = jax.value_and_grad(looped)(params)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    if mode == "exact":  # `real` has a gradient by the scale of a table's input
        gradient, other = gradient["values"], other["values"]
    for a, b in zip(*map(jax.tree.leaves, (gradient, other)), strict=True):
        # In "fake_quant" sums that are compiled in other ways may round to other integers.
        rtol, atol = (0.1, 0.01) if mode == "fake_quant" else (1e-3, 1e-5)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    weights = other if mode == "exact" else other["values"]
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(weights))


def test_jit_and_vmap():
    quantized, params = model()
    x = drawn(3, STEPS, 1, INPUTS)
    y, _ = jax.jit(jax.vmap(lambda x: quant.scan(quantized, params, x)))(x)
    for i in range(3):
        np.testing.assert_array_equal(y[i], quant.scan(quantized, params, x[i])[0])


# Variables.


def accumulator(initial: Any = None, dtype: DType = DType.FP32) -> tosajax.Graph:
    """A leaky mean, which is read, written, and read again."""
    b = Builder()
    x = b.input("x", dtype, (1, 4))
    b.variable("mean", dtype, (1, 4), initial_value=initial)
    half, shift = b.const(np.full((1, 4), 0.5), dtype), b.const([0], DType.INT8)
    total = b.op("ADD", x, b.read("mean", dtype, (1, 4)), name="total")
    b.write("mean", b.op("MUL", total, half, shift, name="halved"))
    return b.graph([b.op("SUB", x, b.read("mean", dtype, (1, 4)), name="y")])


@pytest.mark.parametrize("initial", [None, np.array([[0.5, -1, 0, 2]], np.float32)])
def test_variables_are_states_and_ship_as_variables(initial, tmp_path):
    graph = accumulator(initial)
    quantized = quant.prepare(graph)
    assert quantized.graph.inputs == ("x", "mean")
    x = drawn(STEPS, 1, 4)
    params = quant.calibrate(quantized, quant.rollout(quantized, [x]))
    tosajax.save(quantized.freeze(params), tmp_path / "mean.tosa")
    shipped = tosajax.load(tmp_path / "mean.tosa")
    assert shipped.inputs == ("x",)
    assert shipped.outputs == ("y",)
    executable = tosajax.compile(shipped)
    own = params["qparams"]["x"], params["qparams"]["y"]
    y = quant.scan(quantized, params, x)[0]
    floats = quant.scan(quantized, params, x, mode="float")[0]
    mean = np.zeros((1, 4), np.float32) if initial is None else initial
    for step in range(STEPS):
        integers = np.asarray(quant.quantize(jnp.asarray(x[step]), own[0]).q)
        (out,) = executable(integers)
        real = (np.asarray(out, np.float32) - own[1].zero_point) * own[1].scale
        np.testing.assert_array_equal(real, y[step])
        mean = (mean + x[step]) / 2
        np.testing.assert_allclose(floats[step], x[step] - mean, atol=1e-6)
        np.testing.assert_allclose(real, x[step] - mean, atol=0.08)


def test_a_variable_of_int16_cannot_ship():
    quantized = quant.prepare(accumulator(), [quant.rule("mean", act=quant.QSpec("i16"))])
    params = quant.calibrate(quantized, quant.rollout(quantized, [drawn(STEPS, 1, 4)]))
    with pytest.raises(tosajax.UnsupportedError, match="'mean' is INT16, and variables are"):
        quantized.freeze(params)


def test_bits_of_a_graph_with_a_variable():
    quantized = quant.prepare(accumulator())
    batches = quant.rollout(quantized, [drawn(STEPS, 1, 4)])
    params = quant.calibrate(quantized, batches)
    against = ("frozen", "reference_model") if reference_model.is_installed() else "frozen"
    assert quant.check_bit_exact(quantized, params, batches, against=against)


# Errors.


def test_models_without_states_or_without_other_inputs():
    plain = quant.prepare(lambda x: x + x, example_args=[np.zeros((1, 2), np.float32)])
    for call in (
        lambda: quant.rollout(plain, [drawn(2, 1, 2)]),
        lambda: quant.scan(plain, {}, drawn(2, 1, 2)),
    ):
        with pytest.raises(ValueError, match="no states, expected one of `prepare` with `states`"):
            call()
    all_states = quant.prepare(
        lambda h: {"y": h / 2}, example_args=[np.zeros((1, 2), np.float32)], states={"h": "y"}
    )
    with pytest.raises(ValueError, match="all inputs of the model are states"):
        quant.rollout(all_states, [()])


@pytest.mark.parametrize(
    ("sequences", "initial", "error", "message"),
    [
        ((), None, TypeError, r"0 inputs, expected 1 \(x\)"),
        ((drawn(2, 1, 3),) * 2, None, TypeError, r"2 inputs, expected 1 \(x\)"),
        ((drawn(1, 3),), None, ValueError, r"'x' has shape \(1, 3\), expected a sequence of FP32"),
        ((drawn(0, 1, 3),), None, ValueError, r"shape \(0, 1, 3\), expected a sequence of FP32"),
        ((drawn(2, 1, 4),), None, ValueError, r"inputs of shapes \[\(1, 4\)\], expected x FP32"),
        ((drawn(2, 2, 3),), {"k": 1}, ValueError, "initial has 'k', which is not a state"),
        (
            (drawn(2, 2, 3),),
            3,
            TypeError,
            r"initial is 3 \(int\), expected a dictionary of arrays by state",
        ),
        ((drawn(2, 2, 3),), {"h": drawn(3, 8)}, ValueError, "of 3 examples, expected 1 or 2"),
        ((drawn(2, 2, 3),), {"h": drawn(1, 7)}, ValueError, "inputs of shapes .* expected h FP32"),
        ((drawn(2, 2, 3),), {"h": np.zeros((1, 8), int)}, TypeError, "'h' has type int64"),
        ((np.full((2, 1, 3), "a"),), None, TypeError, "'x' is an array of <U1"),
    ],
)
def test_wrong_arguments(sequences, initial, error, message):
    quantized, params = model()
    with pytest.raises(error, match=message):
        quant.scan(quantized, params, *sequences, initial=initial, mode="float")
    with pytest.raises(error, match=message):
        quant.rollout(quantized, [sequences], initial=initial)


def test_sequences_of_two_lengths():
    args = [np.zeros((1, 2), np.float32)] * 3
    quantized = quant.prepare(
        lambda x, z, h: {"h_next": x + z + h}, example_args=args, states={"h": "h_next"}
    )
    with pytest.raises(
        ValueError, match=r"sequences of {'x': 2, 'z': 3} steps, expected one number"
    ):
        quant.rollout(quantized, [(drawn(2, 1, 2), drawn(3, 1, 2))])


def test_no_sequences():
    with pytest.raises(ValueError, match="there are no sequences"):
        quant.rollout(model()[0], [])
    with pytest.raises(TypeError, match="batches is 3"):
        quant.rollout(model()[0], 3)  # type: ignore[arg-type]
