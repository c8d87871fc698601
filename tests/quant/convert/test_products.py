"""MATMUL: sums of int32 or int48, rescaled once."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    BOTH,
    SCALE16,
    SCALE32,
    VARIANTS,
    Trial,
    against,
    assert_constant,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    uniform,
    zeros,
)

from tosajax import Builder, DType, Graph, Tensor
from tosajax.quant import (
    QSpec,
    bias_correct,
    calibrate,
    check_bit_exact,
    percentile,
    prepare,
    rule,
)
from tosajax.quant.model.recipes import Bias
from tosajax.quant.qmodel import Mode

WEIGHT = uniform(5, 2, 5, 4, low=-1, high=2) * np.array([0.1, 1, 2, 0.5], np.float32)
LEFT = uniform(6, 2, 3, 5, low=-1, high=9)
EXAMPLES = uniform(0, 2, 3, 5), uniform(1, 2, 5, 4, low=-0.5, high=2)
KINDS = {
    **VARIANTS,
    "i8-per-tensor": (rule(".*", weight=QSpec()),),
    "i4": (rule(".*", weight=QSpec("i4", per_channel=True)),),
}
BIAS = uniform(7, 1, 1, 4, low=-2, high=1)
FULL = uniform(8, 2, 3, 4)
OPERANDS = {
    "computed": ("a", "b"),
    "relu": ("a", "b"),
    "weight": ("a", "w"),
    "left": ("l", "b"),
}  # fmt: skip


def graph() -> Graph:
    b = Builder()
    tensors = {
        "a": floats(b, "a", 2, 3, 5),
        "b": floats(b, "b", 2, 5, 4),
        "w": constant(b, WEIGHT, "w"),
        "l": constant(b, LEFT, "l"),
    }
    found = {}
    for name, (x, y) in OPERANDS.items():
        label = "before" if name == "relu" else name
        found[name] = b.op("MATMUL", tensors[x], tensors[y], *zeros(b), name=label)
    found["relu"] = clamp(b, found["relu"], 0, np.inf, "relu")

    def product(name: str, y: str) -> Tensor:
        return b.op("MATMUL", tensors["a"], tensors[y], *zeros(b), name=f"{name}/product")

    found["row"] = b.op("ADD", product("row", "w"), constant(b, BIAS, "bias"), name="row")
    flat = b.op("RESHAPE", product("flat", "w"), b.const_shape([6, 4]), name="flat/reshaped")
    found["flat"] = b.op("ADD", constant(b, BIAS[0], "flat_bias"), flat, name="flat")
    one = b.op("ADD", product("one", "w"), constant(b, [[[1.5]]], "one_bias"), name="one/sum")
    found["one"] = clamp(b, one, 0, np.inf, "one")
    found["full"] = b.op("ADD", product("full", "b"), constant(b, FULL, "full_bias"), name="full")
    return legal(b.graph(list(found.values())))


@pytest.fixture(scope="module", params=["i8", "i8-per-tensor", "i4", "i16"])
def trial(request) -> Trial:
    return Trial(graph(), *EXAMPLES, rules=KINDS[request.param], against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("name", OPERANDS)
def test_values(trial, name):
    x, y = OPERANDS[name]
    expected = np.einsum("nhc,ncw->nhw", trial[x], trial[y])
    expected = np.maximum(expected, 0) if name == "relu" else expected
    relative = SCALE16 if trial.dtype("a") is DType.INT16 else SCALE32
    assert_rounded(trial, name, expected, relative=relative)


def test_a_constant_that_is_added_is_a_bias(trial):
    """Its sum with a product is rounded once; but of INT16, as TOSA adds no INT48."""
    if trial.dtype("a") is DType.INT16:
        assert "row/product" in trial.model.specs
        return
    product = np.einsum("nhc,ncw->nhw", trial["a"], trial["w"])
    unit = trial.step("a") * trial.step("w")
    expected = {
        "row": product + BIAS,
        "flat": (product + BIAS).reshape(6, 4),
        "one": np.maximum(product + 1.5, 0),
        "full": trial["a"] @ trial["b"] + FULL,
    }
    for name, values in expected.items():
        own = trial.step("a") * trial.step("b") if name == "full" else unit
        extra = 0.5 * own.reshape(own.shape[1 if name == "flat" else 0 :])
        assert_rounded(trial, name, values, extra=extra + SCALE32 * np.abs(values))
        nodes = {n.outputs[0]: n for n in trial.model.graph.nodes}
        assert nodes[f"{name}/acc" if name != "one" else "one/sum/acc"].op == "ADD"
    between = {"row/product", "flat/product", "flat/reshaped", "one/product", "one/sum"}
    assert between.isdisjoint(trial.model.owners)
    assert {"bias", "flat_bias", "one_bias", "full_bias"}.isdisjoint(trial.model.weights)


def test_biases_are_corrected():
    """Biases of channels, of one value and of all elements keep their shapes."""
    model = prepare(graph(), [rule(".*", weight=QSpec(bits=3, per_channel=True))])
    batches = [tuple(uniform(seed, *x.shape) for x in EXAMPLES) for seed in range(4)]
    params = calibrate(model, batches)
    corrected = bias_correct(model, params, batches)

    # The axes of the batches and of the output that have one bias.
    cases = {"flat": (0, 1), "full": (0,), "row": (0, 1, 2)}
    run = jax.jit(model.with_outputs(*cases).apply, static_argnames="mode")

    def outputs(params: Any, mode: Mode = "exact") -> dict[str, np.ndarray]:
        found = [run(params, *x, mode=mode) for x in batches]
        return dict(zip(cases, map(np.stack, zip(*found, strict=True)), strict=True))

    wanted = outputs(params, "float")

    def mean_error(name: str, params: Any, axes: tuple[int, ...]) -> np.ndarray:
        return np.abs(np.mean(outputs(params)[name] - wanted[name], axis=axes)).max()

    for name, axes in cases.items():
        bias = "bias" if name == "row" else f"{name}_bias"
        assert corrected["values"][bias].shape == params["values"][bias].shape
        assert mean_error(name, corrected, axes) < mean_error(name, params, axes)


def test_rules_name_a_sum_by_its_product():
    rules = [rule("^row/product$", act=QSpec(bits=5))]
    model = prepare(graph(), rules, wide_elementwise=False)
    assert model.specs["row"].bits == 5
    assert model.specs["flat"].bits == 8


def test_what_a_table_reads_is_not_added_to():
    """A sum that is one of several outcomes, and a product that a TABLE begins at."""
    b = Builder()
    x = floats(b, "x", 1, 3, 5)
    product = b.op("MATMUL", x, constant(b, WEIGHT[:1], "w"), *zeros(b), name="product")
    total = b.op("ADD", product, constant(b, [[[0.5]]]), name="total")
    graph = legal(b.graph([total, b.op("TANH", total, name="tanh")]))
    trial = Trial(graph, uniform(0, 1, 3, 5))
    assert trial.report, str(trial.report)
    assert_rounded(trial, "tanh", np.tanh(trial["product"] + 0.5), extra=trial.step("tanh"))


def test_a_large_bias_leaves_room_for_the_products():
    """Without room, int32 would overflow; -1e9 would be a mask.

    As saturated, it is right only where the output saturates as well.
    """
    b = Builder()
    mask = constant(b, [[[0.0, -9e8, -9.9e8]]], "mask")
    product = b.op("MATMUL", floats(b, "x", 1, 2, 5), floats(b, "y", 1, 5, 3), *zeros(b))
    masked = b.op("ADD", product, mask, name="masked")
    model = prepare(legal(b.graph([masked])), [rule("masked", act=QSpec(observer=percentile(60)))])
    examples = uniform(0, 1, 2, 5), uniform(1, 1, 5, 3)
    params = calibrate(model, [examples])
    with pytest.raises(ValueError, match="bias 'mask' of 'masked/bias', channel 1: it is beyond"):
        model.freeze(params)
    known = params["qparams"]["masked"]
    narrow = dataclasses.replace(known, scale=jnp.float32(0.05), zero_point=jnp.float32(0))
    params = {**params, "qparams": {**params["qparams"], "masked": narrow}}
    assert check_bit_exact(model, params, *examples)
    (bias,) = (r for r in model.plan.recipes.values() if isinstance(r, Bias))
    worst = np.abs(np.asarray(bias(params).q, np.int64)).max() + 5 * 255 * 255
    assert 2**31 - 2**16 < worst < 2**31


def test_constants(trial):
    assert_constant(trial, "w")
    assert_constant(trial, "l")
    per_channel = trial.model.specs["w"].per_channel
    assert trial.step("w").shape == ((1, 1, 4) if per_channel else (1, 1, 1))
    assert trial.step("l").size == 1


def test_weights_have_the_type_of_the_other_operand():
    """TOSA has no MATMUL of two types: the type changes, and the bits stay."""
    expected = {"i8": (DType.INT8, 8), "i4": (DType.INT8, 4), "i16": (DType.INT16, 8)}
    for kind, (dtype, bits) in expected.items():
        model = prepare(graph(), KINDS[kind])
        assert model.graph.tensors["w"].dtype is dtype
        assert model.specs["w"].bits == bits


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_int8_by_int16(name, symmetric):
    """The INT8 operand is widened, which is exact."""
    b = Builder()
    x, y = floats(b, "a", 2, 3, 5), floats(b, "b", 2, 5, 4)
    graph = b.graph([b.op("MATMUL", x, y, *zeros(b), name="y")])
    rules = [rule(".*", act=QSpec(symmetric=symmetric)), rule(f"^{name}$", act=QSpec("i16"))]
    inputs = uniform(0, 2, 3, 5) + 0.5, uniform(1, 2, 5, 4) - 0.3
    trial = Trial(graph, *inputs, rules=rules, against=BOTH)
    assert trial.report, str(trial.report)
    assert {trial.dtype("a"), trial.dtype("b")} == {DType.INT8, DType.INT16}
    assert_rounded(trial, "y", trial["a"] @ trial["b"])


def test_a_weight_beside_int16():
    b = Builder()
    w = constant(b, WEIGHT[:1], "w")
    graph = b.graph([b.op("MATMUL", floats(b, "x", 1, 3, 5), w, *zeros(b), name="y")])
    trial = Trial(graph, uniform(0, 1, 3, 5), rules=[rule("x", act=QSpec("i16"))], against=BOTH)
    assert trial.report, str(trial.report)


def test_a_square_of_matrices():
    b = Builder()
    x = floats(b, "x", 2, 3, 3)
    trial = Trial(legal(b.graph([b.op("MATMUL", x, x, *zeros(b), name="y")])), uniform(0, 2, 3, 3))
    assert trial.report, str(trial.report)
    assert_rounded(trial, "y", trial["x"] @ trial["x"])


def test_weights_that_are_gathered_too():
    """An embedding whose matrix also gives the scores."""
    b = Builder()
    w = constant(b, WEIGHT[:1], "w")
    scores = b.op("MATMUL", floats(b, "x", 1, 3, 5), w, *zeros(b), name="scores")
    rows = b.op("GATHER", w, b.input("i", DType.INT32, (1, 3)), name="rows")
    moved = b.op("ADD", rows, constant(b, [[[1.0]]], "one"), name="moved")
    indices = np.array([[0, 4, 2]], np.int32)
    trial = Trial(legal(b.graph([scores, moved])), uniform(0, 1, 3, 5), indices)
    assert trial.report, str(trial.report)
    assert_rounded(trial, "moved", trial["w"][:, [0, 4, 2]] + 1, extra=trial.step("w").max())
