"""prepare and apply: rules, options, batches, transformations of JAX, and refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    BOTH,
    Trial,
    assert_constant,
    assert_looked_up,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    times,
    uniform,
    zeros,
)

import tosajax
from tosajax import Builder, DType, Graph, Tensor, UnsupportedError, grad
from tosajax.quant import (
    QModel,
    QSpec,
    calibrate,
    check_bit_exact,
    min_max,
    percentile,
    prepare,
    rule,
)
from tosajax.spec import NanMode, RoundingMode

IMAGE = (1, 4, 4, 2)
CHANNELS = 3


def convolution(b: Builder, x: Tensor, name: str, seed: int, **more: Any) -> Tensor:
    """A CONV2D of 1x1 with a bias."""
    assert x.shape is not None
    return b.op(
        "CONV2D",
        x,
        constant(b, uniform(seed, CHANNELS, 1, 1, x.shape[-1]), f"{name}/weight"),
        constant(b, np.linspace(-0.5, 1, CHANNELS), f"{name}/bias"),
        *zeros(b),
        pad=(0, 0, 0, 0),
        stride=(1, 1),
        dilation=(1, 1),
        acc_type=DType.FP32,
        name=name,
        **more,
    )


def network() -> Graph:
    """Two convolutions, the first with a ReLU, and a sigmoid of the mean over the image."""
    b = Builder()
    x = floats(b, "image", *IMAGE)
    x = clamp(b, convolution(b, x, "first", 1, location="model/block1"), 0, np.inf, "relu")
    x = convolution(b, x, "second", 2, location="model/block2")
    for axis in (1, 2):
        x = b.op("REDUCE_SUM", x, axis=axis)
    x = times(b, x, constant(b, [[[[1 / 16]]]]), "mean")
    x = b.op("RESHAPE", x, b.const_shape((1, CHANNELS)), name="scores")
    return legal(b.graph([x, b.op("SIGMOID", x, name="shares")]))


BATCHES = [uniform(seed, 6, *IMAGE) for seed in range(2)]


@pytest.fixture(scope="module")
def model() -> QModel:
    return prepare(network())


@pytest.fixture(scope="module")
def params(model) -> Any:
    return calibrate(model, BATCHES)


@pytest.fixture(scope="module")
def apply(model) -> Callable[..., Any]:
    return jax.jit(model.apply)


def changed(params: Any, name: str, **fields: Any) -> Any:
    """The parameters with another scale, zero point or bits of one tensor."""
    qparams = {**params["qparams"], name: dataclasses.replace(params["qparams"][name], **fields)}
    return {**params, "qparams": qparams}


# Rules.


def dtypes(*rules: Any) -> dict[str, tuple[DType, int | None]]:
    model = prepare(network(), rules)
    found = {}
    for name, spec in model.specs.items():
        assert isinstance(spec.dtype, DType)
        assert model.graph.tensors[name].dtype is spec.dtype
        found[name] = spec.dtype, spec.bits
    return found


I8, I4 = (DType.INT8, 8), (DType.INT4, 4)
I16 = (DType.INT16, 16)
WIDE, NARROW = QSpec("i16"), QSpec("i4", per_channel=True)
MIXED = (rule("relu", act=WIDE), rule("first", weight=NARROW))


def test_without_rules_all_is_int8():
    model = prepare(network())
    assert set(dtypes().values()) == {I8}
    assert model.specs["image"] == model.specs["shares"] == QSpec(symmetric=False)
    assert model.specs["relu"] == QSpec(symmetric=False, observer=percentile(99.995))
    assert model.specs["first/weight"] == QSpec(per_channel=True, narrow_range=True)
    assert list(model.weights) == ["first/weight", "second/weight"]
    assert list(model.activations) == ["image", "relu", "second", "mean", "shares"]


def test_what_outputs_are_moved_from_is_not_clipped():
    """The boxes of each cell, whose channels become rows."""
    w = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)

    def boxes(x: jax.Array) -> jax.Array:
        inner = x @ w
        heads = [(each @ w).reshape(1, -1, 2) for each in (inner, jnp.tanh(inner))]
        return jnp.concatenate(heads, 1).transpose(0, 2, 1)

    model = prepare(boxes, example_args=[np.zeros((1, 3, 4), np.float32)])
    clipped = [n for n in model.activations if model.specs[n].observer == percentile(99.995)]
    assert clipped == ["dot_general_1", "tanh"]
    assert set(model.activations) == {
        "x",
        *clipped,
        "dot_general_3",
        "dot_general_6",
        "concatenate",
    }


@pytest.mark.parametrize(
    ("spec", "room"),
    [
        (QSpec("i16"), 1.5),
        (QSpec("i16", observer=min_max()), 1.5),
        (QSpec("i16", observer=min_max(margin=0)), 1),
        (QSpec("i16", observer=percentile(100)), 1),
        (QSpec("i16", bits=12), 1),
        (QSpec("i8"), 1),
    ],
    ids=["INT16", "the default", "without", "percentile", "12 bits", "INT8"],
)
def test_activations_of_16_bits_have_room(spec: QSpec, room: float):
    """For values beyond those of the examples."""
    w = np.eye(4, dtype=np.float32)
    x = np.array([[1, -3, 2, 0.5]], np.float32)
    model = prepare(lambda x: x @ w, [rule(".*", act=spec)], example_args=[x])
    own = calibrate(model, [x])["qparams"]["dot_general_1"]
    assert own.bits is not None
    largest = own.scale * (2.0 ** (own.bits - 1) - 1)
    np.testing.assert_allclose(largest, 3 * room, rtol=2.0**-11)


def test_what_is_widened_has_room():
    """An operand of a sum, INT16 without a rule."""
    w = np.eye(4, dtype=np.float32)
    x = np.array([[1, -3, 2, 0.5]], np.float32)
    model = prepare(lambda x: ((x @ w + (2 * x) @ w) * (3 * x @ w)) @ w, example_args=[x])
    params = calibrate(model, [x])
    wide = [n for n in model.activations if model.specs[n].dtype is DType.INT16]
    assert wide
    tensors = model.with_outputs(*wide).apply(params, x, mode="float")
    for name, values in zip(wide, tensors, strict=True):
        largest = params["qparams"][name].scale * 32767
        np.testing.assert_allclose(largest, 1.5 * np.abs(values).max(), rtol=1e-5)


def test_rules_search_the_names_of_tensors():
    found = dtypes(rule("^second$", weight=NARROW, act=WIDE), rule("imag", act=WIDE))
    assert found == {
        "image": I16,
        "first/weight": I8,
        "relu": I8,
        "second/weight": I4,
        "second": I16,
        "mean": I8,
        "shares": I8,
    }


def test_weights_have_names_of_their_own():
    found = dtypes(rule("second/weight", weight=NARROW, act=WIDE))
    assert (found["second/weight"], found["second"]) == (I4, I8)


def test_rules_search_locations():
    """Rules for a node hold for the output of its CLAMP."""
    found = dtypes(rule(r"block\d$", weight=NARROW), rule("model/block2", act=WIDE))
    assert found["first/weight"] == found["second/weight"] == I4
    assert (found["relu"], found["second"]) == (I8, I16)
    assert dtypes(rule("block1", act=WIDE))["relu"] == I16


@pytest.mark.parametrize("pattern", ["^relu$", "^first$"])
def test_a_fused_clamp_goes_by_both_names(pattern):
    assert dtypes(rule(pattern, act=WIDE))["relu"] == I16


def test_the_last_rule_wins():
    everything, relu = rule(".*", act=WIDE), rule("relu|first", act=QSpec(bits=5))
    found = dtypes(everything, relu)
    assert (found["relu"], found["second"]) == ((DType.INT8, 5), I16)
    assert dtypes(relu, everything)["relu"] == I16


def test_a_rule_that_says_nothing_of_weights_leaves_them():
    found = dtypes(rule(".*", weight=NARROW), rule("first", act=QSpec(bits=5)))
    assert found["first/weight"] == I4


def test_types_may_differ_from_layer_to_layer():
    """INT8 by INT4 to INT16, that by INT8 to INT8, in one graph."""
    trial = Trial(network(), BATCHES[0][0], rules=MIXED, against=BOTH)
    assert trial.report, str(trial.report)
    names = ("image", "first/weight", "first/acc", "relu", "second/weight", "second/acc", "second")
    assert [trial.dtype(name) for name in names] == [
        DType.INT8,
        DType.INT4,
        DType.INT32,
        DType.INT16,
        DType.INT8,
        DType.INT48,
        DType.INT8,
    ]


# Options.


def test_double_rounding_is_that_of_arm():
    """INT48 is rounded once."""
    trial = Trial(
        network(),
        BATCHES[0][0],
        rules=MIXED,
        rounding_mode=RoundingMode.DOUBLE_ROUND,
        against=BOTH,
    )
    assert trial.report, str(trial.report)
    modes = {
        trial.dtype(n.inputs[0]): n.attributes["rounding_mode"]
        for n in trial.frozen.nodes
        if n.op == "RESCALE"
    }
    assert modes == {
        DType.INT8: RoundingMode.DOUBLE_ROUND,
        DType.INT32: RoundingMode.DOUBLE_ROUND,
        DType.INT48: RoundingMode.SINGLE_ROUND,
    }


def weight_gradient(params: Any, rules: Any = (), **options: Any) -> np.ndarray:
    """The gradient of the sum of the first output by the first weights."""
    model = prepare(network(), rules, **options)

    def loss(values: Any) -> jax.Array:
        return model.apply({**params, "values": values}, BATCHES[0][0])[0].sum()

    return np.asarray(jax.jit(jax.grad(loss))(params["values"])["first/weight"])


def test_estimators_reach_the_kernels(params):
    """`grad.zero` of RESCALE stops all gradients before it."""
    assert weight_gradient(params).any()
    assert not weight_gradient(params, estimator=grad.zero).any()
    assert not weight_gradient(params, overrides={"RESCALE": grad.zero}).any()
    assert weight_gradient(params, estimator=grad.zero, overrides={"RESCALE": grad.ste}).any()


def test_a_specification_has_an_estimator_of_its_own(params):
    weight = QSpec(per_channel=True, narrow_range=True, estimator=grad.zero)
    assert not weight_gradient(params, [rule("first", weight=weight)]).any()
    assert weight_gradient(params, [rule("second", weight=weight)]).any()


def test_an_estimator_of_no_operator_is_refused(params):
    with pytest.raises(ValueError, match="no operators CONV"):
        weight_gradient(params, overrides={"CONV": grad.ste})


# Graphs.


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
def test_short_floats(dtype):
    """Integers come of the FP32 graph of the same constants."""
    b = Builder()
    x = b.input("x", dtype, (2, 4))
    fixed = b.const(np.array([[0.3, -1.7, 2, 5]], np.float32), dtype, name="fixed")
    y = b.op("TANH", b.op("ADD", x, fixed, name="total"), name="y")
    trial = Trial(legal(b.graph([y])), uniform(0, 2, 4))
    assert trial.report, str(trial.report)
    assert {t.dtype for t in trial.model.float_graph.tensors.values()} == {DType.FP32}
    assert_rounded(trial, "total", trial["x"] + trial["fixed"], extra=2.0**-19)
    assert_looked_up(trial, "y", "total", np.tanh)
    assert_constant(trial, "fixed")
    assert trial.exact("fixed")[0, 1] == float(np.asarray(-1.7, dtype.storage))


def sum_graph(*outputs: str) -> Graph:
    """Of inputs "x" and "y", and of the readers of their sum."""
    b = Builder()
    found = {"x": floats(b, "x", 2, 3), "y": floats(b, "y", 2, 3)}
    found["total"] = b.op("ADD", found["x"], found["y"], name="total")
    found["copy"] = b.op("IDENTITY", found["x"], name="copy")
    found["copy of total"] = b.op("IDENTITY", found["total"], name="copy of total")
    found["moved"] = b.op("REVERSE", found["total"], axis=0, name="moved")
    found["fixed"] = constant(b, [[1.0, -2.0]], "fixed")
    return b.graph([found[name] for name in outputs])


@pytest.mark.parametrize(
    "outputs",
    [
        ("x",),
        ("total", "total"),
        ("total", "x", "moved", "copy", "total", "copy of total", "fixed"),
    ],
)
def test_outputs_of_any_kind(outputs):
    """Inputs, constants, copies of both, tensors with readers, and one output listed twice."""
    graph = legal(sum_graph(*outputs))
    examples = uniform(0, 2, 3), uniform(1, 2, 3)
    model = prepare(graph)
    assert model.graph.outputs == outputs
    params = calibrate(model, [examples])
    found = jax.jit(model.apply)(params, *examples)
    x, y = examples
    exact = {
        "x": x,
        "copy": x,
        "total": x + y,
        "copy of total": x + y,
        "moved": (x + y)[::-1],
        "fixed": np.array([[1, -2]], np.float32),
    }
    for name, value in zip(outputs, found, strict=True):
        step = float(params["qparams"][model.owners[name]].scale.reshape(()))
        # Two inputs are rounded, and their result.
        assert np.abs(np.asarray(value) - exact[name]).max() <= 1.6 * step
    assert check_bit_exact(model, params, *examples, against=("frozen",))


def test_what_no_float_is_computed_from_stays():
    b = Builder()
    x, index = floats(b, "x", 2, 3), b.input("index", DType.INT32, (2, 3))
    doubled = b.op("ADD", index, index, name="doubled")
    given = b.op("LOGICAL_NOT", b.input("given", DType.BOOL, (2, 3)), name="not given")
    model = prepare(legal(b.graph([b.op("ABS", x, name="y"), doubled, given])))
    assert model.owners.keys() == {"x", "y"}
    numbers, bits = np.arange(6, dtype=np.int32).reshape(2, 3), np.eye(2, 3, dtype=bool)
    params = calibrate(model, [(uniform(0, 2, 3), numbers, bits)])
    _, twice, negated = jax.jit(model.apply)(params, uniform(0, 2, 3), numbers, bits)
    np.testing.assert_array_equal(twice, 2.0 * numbers)
    np.testing.assert_array_equal(negated, ~bits)
    assert negated.dtype == bool


# Operators without an integer form.


REFUSED = {
    "REDUCE_PRODUCT 'y'": lambda b: b.op(
        "REDUCE_PRODUCT", floats(b, "x", 2, 4), axis=1, name="y"
    ),
    "POW 'y'": lambda b: b.op("POW", floats(b, "x", 2, 4), floats(b, "z", 2, 4), name="y"),
    "FFT2D 'y'": lambda b: b.ops(
        "FFT2D",
        floats(b, "x", 1, 2, 4),
        floats(b, "z", 1, 2, 4),
        names=["y", "imaginary"],
        inverse=False,
        local_bound=False,
    )[0],
    "RFFT2D 'y'": lambda b: b.ops(
        "RFFT2D", floats(b, "x", 1, 2, 4), names=["y", "imaginary"], local_bound=False
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("node", REFUSED)
def test_operators_without_an_integer_form_are_refused(node):
    b = Builder()
    graph = b.graph([REFUSED[node](b)])
    with pytest.raises(UnsupportedError, match=node):
        prepare(legal(graph))


def test_open_dimensions_are_refused():
    b = Builder()
    graph = b.graph([b.op("ABS", b.input("x", DType.FP32, (4, -1)))])
    with pytest.raises(UnsupportedError, match="open dimensions"):
        prepare(graph)


def test_illegal_graphs_are_refused():
    b = Builder()
    x = floats(b, "x", 2, 3)
    graph = b.graph([b.op("REVERSE", x, axis=7, shape=(2, 3))])
    with pytest.raises(tosajax.TosaError, match="axis"):
        prepare(graph)


# apply.


def test_real_values_are_those_of_the_integers_that_ship(model, params, apply):
    frozen = model.freeze(params)
    given = model.input_integers(params, BATCHES[0][0])
    fn, constants = tosajax.lower(frozen)
    integers = jax.jit(fn)(constants, given[0].q)
    found = apply(params, BATCHES[0][0])
    for name, value, real in zip(frozen.outputs, integers, found, strict=True):
        qparams = params["qparams"][model.owners[name]]
        shifted = np.asarray(value, np.float64) - round(float(qparams.zero_point))
        assert real.dtype == np.float32
        np.testing.assert_allclose(real, shifted * float(qparams.scale), rtol=2.0**-23)


def test_batches_of_every_form(params, apply):
    """As the graph has them, one axis more in front, or more along a first axis of 1."""
    images = BATCHES[0]
    alone = [apply(params, image) for image in images]
    in_front = apply(params, images)
    along = apply(params, images[:, 0])
    for i, kind in enumerate(zip(*alone, strict=True)):
        assert kind[0].shape == (1, CHANNELS)
        np.testing.assert_array_equal(in_front[i], np.stack(kind))
        np.testing.assert_array_equal(along[i], np.concatenate(kind))


def test_a_batch_of_one(params, apply):
    image = BATCHES[0][:1]
    assert apply(params, image)[0].shape == (1, 1, CHANNELS)
    np.testing.assert_array_equal(apply(params, image)[0][0], apply(params, image[0])[0])


@pytest.fixture(scope="module")
def pair() -> tuple[QModel, Any]:
    """A model whose second input has no axis for a batch, and whose outputs have one or none."""
    b = Builder()
    x, y = floats(b, "x", 1, 3), floats(b, "y", 2, 3)
    model = prepare(b.graph([b.op("SUB", x, y, name="wide"), b.op("ABS", x, name="narrow")]))
    return model, calibrate(model, [(uniform(0, 1, 3), uniform(1, 2, 3))])


def test_batches_of_several_inputs(pair):
    model, params = pair
    run = jax.jit(model.apply)
    x, y = uniform(2, 5, 1, 3), uniform(3, 5, 2, 3)
    alone = [run(params, *each) for each in zip(x, y, strict=True)]
    wide, narrow = (np.stack(each) for each in zip(*alone, strict=True))
    for given in (x, x[:, 0]):
        found = run(params, given, y)
        np.testing.assert_array_equal(found[0], wide)
        assert found[1].shape == ((5, 1, 3) if given is x else (5, 3))
        np.testing.assert_array_equal(found[1].reshape(narrow.shape), narrow)


WRONG = {
    "rank": [(4, 4, 2)],
    "size": [(1, 4, 4, 3)],
    "sizes of a batch": [(5, 4, 3, 2)],
    "two axes more": [(2, 2, 1, 4, 4, 2)],
}


@pytest.mark.parametrize("shapes", WRONG.values(), ids=WRONG)
def test_other_shapes_are_refused(apply, params, shapes):
    with pytest.raises(ValueError, match=r"inputs of shapes .*, expected image INT8\[1,4,4,2\]"):
        apply(params, *(np.zeros(s, np.float32) for s in shapes))


@pytest.mark.parametrize("shapes", [[(5, 3), (4, 2, 3)], [(5, 3), (2, 3)], [(1, 3), (4, 3)]])
def test_batches_of_different_sizes_are_refused(pair, shapes):
    model, params = pair
    with pytest.raises(ValueError, match=r"inputs of shapes .*, expected x INT8\[1,3\], y"):
        jax.jit(model.apply)(params, *(np.zeros(s, np.float32) for s in shapes))


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_inputs_is_refused(apply, params, count):
    with pytest.raises(TypeError, match=f"{count} inputs, expected 1"):
        apply(params, *BATCHES[0][:count])


def test_integers_of_a_quantized_input_are_taken_as_they_are(model, params, apply):
    (integers,) = model.input_integers(params, BATCHES[1])
    assert integers.q.dtype == np.int8
    expected = apply(params, BATCHES[1])
    for given in (np.asarray(integers.q), np.asarray(integers.q, np.int32), integers):
        for found, want in zip(apply(params, given), expected, strict=True):
            np.testing.assert_array_equal(found, want)


def test_compiled_is_eager():
    b = Builder()
    x = floats(b, "x", 2, 3)
    model = prepare(b.graph([b.op("SIGMOID", times(b, x, constant(b, [[3]])), name="y")]))
    params = calibrate(model, [uniform(0, 2, 3)])
    (eager,) = model.apply(params, uniform(1, 2, 3))
    (compiled,) = jax.jit(model.apply)(params, uniform(1, 2, 3))
    np.testing.assert_array_equal(eager, compiled)


def test_other_modes(model, params):
    """Floats are those of the graph; rounded floats are at least as near to integers."""
    images = BATCHES[0][:, 0]
    floats, rounded, exact = (
        np.asarray(jax.jit(model.apply, static_argnames="mode")(params, images, mode=mode)[0])
        for mode in ("float", "fake_quant", "exact")
    )
    values = {n: np.asarray(v, np.float64) for n, v in params["values"].items()}
    hidden = images @ values["first/weight"].reshape(CHANNELS, -1).T + values["first/bias"]
    wanted = np.maximum(hidden, 0) @ values["second/weight"].reshape(CHANNELS, -1).T
    wanted = (wanted + values["second/bias"]).mean(axis=(1, 2))
    np.testing.assert_allclose(floats, wanted, rtol=1e-5, atol=1e-5)
    step = float(params["qparams"]["mean"].scale)
    assert np.abs(rounded - exact).max() <= 1.01 * step
    assert np.abs(exact - floats).max() <= 4 * step
    wrong: Any = "fast"
    with pytest.raises(ValueError, match="mode 'fast', expected 'exact', 'fake_quant' or 'float'"):
        model.apply(params, images, mode=wrong)


# Transformations of JAX.


def test_a_sweep_is_a_loop(model, params):
    """One program sweeps bits and scales."""

    def run(bits: jax.Array, factor: jax.Array) -> Any:
        swept = params
        for name in ("relu", "first/weight"):
            scale = params["qparams"][name].scale
            swept = changed(swept, name, bits=bits, scale=scale * factor)
        return model.apply(swept, BATCHES[0][0])

    bits, factors = np.array([8, 5, 3, 8], np.float32), np.array([1, 8, 32, 0.5], np.float32)
    together = jax.jit(jax.vmap(run))(bits, factors)
    one = jax.jit(run)
    alone = [one(*each) for each in zip(bits, factors, strict=True)]
    for found, want in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.stack(want))
    assert len({np.asarray(found[0]).tobytes() for found in alone}) == 4


@pytest.fixture(scope="module")
def gradients(model, params) -> Any:
    """Gradients of shares by all parameters, for images beyond the calibrated range."""

    def loss(params: Any) -> jax.Array:
        _, shares = model.apply(params, 1.5 * BATCHES[1])
        return (shares * jnp.arange(1.0, CHANNELS + 1)).sum()

    return jax.jit(jax.grad(loss))(params)


def test_gradients_are_finite(gradients):
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))


@pytest.mark.parametrize("name", ["first/weight", "first/bias", "second/weight", "second/bias"])
def test_gradients_of_constants(gradients, name):
    """Every channel has one."""
    gradient = np.asarray(gradients["values"][name])
    assert gradient.reshape(CHANNELS, -1).any(axis=1).all()


@pytest.mark.parametrize(
    "name", ["image", "relu", "second", "shares", "first/weight", "second/weight"]
)
def test_gradients_of_scales(gradients, name):
    assert np.asarray(gradients["qparams"][name].scale).all()


@pytest.mark.parametrize("name", ["image", "relu", "second"])
def test_gradients_of_zero_points(gradients, name):
    """Saturated values have one: the zero point of others cancels."""
    assert np.asarray(gradients["qparams"][name].zero_point).all()


def test_what_a_table_was_sampled_in_does_not_train(gradients):
    """Bits that are not learned do not train either."""
    assert not np.asarray(gradients["qparams"]["mean"].scale).any()
    assert not any(np.asarray(qparams.bits).any() for qparams in gradients["qparams"].values())


def test_it_does_not_train_by_an_output_that_has_its_scale_either(model, params):
    gradient = jax.jit(jax.grad(lambda p: model.apply(p, BATCHES[1])[0].sum()))(params)
    assert not np.asarray(gradient["qparams"]["mean"].scale).any()


@pytest.mark.parametrize("mode", ["exact", "float"])
def test_integers_beside_floats(mode):
    """Integers that are given and integers that are computed go together in every mode."""
    b = Builder()
    scores = b.op("ADD", x := floats(b, "x", 1, 5), x, name="scores")
    best = b.op("ARGMAX", scores, axis=1, nan_mode=NanMode.PROPAGATE, name="best")
    moved = b.op("ADD", best, b.input("offset", DType.INT32, (1,)), name="moved")
    fixed = b.op("ADD", moved, b.const([100], DType.INT32), name="fixed")
    model = prepare(b.graph([scores, fixed]))
    rows = np.array([[0, 3, 1, -2, 2]], np.float32), np.array([7], np.int32)
    found = model.apply(calibrate(model, [rows]), *rows, mode=mode)
    assert np.asarray(found[1]).tolist() == [1 + 7 + 100]
    assert found[1].dtype == np.float32
