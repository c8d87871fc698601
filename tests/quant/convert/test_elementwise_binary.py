"""Elementwise operators of two tensors: in int32, rescaled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_constant,
    assert_rounded,
    clamp,
    constant,
    floats,
    in_common,
    legal,
    operators,
    producer,
    times,
    uniform,
)

from tosajax import Builder, DType, Graph, Tensor, UnsupportedError
from tosajax.quant import QSpec, prepare, rule

SHAPE = (2, 3, 8)
CONSTANTS = {
    "scalar": np.full((1, 1, 1), 0.7),
    "negative": np.full((1, 1, 1), -0.6),
    "zero": np.zeros((1, 1, 1)),
    "channel": np.linspace(-2, 5, 8).reshape(1, 1, 8),
    "full": uniform(9, *SHAPE, low=-0.5, high=4),
}
EXAMPLES = uniform(0, *SHAPE), uniform(1, *SHAPE, low=-0.5, high=2), uniform(2, 2, 3, 1, high=9)
Operands = dict[str, Tensor]


class Case(NamedTuple):
    """An operator, its function, and the operands that are rounded before it."""

    node: Callable[[Builder, Operands, str], Tensor]
    expected: Callable[[Trial], np.ndarray]
    operands: tuple[str, ...] = ()


def in_one_unit(op: str, x: str, y: str) -> Case:
    def node(b: Builder, t: Operands, name: str) -> Tensor:
        return b.op(op, t[x], t[y], name=name)

    function = {"ADD": np.add, "SUB": np.subtract, "MAXIMUM": np.maximum, "MINIMUM": np.minimum}[op]
    return Case(node, lambda trial: function(trial[x], trial[y]), (x, y))


def product(x: str, y: str) -> Case:
    return Case(lambda b, t, name: times(b, t[x], t[y], name), lambda trial: trial[x] * trial[y])


def scaled(x: str, factor: float) -> Case:
    """A change of unit: the factor is rounded to float32 alone."""
    return Case(
        lambda b, t, name: times(b, t[x], constant(b, [[[factor]]]), name),
        lambda trial: trial[x] * factor,
    )


def clamped(case: Case, low: float, high: float) -> Case:
    return Case(
        lambda b, t, name: clamp(b, case.node(b, t, f"{name}/before"), low, high, name),
        lambda trial: np.clip(case.expected(trial), low, high),
        case.operands,
    )


CASES = {
    "add": in_one_unit("ADD", "x", "y"),
    "sub": in_one_unit("SUB", "x", "y"),
    "maximum": in_one_unit("MAXIMUM", "x", "y"),
    "minimum": in_one_unit("MINIMUM", "x", "y"),
    "add-channel": in_one_unit("ADD", "x", "channel"),
    "sub-from-full": in_one_unit("SUB", "full", "y"),
    "add-relu": clamped(in_one_unit("ADD", "x", "y"), 0, np.inf),
    "mul": product("x", "y"),
    "mul-negative": product("x", "negative"),
    "times": scaled("x", 0.3),
    "times-relu6": clamped(scaled("y", 3), 0, 2.5),
    "add-broadcast": in_one_unit("ADD", "row", "x"),
    "sub-outer": in_one_unit("SUB", "row", "channel"),
    "add-scalar": in_one_unit("ADD", "x", "scalar"),
    "mul-broadcast": product("y", "row"),
    "mul-full": product("full", "x"),
    "mul-zero": product("zero", "x"),
    "mul-clamp": clamped(product("x", "y"), -1, 0.5),
    "times-large": scaled("y", 1234.5),
}  # fmt: skip
MAIN = list(CASES)[:11]
CHOSEN = {"i8": list(CASES), "i8-of-4-bits": MAIN[::2], "i16": MAIN, "mixed": MAIN}


def graph(cases: Collection[str]) -> Graph:
    b = Builder()
    operands = {
        "x": floats(b, "x", *SHAPE),
        "y": floats(b, "y", *SHAPE),
        "row": floats(b, "row", 2, 3, 1),
    }
    operands |= {name: constant(b, values, name) for name, values in CONSTANTS.items()}
    return legal(b.graph([CASES[name].node(b, operands, name) for name in cases]))


@functools.cache
def trial_of(variant: str) -> Trial:
    return Trial(
        graph(CHOSEN[variant]), *EXAMPLES, rules=VARIANTS[variant], against=against(variant)
    )


SOME = [(variant, name) for variant, cases in CHOSEN.items() for name in cases]


@pytest.mark.parametrize("variant", CHOSEN)
def test_training_computes_what_ships(variant):
    assert trial_of(variant).report, str(trial_of(variant).report)


@pytest.mark.parametrize(("variant", "name"), SOME)
def test_values(variant, name):
    trial, case = trial_of(variant), CASES[name]
    rounded = in_common(trial, *case.operands) if case.operands else 0.0
    assert_rounded(trial, name, case.expected(trial), extra=rounded)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_rounded_once(name):
    assert_constant(trial_of("i8"), name)


def test_a_factor_takes_one_rescale():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    assert operators(prepare(b.graph([times(b, x, constant(b, [[[3]]]))])).graph) == [
        "RESCALE",
        "CLAMP",
    ]


def test_a_clamp_goes_into_the_rescale():
    """A range that begins at 0 has its lowest integer there, so that the CLAMP is dropped."""
    frozen = trial_of("i8").frozen
    assert producer(frozen, "add-relu") == producer(frozen, "times-relu6") == "RESCALE"
    assert trial_of("i8").zero_point("add-relu") == -128
    assert producer(trial_of("i16").frozen, "add-relu") == "CLAMP"


def test_operands_have_the_types_of_their_rules():
    dtypes = {name: trial_of("mixed").dtype(name) for name in ("x", "y", "channel", "full", "add")}
    assert dtypes == {
        "x": DType.INT8,
        "y": DType.INT16,
        "channel": DType.INT8,
        "full": DType.INT16,
        "add": DType.INT8,
    }
    assert trial_of("mixed").grid("x") == (-16, 15)


@pytest.mark.parametrize("wide", ["", "x", "z"])
@pytest.mark.parametrize("order", [1, -1])
def test_operands_far_apart(wide, order):
    """The coarsest operand sets the unit, so that no sum overflows."""
    b = Builder()
    x, z = floats(b, "x", *SHAPE), floats(b, "z", *SHAPE)
    graph = b.graph([b.op("ADD", *[x, z][::order], name="y")])
    examples = 3000 * EXAMPLES[0], 0.01 * EXAMPLES[1]
    trial = Trial(graph, *examples, rules=[rule(f"^{wide}$", act=QSpec("i16"))])
    assert trial.report, str(trial.report)
    assert_rounded(trial, "y", trial["x"] + trial["z"], extra=in_common(trial, "x", "z"))


@pytest.mark.parametrize("kind", ["i8", "i16"])
def test_a_tensor_added_to_itself(kind):
    """A TABLE of INT16 also rounds its entries."""
    b = Builder()
    x = floats(b, "x", *SHAPE)
    trial = Trial(b.graph([b.op("ADD", x, x, name="y")]), EXAMPLES[0], rules=VARIANTS[kind])
    assert trial.report, str(trial.report)
    assert_rounded(trial, "y", 2 * trial["x"], extra=0.5 * trial.step("y") * (kind == "i16"))


@pytest.mark.parametrize("factor", [2.0**-100, 1e-5, 1e30])
def test_factors_of_any_size_scale(factor):
    """Scales follow the factor, so that RESCALE can express all of them."""
    b = Builder()
    y = times(b, floats(b, "x", *SHAPE), constant(b, [[[factor]]]), "y")
    trial = Trial(b.graph([y]), EXAMPLES[0])
    assert_rounded(trial, "y", trial["x"] * float(np.float32(factor)))


def test_a_power_of_two_tensors_is_refused():
    b = Builder()
    y = b.op("POW", floats(b, "x", 2, 3), floats(b, "y", 2, 3), name="power")
    with pytest.raises(UnsupportedError, match=r"POW 'power': .* no integer form"):
        prepare(legal(b.graph([y])), [rule(".*", act=QSpec("i16"))])
