"""calibrate, equalize, bias_correct, learned_rounding, report: on a network of random weights."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilations import compiled_of

from tosajax import Builder, DType, Graph
from tosajax import quant as tq

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(0.3, 1, (48, 6, 6, 3)).astype(np.float32)


def network(spread: float = 1.0) -> Graph:
    """Two convolutions, the first's channels of sizes that differ, and a sigmoid."""
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input("x", DType.FP32, (1, 6, 6, 3))
    sizes = np.exp(rng.normal(0, spread, (8, 1, 1, 1)))
    zero = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
    static = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    w1 = b.const(rng.normal(0, 0.3, (8, 3, 3, 3)) * sizes, DType.FP32, name="w1")
    b1 = b.const(rng.normal(0, 0.1, 8), DType.FP32, name="b1")
    y = b.op("CONV2D", x, w1, b1, *zero, name="conv1", **static)
    limit = np.finfo(np.float32).max
    y = b.op("CLAMP", y, min_val=np.float32(0), max_val=limit, name="relu")
    w2 = b.const(rng.normal(0, 0.1, (4, 3, 3, 8)), DType.FP32, name="w2")
    b2 = b.const(rng.normal(0, 0.1, 4), DType.FP32, name="b2")
    y = b.op("CONV2D", y, w2, b2, *zero, name="conv2", **static)
    return b.graph([b.op("SIGMOID", y, name="y")])


@functools.cache
def prepared(bits: int = 8, **graph) -> tq.QModel:
    weight = tq.QSpec("i8", bits=bits, narrow_range=True)
    return tq.prepare(network(**graph), [tq.rule(".*", weight=weight)])


@functools.cache
def calibrated(model: tq.QModel):
    return tq.calibrate(model, [IMAGES])


@functools.cache
def watching(model: tq.QModel, name: str) -> tq.QModel:
    return model.with_outputs(name)


@functools.partial(jax.jit, static_argnums=(0, 2))
def compiled(model: tq.QModel, params, mode: tq.Mode) -> jax.Array:
    return model.apply(params, IMAGES, mode=mode)[0]


def run(model: tq.QModel, params, mode: tq.Mode = "exact") -> np.ndarray:
    """The first output for the images."""
    return np.asarray(compiled(model, params, mode))


def error(model: tq.QModel, params) -> float:
    exact, floats = run(model, params), run(model, params, "float")
    return float(np.square(exact - floats).mean())


def test_calibration_does_not_depend_on_how_examples_are_divided():
    model = prepared()
    whole = calibrated(model)
    parts = tq.calibrate(model, np.split(IMAGES, 3))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)


def test_examples_in_either_form_run_one_program():
    model, (first, second) = prepared(), IMAGES[:24].reshape(2, 12, 6, 6, 3)
    wanted = tq.calibrate(model, [first, second])
    form = [jnp.asarray(x[:, None]) for x in (first, second)]
    assert compiled_of(lambda: tq.calibrate(model, form)) == 0
    jax.tree.map(np.testing.assert_array_equal, tq.calibrate(model, form), wanted)


def test_the_range_is_that_of_the_float_graph():
    model = prepared()
    images = RNG.normal(0.3, 1, (200, 6, 6, 3)).astype(np.float32)
    params = tq.calibrate(model, [images])
    relu, y = (
        np.asarray(watching(model, name).apply(params, images, mode="float")[0])
        for name in ("relu", "y")
    )
    found = params["qparams"]["relu"]
    greatest = np.sort(relu, axis=None)[-1 - int(5e-5 * relu.size)]  # two values are greater
    assert greatest < 0.98 * relu.max()
    np.testing.assert_allclose(found.scale, greatest / 255, rtol=1e-2)
    np.testing.assert_allclose(params["qparams"]["y"].scale, y.max() / 255, rtol=1e-3)
    assert float(found.zero_point) == -128
    assert set(model.activations) == {"x", "relu", "conv2", "y"}
    assert set(model.weights) == {"w1", "w2"}


def test_no_examples():
    with pytest.raises(ValueError, match="no examples"):
        tq.calibrate(prepared(), [])


def test_samples_of_a_function():
    model = prepared()
    params = calibrated(model)
    source = params["qparams"]["conv2"]
    points = (np.arange(-128, 128) - float(source.zero_point)) * np.float64(source.scale)
    np.testing.assert_allclose(params["tables"]["y"], 1 / (1 + np.exp(-points)), atol=1e-6)


def test_equalize_keeps_the_function_and_makes_ranges_alike():
    model = prepared(bits=5, spread=2.5)
    values = tq.equalize(model)
    plain, equal = (tq.calibrate(model, [IMAGES], values=v) for v in (None, values))
    before, after = (run(model, p, "float") for p in (plain, equal))
    np.testing.assert_allclose(before, after, atol=1e-5)
    first = np.abs(values["w1"]).max((1, 2, 3))
    second = np.abs(values["w2"]).max((0, 1, 2))
    np.testing.assert_allclose(first, second, rtol=1e-3)
    assert error(model, equal) < 0.8 * error(model, plain)


def test_bias_correction_leaves_no_mean_error():
    model = prepared(bits=5)
    params = calibrated(model)
    corrected = tq.bias_correct(model, params, np.split(IMAGES, 2))
    watched = watching(model, "conv2")

    def mean_error(p):
        difference = run(watched, p) - run(watched, params, "float")
        return np.abs(difference.mean((0, 1, 2))).max()

    assert mean_error(corrected) < mean_error(params) / 5
    jax.tree.map(np.testing.assert_array_equal, corrected["qparams"], params["qparams"])


@functools.cache
def rounded() -> tuple[tq.QModel, Any, Any, Any]:
    """A model, its parameters, and those after corrections of biases and then of weights."""
    model = prepared(bits=3)
    params = calibrated(model)
    biases = tq.bias_correct(model, params, [IMAGES])
    return model, params, biases, tq.learned_rounding(model, biases, [IMAGES], steps=60)


@pytest.mark.slow
def test_learned_rounding_lowers_the_error_and_moves_no_weight_by_a_step():
    model, params, biases, learned = rounded()
    assert error(model, learned) < 0.85 * error(model, biases)
    alone = tq.learned_rounding(model, params, [IMAGES], steps=60)
    assert error(model, alone) < 0.85 * error(model, params)
    for name in model.weights:
        scale = params["qparams"][name].scale
        steps = np.asarray(learned["corrections"][name]) / np.asarray(scale)
        inside = np.abs(np.asarray(params["values"][name]) / np.asarray(scale)) <= 3
        assert np.abs(np.where(inside, steps, 0.0)).max() < 1
    assert tq.check_bit_exact(model, learned, IMAGES, against=("frozen",))
    made = jax.jit(model.constants)(learned)
    values = {n: params["values"][n] + learned["corrections"][n] for n in model.weights}
    quantize = jax.jit(lambda x, qparams: tq.quantize(x, qparams).q)
    again = {n: quantize(values[n], learned["qparams"][n]) for n in model.weights}
    for name, integers in again.items():
        np.testing.assert_array_equal(made[name].q, integers)


@pytest.mark.slow
def test_corrections_leave_the_float_graph_as_it_was():
    """Otherwise corrections and reports would compare with another function."""
    model, params, biases, both = rounded()
    again = tq.bias_correct(model, both, [IMAGES])
    assert set(again["corrections"]) == {"w1", "w2", "b1", "b2"}
    for found in (biases, both, again):
        np.testing.assert_array_equal(run(model, found, "float"), run(model, params, "float"))
        assert np.abs(run(model, found) - run(model, params)).max() > 0
        # Training in floats uses the constants of the integers.
        difference = run(model, found, "fake_quant") - run(model, found)
        assert np.abs(difference).mean() < found["qparams"]["y"].scale / 2
    gradient = jax.jit(jax.grad(lambda p: jnp.square(model.apply(p, IMAGES)[0]).sum()))(both)
    assert float(jnp.abs(gradient["values"]["w1"]).max()) > 0
    assert float(jnp.abs(gradient["corrections"]["w1"]).max()) == 0


def test_other_bits_keep_corrections():
    model = prepared(bits=3)
    params = calibrated(model)
    values = {n: np.asarray(params["values"][n]) for n in model.weights}
    corrections = {n: np.float32(1.5) * value for n, value in values.items()}

    @jax.jit
    def of_8_bits(params):
        changed = tq.with_bits(model, params, dict.fromkeys(model.weights, 8))
        found, own = model.constants(changed), changed["qparams"]
        return {n: (tq.dequantize(found[n], own[n]), own[n].scale) for n in model.weights}

    for name, (made, scale) in of_8_bits({**params, "corrections": corrections}).items():
        wanted = values[name] + corrections[name]
        assert np.abs(np.asarray(made) - wanted).max() < np.max(scale)


def test_report():
    model = prepared(bits=4)
    params = calibrated(model)
    found = tq.report(model, params, IMAGES)
    rows = {row.tensor: row for row in found.rows}
    assert list(rows) == ["x", "relu", "conv2", "y"]
    watched = watching(model, "conv2")
    exact, floats = (run(watched, params, m).astype(np.float64) for m in ("exact", "float"))
    wanted = 10 * np.log10((floats**2).sum() / ((floats - exact) ** 2).sum())
    assert rows["conv2"].sqnr == pytest.approx(wanted, abs=1e-3)
    assert rows["y"].local_sqnr > rows["y"].sqnr
    assert found.worst.tensor in ("relu", "conv2")
    assert rows["relu"].acc_bits is not None
    assert rows["y"].acc_bits is None
    assert "worst: CLAMP 'relu'" in str(found) or "worst: CONV2D 'conv2'" in str(found)


def test_report_of_a_graph_with_indices():
    """Rows are compared; indices have no real values."""
    b = Builder()
    rng = np.random.default_rng(0)
    rows = b.const(rng.normal(size=(1, 5, 3)), DType.FP32, name="rows")
    found = b.op("GATHER", rows, b.input("indices", DType.INT32, (1, 4)), name="found")
    doubled = b.op("ADD", found, found, name="doubled")
    model = tq.prepare(b.graph([doubled]))
    indices = np.array([[0, 4, 2, 1]], np.int32)
    (row,) = tq.report(model, tq.calibrate(model, [indices]), indices).rows
    assert row.tensor == "doubled"
    assert 30 < row.local_sqnr < 70


def test_report_of_nothing():
    """Rows of a constant, which are integers when they are looked up."""
    b = Builder()
    rows = b.const(np.ones((1, 5, 3)), DType.FP32, name="rows")
    indices = b.input("indices", DType.INT32, (1, 4))
    model = tq.prepare(b.graph([b.op("GATHER", rows, indices)]))
    examples = np.zeros((1, 4), np.int32)
    params = tq.calibrate(model, [examples])
    with pytest.raises(ValueError, match="no quantized tensor"):
        tq.report(model, params, examples)


def test_report_counts_what_saturates_and_what_is_dead():
    model = prepared()
    params = calibrated(model)
    relu = params["qparams"]["relu"]
    narrow = {**params["qparams"], "relu": jax.tree.map(lambda x: x, relu)}
    narrow["relu"] = dataclasses.replace(relu, scale=relu.scale / 4)
    values = {**params["values"], "w1": params["values"]["w1"].at[2].set(0.0)}
    values["b1"] = values["b1"].at[2].set(-1.0)
    found = tq.report(model, {**params, "qparams": narrow, "values": values}, IMAGES)
    row = {r.tensor: r for r in found.rows}["relu"]
    assert row.saturated > 0.001
    assert row.dead == 1 / 8
    assert row.levels <= row.of_levels == 256


def test_a_lifted_model_has_no_report():
    model, params = tq.lift(prepared().freeze(calibrated(prepared())))
    with pytest.raises(ValueError, match="without a float graph"):
        tq.report(model, params, IMAGES)


def test_programs_of_a_model_are_compiled_once(monkeypatch):
    """Of calibration and of freezing, however often they are called."""
    # A copy, of which nothing is compiled yet.
    model, traced = dataclasses.replace(prepared(bits=4)), []
    apply, make = tq.QModel.apply, tq.QModel.constants
    monkeypatch.setattr(tq.QModel, "apply", lambda *a, **k: traced.append(0) or apply(*a, **k))
    monkeypatch.setattr(tq.QModel, "constants", lambda *a: traced.append(1) or make(*a))
    for _ in range(3):
        model.freeze(tq.calibrate(model, [IMAGES]))
    assert sorted(traced) == [0, 1]
