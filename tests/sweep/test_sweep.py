"""Whole sweeps: rows equal those of settings evaluated one by one, with every strategy."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_networks as small

import tosajax
from tosajax import Builder, DType, quant, reference_model, rewrite, spec, sweep
from tosajax.sweep import Sweep, grid
from tosajax.sweep import layers as sweep_layers
from tosajax.sweep.evaluate import mapped

pytestmark = pytest.mark.usefixtures("quick")

METRICS = ["accuracy", "top_3", "agreement", "sqnr", "cosine", "mean_lsb", "max_lsb"]


@pytest.fixture(scope="module")
def digits(data, integer_graph):
    """Images, with the index of the largest output of the integer graph as label."""
    images = np.load(data / "digits_test" / "inputs_0.npy")[:150]
    (scores,) = tosajax.compile(integer_graph, batch=len(images))(images)
    return images, np.asarray(scores).argmax(1)


def float_graph():
    """Two convolutions of random weights, with a ReLU between: (1, 8, 8, 1) to (1, 10)."""
    rng, b = np.random.default_rng(4), Builder()

    def conv(x, channels, size, pad, stride, name):
        weight = rng.normal(0, 0.3, (channels, size, size, x.shape[-1]))
        constants = [(weight, "weight"), (rng.normal(0, 0.1, channels), "bias")]
        return b.op(
            "CONV2D", x, *(b.const(v, DType.FP32, name=f"{name}/{what}") for v, what in constants),
            *(b.const([0.0], DType.FP32) for _ in range(2)), pad=pad, stride=(stride, stride),
            dilation=(1, 1), acc_type=DType.FP32, name=name,
        )  # fmt: skip

    x = conv(b.input("image", DType.FP32, (1, 8, 8, 1)), 4, 3, (0, 1, 0, 1), 2, "first")
    x = b.op("CLAMP", x, min_val=np.float32(0), max_val=np.float32(np.inf), name="relu")
    x = conv(x, 10, 4, (0, 0, 0, 0), 1, "second")
    return b.graph([b.op("RESHAPE", x, b.const_shape((1, 10)), name="scores")])


@pytest.fixture(scope="module")
def integer_graph(quantized):
    model, params, *_ = quantized
    return model.freeze(params)


@pytest.fixture(scope="module")
def quantized(data):
    """A model, its parameters, observed ranges, and float images with labels."""
    images = np.load(data / "et_digits_cnn_fp32" / "inputs_0.npy").reshape(-1, 8, 8, 1)
    act = quant.QSpec("i8", symmetric=False, observer=quant.percentile(99.9))
    model = quant.prepare(float_graph(), [quant.rule(".*", act=act)])
    observed = quant.observe(model, [images])
    labels = np.arange(len(images)) % 10
    return model, quant.settle(model, observed), observed, (images, labels)


def linear(setting, x):
    """Scores of a linear classifier, whose weights are rounded to `step` of a setting."""
    weights = jnp.asarray(WEIGHTS)
    step = jnp.float32(setting["step"])
    rounded = jnp.round(weights / step) * step
    return x @ (-rounded if setting.get("kind") == "negative" else rounded)


WEIGHTS = np.random.default_rng(5).normal(0, 1, (6, 4)).astype(np.float32)
POINTS = np.random.default_rng(6).normal(0, 1, (37, 6)).astype(np.float32)
CLASSES = (POINTS @ WEIGHTS).argmax(1)
STEPS = [0.01, 0.5, 1.0, 2.0, 3.0]


def of_linear(**options):
    options = {"metrics": ["accuracy"], "configs": grid(step=STEPS), "batch": 10, **options}
    return Sweep(options.pop("model", linear), (POINTS, CLASSES), **options)


def accuracy_by_numpy(step, sign=1):
    rounded = np.round(WEIGHTS / np.float32(step)) * np.float32(step)
    return float(((POINTS @ (sign * rounded)).argmax(1) == CLASSES).mean())


# Rows.


def test_rows_of_a_function():
    found = of_linear().run()
    assert [row["accuracy"] for row in found] == [accuracy_by_numpy(step) for step in STEPS]
    assert [row["step"] for row in found] == STEPS
    assert len({row["accuracy"] for row in found}) > 2


def test_rows_of_a_model_are_those_of_apply(quantized):
    model, params, observed, (images, labels) = quantized
    configs = grid(weight_bits=[3, 8], act_bits=[4], percentile=[99.0, 100.0])
    subject = sweep.of_model(model, params, observed=observed)
    apply = jax.jit(model.apply, static_argnames="mode")
    (wanted,) = apply(params, images, mode="float")
    one = Sweep(subject, (images, labels), METRICS, configs, reference=np.asarray(wanted), batch=7)
    found = one.run()
    assert one.compilations == 1
    for setting, row in zip(configs, found, strict=True):
        (scores,) = apply(subject.settle(setting), images)
        ours, theirs = (
            np.asarray(x, np.float32).reshape(len(images), -1) for x in (scores, wanted)
        )
        assert row["accuracy"] == (ours.argmax(1) == labels).mean()
        assert row["agreement"] == (ours.argmax(1) == theirs.argmax(1)).mean()
        assert row["max_lsb"] == np.abs(ours - theirs).max()
        noise = np.square((theirs - ours).astype(np.float64)).sum()
        signal = np.square(theirs.astype(np.float64)).sum()
        assert row["sqnr"] == pytest.approx(10 * math.log10(signal / noise), abs=1e-5)
        assert row["mean_bits"] == setting["weight_bits"]
    assert len({tuple(row[m] for m in METRICS) for row in found}) == len(configs)


def test_inputs_far_beyond_the_range_of_a_model_are_a_warning(quantized):
    """Images of 0..255 for a model of small numbers: said once, whatever the number of batches."""
    model, params, _, (images, labels) = quantized
    configs = grid(weight_bits=[8])

    def run(images):
        subject = sweep.of_model(model, params)
        return Sweep(subject, (images, labels), ["accuracy"], configs, batch=7).run()

    run(images)
    wanted = r"input 'image': .* % of the elements are beyond the range of its scale: .* clipped"
    with pytest.warns(UserWarning, match=wanted) as caught:
        run(images * 100)
    assert len([w for w in caught if "beyond the range" in str(w.message)]) == 1


def test_nan_that_a_model_is_given(quantized):
    """An example with NaN where it is allowed: the others count as they do without it."""
    model, params, _, (images, labels) = quantized
    subject = sweep.of_model(model, params)

    def run(images, **options):
        metrics, configs = ["accuracy"], grid(weight_bits=[8])
        (row,) = Sweep(subject, (images, labels), metrics, configs, batch=7, **options).run()
        assert row["error"] is None
        return row["accuracy"] * len(labels)

    bad = images.astype(np.float32)
    bad[3] = np.nan
    assert abs(run(bad, allow_nan=True) - run(images)) <= 1


def test_settings_of_a_model(quantized):
    model, params, observed, _ = quantized
    subject = sweep.of_model(model, params, observed=observed)
    name = model.weights[0]
    several = subject.settle({"bits": {name: 2}, "weight_bits": {"": 5, name: 3}})
    assert several["qparams"][name].bits == 3
    assert all(several["qparams"][n].bits == 5 for n in model.weights[1:])
    alone = quant.settle(model, observed, percentile=99.5)
    for ours, theirs in zip(
        *map(jax.tree.leaves, (subject.settle({"percentile": 99.5}), alone)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    own = sweep.of_model(
        model, params, settle=lambda m, p, s: quant.with_bits(m, p, {name: s["b"]})
    )
    assert own.settle({"b": 4})["qparams"][name].bits == 4
    for wrong, message in (
        ({"weight_bits": 9}, "9 bits, expected 2 to 8"),
        ({"bits": {"nothing": 4}}, "no tensor matches 'nothing'"),
        ({"width": 4}, "'width', expected one of weight_bits"),
        ({"percentile": 10}, r"p is 10, expected \(50, 100\]"),
    ):
        with pytest.raises(ValueError, match=message):
            subject.settle(wrong)
    with pytest.raises(ValueError, match="observed"):
        sweep.of_model(model, params).settle({"percentile": 99.0})


def rescale_multipliers(graph):
    node = next(n for n in graph.nodes if n.op == "RESCALE")
    return node.inputs[1], graph.tensors[node.inputs[1]].values


def changed(graph, rounding, name, values):
    """The graph with other rounding modes and other multipliers, made by hand."""
    mode = spec.RoundingMode[f"{rounding.upper()}_ROUND"]
    nodes = [
        dataclasses.replace(n, attributes={**n.attributes, "rounding_mode": mode})
        if n.op == "RESCALE"
        else n
        for n in graph.nodes
    ]
    tensor = dataclasses.replace(graph.tensors[name], values=values)
    return dataclasses.replace(graph, nodes=tuple(nodes), tensors={**graph.tensors, name: tensor})


def test_rows_of_a_graph(integer_graph, digits):
    images, labels = digits
    name, values = rescale_multipliers(integer_graph)
    assert values is not None
    configs = grid(rounding=["single", "double"]) * grid(**{name: [values, values // 4 * 3]})
    (reference,) = tosajax.compile(integer_graph, batch=len(images))(images)
    reference = np.asarray(reference)
    swept = Sweep(
        integer_graph, (images, labels), ["accuracy", "max_lsb", "mean_lsb"], configs,
        reference=reference, batch=64,
    )  # fmt: skip
    found = swept.run()
    assert swept.compilations == 1
    for setting, row in zip(configs, found, strict=True):
        other = changed(integer_graph, setting["rounding"], name, setting[name])
        (scores,) = tosajax.compile(other, batch=len(images))(images)
        scores = np.asarray(scores).astype(np.int64)
        difference = np.abs(scores - reference)
        assert row["accuracy"] == (scores.argmax(1) == labels).mean()
        assert row["max_lsb"] == difference.max()
        assert row["mean_lsb"] == difference.sum() / difference.size
    assert len({row["mean_lsb"] for row in found}) == 4


@pytest.mark.slow
def test_rows_of_a_graph_on_arms_model(integer_graph, digits):
    images, labels = (x[:20] for x in digits)
    name, values = rescale_multipliers(integer_graph)
    other = changed(integer_graph, "double", name, values // 4 * 3)
    expected = reference_model.run(other, images[:, None])[other.outputs[0]].reshape(20, -1)
    setting = {"rounding": "double", name: values // 4 * 3}
    found = Sweep(integer_graph, (images, labels), ["max_lsb"], [setting], reference=expected).run()
    assert found[0]["max_lsb"] == 0


def test_inputs_and_outputs_in_real_numbers(integer_graph, digits):
    images, labels = digits
    reals = (images.astype(np.float32) + 128) / 255
    expected = Sweep(integer_graph, (images, labels), configs=[{}]).run()
    swept = Sweep(
        integer_graph, (reals, labels), configs=[{}], input_quant=(1 / 255, -128),
        output_quant=(0.25, 3),
    )  # fmt: skip
    assert swept.run()[0]["accuracy"] == expected[0]["accuracy"]
    (scores,) = tosajax.compile(integer_graph, batch=len(images))(images)
    twin = (np.asarray(scores, np.float32) - 3) * np.float32(0.25)
    compared = Sweep(
        sweep.of_graph(integer_graph, input_quant=(1 / 255, -128), output_quant=[(0.25, 3)]),
        (reals, labels), ["max_lsb"], reference=twin,
    )  # fmt: skip
    assert compared.run()[0]["max_lsb"] == 0


def test_rewrites(integer_graph, digits):
    def halved(graph, name):
        values = graph.tensors[name].values
        return changed(graph, "single", name, values // 2)

    name, _ = rescale_multipliers(integer_graph)
    subject = sweep.of_graph(integer_graph, rewrites={"halved": halved})
    configs = grid(halved=[None, name]) + grid(weight_bits=[None, 8, 3, 2], act_bits=[None, 4])
    swept = Sweep(subject, digits, configs=configs)
    # Fewer bits of weights and other multipliers are arrays of one program.
    assert swept.plan().compilations == 2
    found = swept.run()
    assert swept.compilations == 2
    assert found[0]["accuracy"] > found[1]["accuracy"]
    for setting, row in zip(configs, found, strict=True):
        graph = integer_graph
        if setting.get("halved"):
            graph = halved(graph, name)
        if setting.get("weight_bits"):
            graph = rewrite.bits(graph, setting["weight_bits"], tensors="weights")
        if setting.get("act_bits"):
            graph = rewrite.bits(graph, setting["act_bits"])
        (scores,) = tosajax.compile(graph, batch=len(digits[0]))(digits[0])
        assert row["accuracy"] == (np.asarray(scores).argmax(1) == digits[1]).mean()


def test_each_example_starts_with_the_first_values_of_variables():
    b = Builder()
    x = b.input("x", DType.FP32, (1, 3))
    b.variable("total", DType.FP32, (1, 3), initial_value=[[1, 2, 3]])
    total = b.op("ADD", x, b.read("total", DType.FP32, (1, 3)))
    b.write("total", total)
    graph = b.graph([total])

    def first(graph, value):
        (name,) = (t.name for t in graph.tensors.values() if t.variable)
        values = np.full((1, 3), value, np.float32)
        tensor = dataclasses.replace(graph.tensors[name], values=values)
        return dataclasses.replace(graph, tensors={**graph.tensors, name: tensor})

    subject = sweep.of_graph(graph, rewrites={"first": first})
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    options = {"configs": grid(first=[None, 5, 7]), "reference": x + 5}
    for strategy, batch in (("loop", 4), ("map", 2), ("vmap", 1)):
        found = Sweep(subject, x, ["max_lsb"], strategy=strategy, batch=batch, **options).run()
        assert [row["max_lsb"] for row in found] == [4, 0, 2]


# Strategies.


def test_one_setting_takes_no_loop():
    """XLA:CPU runs convolutions of a loop slowly."""
    step = mapped(lambda varying, state, inputs, examples: state + varying * inputs + examples)
    for settings in (1, 2, 3):
        state = jnp.arange(3.0 * settings).reshape(settings, 3)
        inputs = np.array([1, 2, 3], np.float32)
        arguments = jnp.arange(float(settings)), state, jnp.asarray(inputs), 4.0
        wanted = [s + v * inputs + 4 for v, s in enumerate(np.asarray(state))]
        np.testing.assert_array_equal(step(*arguments), wanted)
        assert ("scan[" in str(jax.make_jaxpr(step)(*arguments))) == (settings > 1)


def test_strategies_give_the_same_rows(quantized):
    model, params, _, (images, labels) = quantized
    options = {
        "metrics": METRICS,
        "configs": grid(weight_bits=[3, 5, 8]),
        "reference": "float",
        "batch": 6,
    }
    expected = Sweep((model, params), (images, labels), strategy="loop", **options).run()
    for strategy in ("map", "vmap", "sharded"):
        swept = Sweep((model, params), (images, labels), strategy=strategy, chunk=2, **options)
        assert swept.run() == expected, strategy
        assert swept.compilations == 1, strategy


def test_several_passes_and_programs_are_shared():
    swept = of_linear(chunk=2, strategy="vmap")
    found = swept.run()
    assert found == of_linear().run()
    assert swept.compilations == 1


def test_static_values_are_compiled_apart():
    configs = grid(kind=["positive", "negative"], step=STEPS)
    swept = of_linear(configs=configs)
    plan = swept.plan()
    assert plan.compilations == 2
    assert plan.differences == ("kind",)
    assert "program 2: 5 settings, kind negative" in str(plan)
    found = swept.run()
    assert swept.compilations == 2
    assert [row["accuracy"] for row in found] == [
        accuracy_by_numpy(step, sign) for sign in (1, -1) for step in STEPS
    ]


def test_settings_of_other_keys():
    def scaled(setting, x):
        return linear({"step": setting.get("step", 0.01)}, x) * setting.get("scale", 1.0)

    configs = grid(step=STEPS) + grid(scale=[1.0, -1.0]) + grid(step=STEPS[:1], scale=[1.0])
    swept = Sweep(scaled, (POINTS, CLASSES), configs=configs)
    assert sum(p.settings for p in swept.plan().programs) == len(configs)
    found = swept.run()
    expected = [*map(accuracy_by_numpy, STEPS), accuracy_by_numpy(0.01)]
    expected += [accuracy_by_numpy(0.01, -1), accuracy_by_numpy(0.01)]
    assert [row["accuracy"] for row in found] == expected


def test_arrays_of_settings_are_not_kept(integer_graph, digits):
    alive = []

    def halved(graph, name):
        found = changed(graph, "single", name, graph.tensors[name].values // 2)
        alive.append(weakref.ref(found.tensors[name].values))
        return found

    name, _ = rescale_multipliers(integer_graph)
    subject = sweep.of_graph(integer_graph, rewrites={"halved": halved})
    swept = Sweep(subject, digits, configs=grid(halved=[name], weight_bits=[8, 4, 3, 2]))
    assert swept.plan().compilations == 1
    gc.collect()
    # One graph of the structure is kept, whatever the number of settings.
    assert sum(ref() is not None for ref in alive) <= 1 < len(alive)


# Data.


def batches():
    for start in range(0, 37, 8):
        yield POINTS[start : start + 8], CLASSES[start : start + 8]


def test_data_of_any_form_give_the_same_rows(tmp_path):
    expected = of_linear().run()
    np.savez(tmp_path / "data.npz", x=POINTS, labels=CLASSES)
    for source in (
        tmp_path / "data.npz",
        batches,
        list(batches()),
        {"x": POINTS, "labels": CLASSES},
    ):
        assert Sweep(linear, source, configs=grid(step=STEPS), batch=5).run() == expected


def test_batches_are_not_kept():
    alive, most = [], []

    def generated():
        for seed in range(40):
            x = np.random.default_rng(seed).normal(0, 1, (10, 6)).astype(np.float32)
            alive.append(weakref.ref(x))
            most.append(sum(ref() is not None for ref in alive))
            yield x, np.zeros(10, np.int32)

    data = sweep.Data(generated, name="generated")
    Sweep(linear, data, configs=grid(step=STEPS), batch=10).run()
    assert len(alive) >= 40
    assert max(most) <= 4


def test_an_iterator_takes_one_pass():
    named = sweep.Data(batches(), name="points")
    assert Sweep(linear, named, configs=grid(step=STEPS), batch=5).run() == of_linear().run()
    several = Sweep(
        linear, sweep.Data(batches(), name="points"), configs=grid(step=STEPS), chunk=2, batch=5
    )
    with pytest.raises(ValueError, match="several passes"):
        several.run()


# Stores.


def test_finished_rows_are_not_run_again(tmp_path):
    store = tmp_path / "run.jsonl"
    calls = []

    def counted(setting, x):
        calls.append(setting)
        return linear(setting, x)

    def of_counted(steps):
        subject = sweep.of_function(counted, name="linear")
        return Sweep(subject, (POINTS, CLASSES), configs=grid(step=steps), store=store)

    first = of_counted(STEPS[:3]).run()
    traced = len(calls)
    assert traced > 0
    again = of_counted(STEPS[:3])
    assert again.plan().finished == 3
    assert again.run() == first
    assert again.rows() == first
    assert len(calls) == traced
    assert of_counted(STEPS).run() == of_linear().run()
    assert len(store.read_text().splitlines()) == len(STEPS)


def test_other_data_metrics_or_models_have_other_keys(tmp_path):
    store = tmp_path / "run.jsonl"
    other = POINTS.copy()
    other[-1, -1] = np.nextafter(other[-1, -1], np.float32(9))
    variants = [
        of_linear(store=store),
        of_linear(store=store, metrics=["top_2"]),
        Sweep(linear, (other, CLASSES), configs=grid(step=STEPS), store=store),
        Sweep(linear, (POINTS, CLASSES[::-1]), configs=grid(step=STEPS), store=store),
        of_linear(store=store, model=sweep.of_function(linear, "b")),
    ]
    for swept in variants:
        assert swept.plan().finished == 0
        swept.run()
    assert len(store.read_text().splitlines()) == len(variants) * len(STEPS)


def test_a_setting_that_fails_is_a_row(tmp_path):
    def sometimes(setting, x):
        if setting["kind"] == "bad":
            raise ArithmeticError("no such kind\nand more")
        return linear(setting, x)

    store = tmp_path / "run.jsonl"
    configs = grid(kind=["good", "bad"], step=STEPS[:2])
    swept = Sweep(sometimes, (POINTS, CLASSES), configs=configs, store=store)
    found = swept.run()
    assert [row["error"] for row in found] == [None, None, *["ArithmeticError: no such kind"] * 2]
    assert [row["accuracy"] for row in found[2:]] == [None, None]
    assert len(found.errors) == 2
    assert swept.plan().finished == 4
    assert Sweep(linear, (POINTS, CLASSES), configs=configs, store=store).run().errors == ()


def test_a_setting_that_cannot_be_made_is_a_row():
    """The values are possible, but the rewrite finds nothing in this graph."""

    def stubborn(graph, value):
        if value == "bad":
            raise ValueError("nothing to change")
        return graph

    subject = sweep.of_graph(small.two_layers(), rewrites={"stubborn": stubborn})
    examples = small.images(2), np.arange(2)
    swept = Sweep(subject, examples, configs=grid(stubborn=["good", "bad"]))
    assert swept.plan().failed == {1: "ValueError: nothing to change"}
    good, bad = swept.run()
    assert good["error"] is None
    assert bad["error"] == "ValueError: nothing to change"


def test_failed_settings_are_retried_on_demand(tmp_path):
    broken = [True]

    def flaky(setting, x):
        if broken[0]:
            raise RuntimeError("out of luck")
        return linear(setting, x)

    options = {"configs": grid(step=STEPS), "store": tmp_path / "run.jsonl"}
    assert len(Sweep(flaky, (POINTS, CLASSES), **options).run().errors) == len(STEPS)
    broken[0] = False
    assert len(Sweep(flaky, (POINTS, CLASSES), **options).run().errors) == len(STEPS)
    again = Sweep(flaky, (POINTS, CLASSES), **options)
    assert again.run(retry_errors=True) == of_linear().run()
    assert again.rows() == of_linear().run()


def test_an_interrupt_leaves_whole_rows(tmp_path):
    store = tmp_path / "run.jsonl"

    def interrupted(setting, x):
        if setting["kind"] == "b":
            raise KeyboardInterrupt
        return linear(setting, x)

    configs = grid(kind=["a", "b"], step=STEPS)
    many = f"{len(STEPS)} of {2 * len(STEPS)} rows are"
    for kept, note in (store, f"in {store}: run again to go on"), (None, "lost: a store"):
        with pytest.raises(KeyboardInterrupt) as caught:
            Sweep(interrupted, (POINTS, CLASSES), configs=configs, store=kept).run()
        (told,) = caught.value.__notes__
        assert told.startswith(f"{many} {note}")
    rows = [json.loads(line) for line in store.read_text().splitlines()]
    assert len(rows) == len(STEPS)


def test_results_know_how_many_examples_there_are(tmp_path):
    def batches():
        yield from ((POINTS[i : i + 10], CLASSES[i : i + 10]) for i in range(0, len(POINTS), 10))

    store = tmp_path / "run.jsonl"
    for source in (POINTS, CLASSES), sweep.Data(batches, name="points"):
        for _ in range(2):  # the second time, rows are those of the store
            found = Sweep(linear, source, configs=grid(step=STEPS), store=store).run()
            assert found.examples == len(POINTS)
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    store.write_text("".join(json.dumps({**line, "examples": 0}) + "\n" for line in lines))
    with pytest.raises(tosajax.FormatError, match="'examples' is '0', expected a positive integer"):
        Sweep(linear, (POINTS, CLASSES), store=store)
    for line in lines:
        del line["examples"]  # as in earlier versions
    store.write_text("".join(json.dumps(line) + "\n" for line in lines))
    old = Sweep(linear, sweep.Data(batches, name="points"), configs=grid(step=STEPS), store=store)
    assert old.run().examples is None


def test_costs_are_columns(quantized, integer_graph):
    model, params, _, examples = quantized
    names = ["accuracy", "weight_bytes", "macs"]
    rows = Sweep((model, params), examples, names, grid(weight_bits=[4, 8])).run()
    assert rows.costs == ("weight_bytes", "macs")
    assert rows.metrics == ("accuracy",)
    sizes = sum(params["values"][name].size for name in model.weights)
    assert [row["weight_bytes"] for row in rows] == [sizes / 2, sizes]
    by_hand = tosajax.compile(integer_graph, batch=1).cost().macs
    (swept,) = Sweep(integer_graph, (np.zeros((1, 8, 8, 1), np.int8), [0]), names).run()
    assert swept["macs"] == by_hand
    with pytest.raises(ValueError, match="weight_bytes and macs are of graphs and models"):
        of_linear(metrics=names)
    broken = Sweep(
        sweep.of_graph(integer_graph, rewrites={"broken": lambda *_: integer_graph.nodes[10**9]}),
        (np.zeros((1, 8, 8, 1), np.int8), [0]), names, [{}, {"broken": 1}],
    ).run()  # fmt: skip
    assert broken[0]["macs"] == by_hand
    assert broken[1]["macs"] is None


def test_bits_of_layers_are_those_of_rewrites(integer_graph, digits):
    conv, *rest = sweep_layers.layers(integer_graph, "weights")
    configs = [{"weight_bits": {".": 3, conv: 5}}, {"act_bits": {".": 4}}, {"act_bits": 4}]
    graph = rewrite.bits(integer_graph, 5, rf"^{re.escape(conv)}$", "weights")
    for name in rest:
        graph = rewrite.bits(graph, 3, rf"^{re.escape(name)}$", "weights")
    (want,) = Sweep(graph, digits, ["accuracy", "top_3"]).run()
    layer, every, all_of = Sweep(integer_graph, digits, ["accuracy", "top_3"], configs).run()
    assert (layer["accuracy"], layer["top_3"]) == (want["accuracy"], want["top_3"])
    assert (every["accuracy"], every["top_3"]) == (all_of["accuracy"], all_of["top_3"])


INTERRUPTED = """
import signal, threading
import jax.numpy as jnp, numpy as np
from jax._src import compiler
from tosajax.sweep import Sweep

compile_and_load = compiler.backend_compile_and_load
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it

def interrupted(backend, module, *rest, **options):
    if len(str(module)) > 20_000:
        main = threading.main_thread().ident
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()
    return compile_and_load(backend, module, *rest, **options)

compiler.backend_compile_and_load = interrupted

def deep(setting, x):
    for i in range(400):
        x = jnp.sin(x * i) + jnp.cumsum(x, axis=0)
    return x

Sweep(deep, (np.ones((9, 9), np.float32), np.zeros(9, np.int32)), store="run.jsonl").run()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_interrupt_while_xla_compiles_does_not_crash_a_script(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), stderr=-1, text=True)
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt\n0 of 1 rows are in run.jsonl: run again" in done.stderr


# Errors.


def test_wrong_arguments(quantized, integer_graph, digits):
    images, labels = digits
    model, params, _, examples = quantized
    for options, message in (
        ({"metrics": ["accurate"]}, "no metric 'accurate'"),
        ({"metrics": ["sqnr"]}, "no reference"),
        ({"metrics": []}, "at least one"),
        ({"strategy": "fast"}, "strategy 'fast'"),
        ({"reference": "float"}, "'float'"),
        ({"configs": [{"step": object()}]}, "object"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            of_linear(**options).plan()
    with pytest.raises(ValueError, match="no labels"):
        Sweep(linear, POINTS)
    with pytest.raises(TypeError, match="model is int"):
        Sweep(3, POINTS, ["accuracy"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="of a Graph"):
        Sweep((model, params), examples, input_quant=(1, 0))
    with pytest.raises(ValueError, match="input_quant has 2 scales"):
        Sweep(integer_graph, (images, labels), input_quant=[(1, 0), (1, 0)])


def test_data_that_do_not_fit_are_no_row(integer_graph, digits):
    images, labels = digits
    for wrong, message in (
        (images.astype(np.float32), "type float32, expected int8"),
        (images[:, :7], r"shape \(1, 7, 8, 1\), expected \(1, 8, 8, 1\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            Sweep(integer_graph, (wrong, labels), configs=[{}, {"rounding": "double"}]).run()


def test_data_that_cannot_be_read_are_no_row(tmp_path):
    def broken():
        yield POINTS[:20], CLASSES[:20]
        raise OSError("no more disk")

    data = sweep.Data(broken, name="broken")
    swept = Sweep(linear, data, configs=grid(step=STEPS), store=tmp_path / "run.jsonl", batch=10)
    with pytest.raises(OSError, match="no more disk"):
        swept.run()
    assert (tmp_path / "run.jsonl").read_text() == ""
    short = of_linear(metrics=["max_lsb"], reference=(POINTS @ WEIGHTS)[:30])
    with pytest.raises(ValueError, match="30"):
        short.run()


# One by one.


def test_evaluate_compiles_once():
    swept = of_linear(configs=sweep.random(3, step=sweep.uniform(0.1, 3.0)))
    for step in (0.1, 0.7, 1.9, 2.5):
        assert swept.evaluate({"step": step})["accuracy"] == accuracy_by_numpy(step)
    assert swept.compilations == 1


def test_optuna_drives_the_sweep(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = sweep.random(0, step=sweep.uniform(0.01, 4.0), kind=["positive", "negative"])
    swept = of_linear(configs=space, store=tmp_path / "run.jsonl")
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(swept.objective, n_trials=12)
    assert len(study.trials) == 12
    for trial in study.trials:
        sign = 1 if trial.params["kind"] == "positive" else -1
        assert trial.value == accuracy_by_numpy(trial.params["step"], sign)
    assert swept.compilations == 2
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 12


# Processes.

SLOW = pytest.mark.slow
SCRIPT = Path(__file__).with_name("run_sweep.py")


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def expected_rows():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import run_sweep
    finally:
        sys.path.pop(0)
    return [dict(row) for row in run_sweep.make(None).run()]


def lines(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_kill_and_resume(tmp_path):
    """After ten kills at random moments, the table equals that of one run, without double rows."""
    store, table = tmp_path / "run.jsonl", tmp_path / "table.json"
    rng = np.random.default_rng(0)
    command = [sys.executable, str(SCRIPT), str(store), str(table), "0.02"]
    counts = []
    for _ in range(10):
        process = subprocess.Popen(command, env=environment())
        before, began = lines(store), time.monotonic()
        while lines(store) == before and process.poll() is None and time.monotonic() - began < 60:
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.1)))
        process.kill()
        process.wait()
        counts.append(lines(store))
    subprocess.run(command, env=environment(), check=True)
    assert json.loads(table.read_text()) == expected_rows()
    keys = [
        json.loads(line)["key"] for line in store.read_text().splitlines() if line.endswith("}")
    ]
    assert len(keys) == len(set(keys)) == len(expected_rows())
    assert len(set(counts)) > 5  # the kills were at different places
    assert counts[-1] < len(expected_rows())


@pytest.mark.slow
def test_two_hosts_give_the_table_of_one(tmp_path):
    store = tmp_path / "run.jsonl"
    port = str(20000 + os.getpid() % 20000)
    tables = [tmp_path / f"{rank}.json" for rank in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(store), str(table), "0", port, str(rank)],
            env=environment(XLA_FLAGS=""),
        )
        for rank, table in enumerate(tables)
    ]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    for table in tables:
        assert json.loads(table.read_text()) == expected_rows()
    assert len(store.read_text().splitlines()) == len(expected_rows())


@pytest.mark.parametrize("shape", ["2x2", *(pytest.param(s, marks=SLOW) for s in ("1x4", "4x1"))])
def test_settings_and_examples_over_devices(shape, tmp_path):
    table = tmp_path / "table.json"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "run.jsonl"), str(table), "0", shape]
    devices = "--xla_force_host_platform_device_count=4"
    subprocess.run(command, env=environment(XLA_FLAGS=devices), check=True, timeout=240)
    assert json.loads(table.read_text()) == expected_rows()


@pytest.mark.slow
def test_two_processes_share_a_store(tmp_path):
    store = tmp_path / "run.jsonl"
    tables = [tmp_path / f"{n}.json" for n in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(store), str(t), "0.01"], env=environment()
        )
        for t in tables
    ]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    for table in tables:
        assert json.loads(table.read_text()) == expected_rows()
    assert all(json.loads(line) for line in store.read_text().splitlines())


@pytest.mark.slow
def test_ray_gives_the_same_table(tmp_path):
    """A worker is killed, and restarts."""
    pytest.importorskip("ray")
    store, table = tmp_path / "run.jsonl", tmp_path / "table.json"
    command = [sys.executable, str(SCRIPT), str(store), str(table), "0.3", "ray"]
    found = subprocess.run(
        command, env=environment(), timeout=500, check=False, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "constructor arguments in the object store" not in found.stderr
    assert json.loads(table.read_text()) == expected_rows()
    keys = [json.loads(line)["key"] for line in store.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == len(expected_rows())


@pytest.mark.slow
def test_sweeps_can_be_copied(quantized):
    pickle = pytest.importorskip("ray").cloudpickle
    model, params, _, examples = quantized
    swept = Sweep((model, params), examples, ["sqnr"], grid(weight_bits=[4, 8]), reference="float")
    expected = swept.run()
    assert pickle.loads(pickle.dumps(swept)).run() == expected


def test_a_copy_is_made_of_the_arguments():
    """Copies of a sweep and of its runner have neither programs nor a store."""
    points = np.linspace(0, 1, 12, dtype=np.float32).reshape(6, 2)
    settings = grid(step=[0.25, 0.5])
    rounded = sweep.of_function(lambda setting, x: jnp.round(x / setting["step"]) * setting["step"])
    swept = Sweep(rounded, points, ["max_lsb"], settings, reference=points, batch=4)
    expected = swept.run()
    again = copy.copy(swept)
    assert again.compilations == 0
    assert again.run() == expected
    assert copy.copy(swept._runner).compilations == 0
    once = Sweep(rounded, iter([points]), ["max_lsb"], settings, reference=points, store=None)
    with pytest.raises(TypeError, match="of an iterator, cannot be copied"):
        copy.copy(once)
