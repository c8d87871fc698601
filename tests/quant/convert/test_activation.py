"""CLAMP by itself, and activation functions in a TABLE."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from oracle import elementwise_oracle
from quant.convert.helpers import (
    BOTH,
    VARIANTS,
    Trial,
    against,
    assert_looked_up,
    assert_rounded,
    clamp,
    floats,
    legal,
    operators,
    producer,
    uniform,
)

from tosajax import Builder, DType, Graph
from tosajax.quant import QSpec, calibrate, prepare, rule, with_bits

SHAPE = (4, 16)
INFINITY = float("inf")
BOUNDS = {
    "relu": (0.0, INFINITY),
    "relu6": (0.0, 0.6),
    "low": (-INFINITY, -0.3),
    "inside": (-1.7, 0.4),
    "wide": (-99.0, 99.0),
    "none": (-INFINITY, INFINITY),
    "point": (0.5, 0.5),
}  # fmt: skip


def clamps() -> Graph:
    """CLAMPs of a graph input, each with the scale of its input."""
    b = Builder()
    x = floats(b, "x", *SHAPE)
    return legal(b.graph([clamp(b, x, *ends, name) for name, ends in BOUNDS.items()]))


@pytest.fixture(scope="module", params=VARIANTS)
def clamped(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(clamps(), uniform(0, *SHAPE), rules=rules, against=against(request.param))


def test_clamps_ship_as_they_train(clamped):
    assert clamped.report, str(clamped.report)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_clamp_moves_what_is_between_its_bounds(clamped, name):
    """Its bounds are rounded to integers of its input."""
    low, high = BOUNDS[name]
    x = clamped["x"]
    assert_rounded(clamped, name, np.clip(x, low, high))
    inside = (x > low + clamped.step("x")) & (x < high - clamped.step("x"))
    np.testing.assert_array_equal(clamped[name][inside], x[inside])
    assert clamped.model.owners[name] == "x"


@pytest.mark.parametrize("reader", ["caller", "operator"])
def test_a_clamp_of_what_is_read_further_is_not_fused(reader):
    """Another node reads the input of the CLAMP; both have one scale."""
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    total = b.op("ADD", x, y, name="total")
    relu = clamp(b, total, 0, INFINITY, "relu")
    further = b.op("MUL", relu, x, b.const([0], DType.INT8), name="further")
    other = total if reader == "caller" else b.op("MUL", total, x, b.const([0], DType.INT8))
    trial = Trial(legal(b.graph([other, further])), uniform(0, *SHAPE), uniform(1, *SHAPE))
    assert trial.report, str(trial.report)
    assert (trial["total"] < 0).any()
    np.testing.assert_array_equal(trial["relu"], np.maximum(trial["total"], 0))
    assert trial.model.owners["relu"] == "total"
    assert producer(trial.frozen, "relu") == "CLAMP"


def test_two_clamps_are_fused_as_one():
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    product = b.op("MUL", x, y, b.const([0], DType.INT8), name="product")
    first = clamp(b, product, -1, INFINITY, "first")
    graph = b.graph([clamp(b, first, -INFINITY, 0.5, "second")])
    trial = Trial(legal(graph), uniform(0, *SHAPE), uniform(1, *SHAPE))
    assert trial.model.owners["second"] == "second"
    assert_rounded(trial, "second", np.clip(trial["x"] * trial["y"], -1, 0.5))


def test_a_clamp_of_one_that_is_read_further_has_its_scale():
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    product = b.op("MUL", x, y, b.const([0], DType.INT8), name="product")
    first = clamp(b, product, -1, INFINITY, "first")
    graph = b.graph([first, clamp(b, first, -INFINITY, 0.5, "second")])
    trial = Trial(legal(graph), uniform(0, *SHAPE), uniform(1, *SHAPE))
    assert trial.model.owners["second"] == trial.model.owners["first"] == "first"
    assert_rounded(trial, "first", np.maximum(trial["x"] * trial["y"], -1))
    assert_rounded(trial, "second", np.minimum(trial["first"], 0.5))


@pytest.mark.parametrize("op", ["SUB", "CONCAT"])
def test_clamps_that_do_nothing_go_one_after_another(op):
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    attributes: dict[str, Any] = {"axis": 0} if op == "CONCAT" else {}
    before = b.op(op, x, y, name="before", **attributes)
    first = clamp(b, before, -98, 99, "first")
    trial = Trial(
        legal(b.graph([clamp(b, first, -97, 97, "second")])),
        uniform(0, *SHAPE),
        uniform(1, *SHAPE),
    )
    assert trial.report, str(trial.report)
    assert "CLAMP" not in operators(trial.frozen)


FUNCTIONS = {
    "tanh": ("TANH", np.tanh),
    "sigmoid": ("SIGMOID", elementwise_oracle.sigmoid),
    "erf": ("ERF", elementwise_oracle.erf),
}
KINDS = {
    **{kind: VARIANTS[kind] for kind in ("i8", "i8-symmetric", "i8-of-4-bits", "i16")},
    "i16-to-i8": (rule("x", act=QSpec("i16")),),
    "i16-of-9-bits": (rule(".*", act=QSpec("i16", bits=9)),),
    "i16-of-2-bits-to-i8": (rule("x", act=QSpec("i16", bits=2)),),
}


@pytest.fixture(scope="module", params=KINDS)
def looked_up(request) -> Trial:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    outputs = [b.op(op, x, name=name) for name, (op, _) in FUNCTIONS.items()]
    outputs.append(clamp(b, outputs[0], 0, INFINITY, "tanh-relu"))
    graph = legal(b.graph(outputs))
    programs = BOTH if "bits" in request.param else against(request.param)
    return Trial(graph, uniform(0, *SHAPE), rules=KINDS[request.param], against=programs)


def test_tables_ship_as_they_train(looked_up):
    assert looked_up.report, str(looked_up.report)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activation_functions(looked_up, name):
    assert_looked_up(looked_up, name, "x", FUNCTIONS[name][1])


def test_a_clamp_is_a_part_of_the_function_before_it(looked_up):
    assert looked_up.model.plan.functions["tanh-relu"].source == "x"
    assert_looked_up(looked_up, "tanh-relu", "x", lambda x: np.maximum(np.tanh(x), 0))


def test_int8_takes_one_operator_and_int16_two_or_three():
    """Of INT16, an entry stands for 128 integers: fewer bits are spread over the type."""
    b = Builder()
    graph = b.graph([b.op("TANH", floats(b, "x", *SHAPE))])

    def frozen(spec: QSpec) -> list[str]:
        return operators(Trial(graph, uniform(0, *SHAPE), rules=[rule(".*", act=spec)]).frozen)

    assert frozen(QSpec("i8")) == ["TABLE"]
    assert frozen(QSpec("i16")) == ["TABLE", "RESCALE"]
    assert frozen(QSpec("i16", bits=15)) == ["RESCALE", "TABLE", "RESCALE", "CLAMP"]


def test_two_tables_of_one_input_share_its_spread():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    graph = b.graph([b.op("TANH", x, name="y"), b.op("SIGMOID", x, name="z")])
    trial = Trial(graph, uniform(0, *SHAPE), rules=VARIANTS["i16"])
    assert operators(trial.frozen).count("RESCALE") == 2
    assert not any("spread" in name for name in trial.frozen.tensors)
    fewer = with_bits(trial.model, trial.params, {"x": 12})
    assert operators(trial.model.freeze(fewer)).count("RESCALE") == 3


@pytest.mark.parametrize("bits", [16, 10, 3])
def test_a_spread_has_the_gradient_of_the_function(bits):
    b = Builder()
    graph = b.graph([b.op("TANH", floats(b, "x", *SHAPE), name="y")])
    model = prepare(graph, [rule("x", act=QSpec("i16", bits=bits)), rule("y", act=QSpec("i16"))])
    x = uniform(0, *SHAPE)
    params = calibrate(model, [x])
    values = model.with_outputs("x").apply(params, x)[0]
    slopes = jax.jit(jax.grad(lambda x: model.apply(params, x)[0].sum()))(x)
    step = float(params["qparams"]["x"].scale) * 2.0 ** (bits - 9)  # between two entries
    wanted = (np.tanh(values + step) - np.tanh(values - step)) / (2 * step)
    inside = np.abs(values) < np.abs(values).max()
    assert inside.sum() > SHAPE[0]
    np.testing.assert_allclose(slopes[inside], wanted[inside], atol=0.02 + step / 2)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [8, 5])
def test_a_table_from_int8_to_int16(symmetric, bits):
    """It has an entry for each integer, so that only the output is rounded."""
    b = Builder()
    graph = b.graph([b.op("TANH", floats(b, "x", *SHAPE), name="y")])
    rules = [rule("x", act=QSpec(bits=bits, symmetric=symmetric)), rule("y", act=QSpec("i16"))]
    trial = Trial(graph, uniform(0, *SHAPE) + 0.5, rules=rules, against=BOTH)
    assert trial.report, str(trial.report)
    assert trial.dtype("x") is DType.INT8
    assert trial.dtype("y") is DType.INT16
    # Half a step of the output, and half of an entry.
    atol = 1.1 * float(trial.step("y").max())
    wanted = np.clip(np.tanh(trial["x"]), *trial.ends("y"))
    np.testing.assert_allclose(trial["y"], wanted, atol=atol)
