"""Arguments of tosajax.quant, and an error for each mistake."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tosajax import Builder, DType, Graph
from tosajax import quant as tq
from tosajax.arguments.nan import first_nan

RNG = np.random.default_rng(0)
EXAMPLES = RNG.normal(0.3, 1, (6, 2, 2, 3)).astype(np.float32)


def network(*, root: bool = False) -> Graph:
    """A convolution with a scale per channel; or a square root as well, NaN below 0."""
    rng = np.random.default_rng(1)
    b = Builder("net")
    x = b.input("image", DType.FP32, (1, 2, 2, 3))
    zero = [b.const([0.0], DType.FP32, name=f"zero{i}") for i in range(2)]
    weight = b.const(rng.normal(0, 1, (4, 1, 1, 3)), DType.FP32, name="conv1/weight")
    bias = b.const(rng.normal(0, 1, 4), DType.FP32, name="conv1/bias")
    static = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    y = b.op("CONV2D", x, weight, bias, *zero, name="conv1", **static)
    return b.graph([b.op("RSQRT", y, name="y") if root else y])


@pytest.fixture(scope="module")
def model() -> tq.QModel:
    return tq.prepare(network())


@pytest.fixture(scope="module")
def params(model) -> Any:
    return tq.calibrate(model, [EXAMPLES])


def changed(params: Any, name: str, **fields: Any) -> Any:
    """The parameters with other fields of one QParams."""
    own = dataclasses.replace(params["qparams"][name], **fields)
    return {**params, "qparams": {**params["qparams"], name: own}}


# NaN.


def test_first_nan():
    array = np.zeros((2, 3, 4), np.float32)
    assert first_nan(array) is None
    array[1, 0, 2] = array[1, 2, 3] = np.nan
    assert first_nan(array) == (1, 0, 2)
    assert first_nan(jnp.asarray(array)) == (1, 0, 2)
    assert first_nan(array.astype(ml_dtypes.bfloat16)) == (1, 0, 2)
    assert first_nan(float("nan")) == ()
    assert first_nan(np.zeros(0, np.float32)) is None
    assert first_nan(np.arange(3)) is None
    assert first_nan(np.array([np.inf, -np.inf])) is None


def with_value(value: float) -> np.ndarray:
    bad = EXAMPLES.copy()
    bad[4, 1, 0, 2] = value
    return bad


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_data_that_are_not_finite(model, params, value):
    """One NaN or infinity is refused, by every function that takes examples."""
    bad = with_value(value)
    place = rf"input 'image' is {value} at \(4, 1, 0, 2\), .*allow_nan=True"
    for run in (
        lambda: tq.calibrate(model, [EXAMPLES, bad]),
        lambda: tq.observe(model, [EXAMPLES, bad]),
        lambda: tq.bias_correct(model, params, [EXAMPLES, bad]),
        lambda: tq.learned_rounding(model, params, [EXAMPLES, bad], steps=1),
        lambda: tq.reconstruct(model, params, [EXAMPLES, bad], steps=1),
        lambda: tq.gptq(model, params, [EXAMPLES, bad]),
        lambda: tq.smooth(model, [EXAMPLES, bad]),
    ):
        with pytest.raises(ValueError, match="batch 1: " + place):
            run()
    for run in (tq.report, tq.sensitivity, tq.check_bit_exact):
        with pytest.raises(ValueError, match="^" + place):
            run(model, params, bad)


def test_data_that_are_not_finite_where_asked_for(model, params):
    """Ranges ignore NaN and infinities."""
    bad = with_value(np.nan)
    bad[0] = bad[1]
    with pytest.raises(ValueError, match="batch 0: input 'image' is nan"):
        tq.calibrate(model, [np.full_like(EXAMPLES, np.nan)])
    found = tq.calibrate(model, [bad], allow_nan=True)
    own = found["qparams"]["image"]
    rest = bad[np.isfinite(bad)]
    np.testing.assert_allclose(own.scale, (rest.max() - rest.min()) / 255, rtol=1e-3)


def test_nan_that_the_graph_computes():
    """Some of a tensor may be NaN, as a SELECT leaves it out; all of it has no range."""
    model = tq.prepare(network(root=True))
    assert np.isfinite(tq.calibrate(model, [EXAMPLES])["qparams"]["y"].scale)
    below = {"conv1/bias": np.full(4, -1e3, np.float32)}
    with pytest.raises(ValueError, match="the float graph computes nothing but NaN in 'y'"):
        tq.calibrate(model, [EXAMPLES], values=below)


def test_values_that_are_nan(model):
    weight = np.ones((4, 1, 1, 3), np.float32)
    weight[2, 0, 0, 1] = np.nan
    message = r"values\['conv1/weight'\] is NaN at \(2, 0, 0, 1\)"
    for run in (tq.equalize, lambda m, values: tq.calibrate(m, [EXAMPLES], values=values)):
        with pytest.raises(ValueError, match=message):
            run(model, values={"conv1/weight": weight})
        with pytest.raises(ValueError, match=r"has shape \(4,\), expected \(4, 1, 1, 3\)"):
            run(model, values={"conv1/weight": weight[:, 0, 0, 0] * 0})
        with pytest.raises(ValueError, match=r"not a constant .*did you mean 'conv1/weight'"):
            run(model, values={"conv1/weights": weight})


# 64-bit types.


def test_64_bit_types_change_nothing(model, params):
    """Results have the same bits as without them, in 32-bit types."""

    def flow(examples: Any) -> Any:
        values = {"conv1/bias": [0.5, 0.25, -1.0, 2.0]}
        params = tq.calibrate(model, [examples], values=values)

        def loss(params: Any) -> jax.Array:
            return jnp.square(model.apply(params, examples)[0]).mean()

        @jax.jit
        def made(params: Any) -> Any:
            floats = model.apply(params, examples, mode="fake_quant")
            stepped = tq.project(params, params), tq.with_bits(model, params, {"conv1/weight": 4})
            return jax.value_and_grad(loss)(params), floats, stepped

        frozen = model.freeze(params)
        constants = {n: t.values for n, t in frozen.tensors.items() if t.values is not None}
        return params, made(params), constants

    plain = flow(EXAMPLES)
    with jax.enable_x64(True):
        wide = flow(EXAMPLES.astype(np.float64))
        lists = model.apply(params, EXAMPLES.tolist())  # not compiled as a whole
    jax.tree.map(np.testing.assert_array_equal, plain, wide)
    assert {x.dtype for x in jax.tree.leaves((wide[:2], lists))} == {np.dtype("float32")}
    np.testing.assert_array_equal(lists[0], jax.jit(model.apply)(params, EXAMPLES)[0])


# Scales.


@pytest.mark.parametrize("value", [-0.5, 0.0, np.nan, np.inf])
def test_a_scale_that_is_not_positive(model, params, value):
    """The first function that uses it names it, and so does freeze."""
    scale = params["qparams"]["conv1/weight"].scale.at[2].set(value)
    bad = changed(params, "conv1/weight", scale=scale)
    message = rf"scale of channel 2 of 'conv1/weight' is {value}, .*quant.project"
    for run in (
        lambda: model.freeze(bad),
        lambda: model.apply(bad, EXAMPLES),
        lambda: model.apply(bad, EXAMPLES, mode="fake_quant"),
        lambda: tq.report(model, bad, EXAMPLES),
    ):
        with pytest.raises(ValueError, match=message):
            run()
    whole = changed(params, "conv1", scale=jnp.float32(value))
    with pytest.raises(ValueError, match=f"scale of 'conv1' is {value}, expected a positive"):
        model.freeze(whole)
    if not np.isfinite(value):
        with pytest.raises(ValueError, match=f"zero point of 'conv1' is {value}"):
            model.freeze(changed(params, "conv1", zero_point=jnp.float32(value)))


def test_a_parameter_that_is_nan(model, params):
    weight = params["values"]["conv1/weight"].at[1, 0, 0, 2].set(np.nan)
    bad = {**params, "values": {**params["values"], "conv1/weight": weight}}
    message = r"params\['values'\]\['conv1/weight'\] is NaN at \(1, 0, 0, 2\)"
    with pytest.raises(ValueError, match=message):
        model.freeze(bad)


def test_scales_that_no_rescale_holds_are_named(model, params):
    scale = params["qparams"]["conv1/weight"].scale.at[3].set(1e30)
    message = r"'conv1/rescaled': a scale cannot be expressed, 1e\+30 of channel 3 \(scales "
    ones = changed(changed(params, "conv1", scale=jnp.float32(1)), "image", scale=jnp.float32(1))
    with pytest.raises(
        ValueError, match=message + r"'image': 1, 'conv1/weight': 1e\+30, 'conv1': 1"
    ):
        model.freeze(changed(ones, "conv1/weight", scale=scale))


def test_project_keeps_scales_positive(model, params):
    """A step far below 0 leaves half, a small step is kept, and other parameters are unchanged."""
    scale = params["qparams"]["conv1/weight"].scale
    step = jnp.asarray([-10.0, 0.9, 1.0, 4.0], jnp.float32).reshape(4, 1, 1, 1)
    moved = changed(params, "conv1/weight", scale=scale * step)
    kept = jax.jit(tq.project)(moved, params)
    expected = scale * jnp.maximum(step, 0.5)
    np.testing.assert_array_equal(kept["qparams"]["conv1/weight"].scale, expected)
    rest = changed(kept, "conv1/weight", scale=scale)
    jax.tree.map(np.testing.assert_array_equal, rest, params)
    model.freeze(kept)
    with pytest.raises(ValueError, match=r"least is 0, expected a number in \(0, 1\]"):
        tq.project(moved, params, least=0)
    with pytest.raises(ValueError, match="no 'qparams'"):
        tq.project({"weights": {}}, {"weights": {}})


# Rules and graphs.


def test_a_rule_that_matches_nothing():
    message = r"rule 'conv_1': .* in no name .*; did you mean 'conv1'"
    with pytest.raises(ValueError, match=message):
        tq.prepare(network(), [tq.rule(".*"), tq.rule("conv_1", act=tq.QSpec(bits=4))])
    with pytest.raises(ValueError, match=r"pattern 'conv\(' is not a regular expression"):
        tq.rule("conv(")


def test_rules_may_name_what_is_folded_away():
    """A location, and a tensor that a convolution takes in."""
    b = Builder()
    y = b.input("x", DType.FP32, (1, 2))
    half = b.op("MUL", y, b.const([[0.5]], DType.FP32), b.const([0], DType.INT8), name="half")
    same = b.op("IDENTITY", half, name="same", location="net/last")
    for pattern in ("half", "net/last"):
        tq.prepare(b.graph([same]), [tq.rule(pattern, act=tq.QSpec(bits=4))])


def test_a_graph_of_integers_is_for_lift(model, params):
    with pytest.raises(ValueError, match=r"graph 'net' .*of integers already; quant.lift"):
        tq.prepare(model.freeze(params))


# Types.


def test_inputs_of_other_kinds(model, params):
    """Wrong examples are named, and never reach JAX."""
    integers = np.zeros((1, 2, 2, 3), np.int8)
    with pytest.raises(TypeError, match="input 'image' has type int8, expected floats"):
        tq.calibrate(model, [integers])
    with pytest.raises(TypeError, match="input 'image' has type int8, expected floats"):
        model.apply(params, integers, mode="float")
    (whole,) = jax.jit(model.apply)(params, integers)  # of integers, as they are
    assert whole.shape == (1, 2, 2, 4)
    with pytest.raises(ValueError, match=r"'image' has integers in \[0, 200\], expected INT8"):
        model.apply(params, np.full((1, 2, 2, 3), 200, np.uint8))
    for run in (
        lambda x: model.apply(params, x),
        lambda x: tq.calibrate(model, [x]),
        lambda x: tq.report(model, params, x),
    ):
        for wrong, kind in ((None, "None"), ("a.npy", "'a.npy'"), ({}, "{}")):
            with pytest.raises(TypeError, match=f"input 'image' is {kind} .*, expected an array"):
                run(wrong)
    with pytest.raises(TypeError, match=r"2 inputs, expected 1 \(image\)"):
        model.apply(params, EXAMPLES, EXAMPLES)


def test_parameters_of_other_kinds(model, params):
    lifted, own = tq.lift(model.freeze(params))
    calls = (
        lambda m, p: m.apply(p, EXAMPLES),
        lambda m, p: m.freeze(p),
        lambda m, p: tq.check_bit_exact(m, p, EXAMPLES),
    )
    more = (
        lambda m, p: tq.report(m, p, EXAMPLES),
        lambda m, p: tq.sensitivity(m, p, EXAMPLES),
        lambda m, p: tq.bias_correct(m, p, [EXAMPLES]),
        lambda m, p: tq.learned_rounding(m, p, [EXAMPLES]),
        lambda m, p: tq.reconstruct(m, p, [EXAMPLES]),
        lambda m, p: tq.gptq(m, p, [EXAMPLES]),
        lambda m, p: tq.mixed_precision(m, p, EXAMPLES, budget=1e9),
        lambda m, p: tq.with_bits(m, p, {"conv1": 4}),
    )
    for run in (*calls, *more):
        with pytest.raises(ValueError, match="params has nothing and no 'values', expected what"):
            run(model, {})
        with pytest.raises(TypeError, match="params is None \\(NoneType\\), expected a dictionary"):
            run(model, None)
        fewer = {**params, "qparams": {"image": params["qparams"]["image"]}}
        with pytest.raises(ValueError, match=r"params\['qparams'\] has no 'conv1.*another model"):
            run(model, fewer)
    for run in calls:
        with pytest.raises(ValueError, match=r"and no '(weights|bias|rescale)'"):
            run(lifted, params)
    for run in more[1:-1]:
        with pytest.raises(ValueError, match="float graph"):
            run(lifted, own)


def test_arguments_of_other_types(model, params):
    untyped: Any = tq
    graph = network()
    cases = (
        (lambda: untyped.prepare("m.tosa"), r"graph is .*\(str\), expected a Graph"),
        (
            lambda: untyped.prepare(graph, tq.rule(".*")),
            r"rules is .*\(Rule\), expected a list",
        ),
        (lambda: untyped.prepare(graph, [".*"]), r"an element of rules is .*\(str\)"),
        (lambda: untyped.rule(3), r"pattern is .*\(int\), expected a regular expression"),
        (lambda: untyped.rule(".*", act="i8"), r"act is .*\(str\), expected a QSpec"),
        (lambda: untyped.lift(None), "graph is None \\(NoneType\\), expected a Graph"),
        (
            lambda: untyped.calibrate(graph, [EXAMPLES]),
            r"model is .*\(Graph\), expected a QModel",
        ),
        (
            lambda: untyped.calibrate(model, None),
            "batches is None \\(NoneType\\), expected an iterable",
        ),
        (
            lambda: untyped.calibrate(model, "a.npy"),
            r"batches is .*\(str\), expected an iterable",
        ),
        (lambda: untyped.calibrate(model, [EXAMPLES], values=[1]), r"values is .*\(list\)"),
        (
            lambda: untyped.with_bits(model, params, 4),
            r"bits is .*\(int\), expected a dictionary",
        ),
        (lambda: untyped.report(graph, params, EXAMPLES), r"model is .*\(Graph\)"),
        (lambda: untyped.sensitivity(model, params, EXAMPLES, names="w"), r"names is .*\(str\)"),
    )
    for run, message in cases:
        with pytest.raises(TypeError, match=message):
            run()
    with pytest.raises(ValueError, match=r"names has 'conv', .*did you mean 'conv1'"):
        tq.sensitivity(model, params, EXAMPLES, names=["conv"])
    with pytest.raises(ValueError, match=r"against \['oracle'\]"):
        tq.check_bit_exact(model, params, EXAMPLES, against="oracle")


# Progress.


class _Bar:
    def __init__(self, total: int | None, unit: str) -> None:
        self.total, self.unit, self.count, self.is_closed = total, unit, 0, False
        self.texts: list[str] = []

    def set_description(self, text: str) -> None:
        self.texts.append(text)

    def update(self, count: int) -> None:
        self.count += count

    def close(self) -> None:
        self.is_closed = True


def test_progress(model, params, monkeypatch):
    made: list[_Bar] = []

    def tqdm(*, total: int | None, unit: str, **options: Any) -> _Bar:
        made.append(_Bar(total, unit))
        return made[-1]

    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=tqdm))
    few = EXAMPLES[:1]
    tq.calibrate(model, [few, few], progress=True)
    tq.calibrate(model, iter([few]), progress=True)
    tq.report(model, params, few, progress=True)
    tq.check_bit_exact(model, params, few, against="frozen", progress=True)
    found = [(bar.total, bar.count, bar.unit) for bar in made]
    assert found == [(2, 2, "batch"), (None, 1, "batch"), (4, 4, "program"), (2, 2, "program")]
    assert all(bar.is_closed and "compiling" in bar.texts[0] for bar in made)
    tq.calibrate(model, [few])
    assert len(made) == 4
