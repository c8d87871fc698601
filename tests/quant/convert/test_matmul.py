"""MATMUL: sums of int32 or int48, rescaled once."""

from __future__ import annotations

import numpy as np
import pytest
from quant.convert.helpers import (
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

from tosajax import Builder, DType, Graph, UnsupportedError
from tosajax.quant import QSpec, prepare, rule

WEIGHT = uniform(5, 2, 5, 4, low=-1, high=2) * np.array([0.1, 1, 2, 0.5], np.float32)
LEFT = uniform(6, 2, 3, 5, low=-1, high=9)
EXAMPLES = uniform(0, 2, 3, 5), uniform(1, 2, 5, 4, low=-0.5, high=2)
KINDS = {
    **VARIANTS,
    "i8-per-tensor": (rule(".*", weight=QSpec()),),
    "i4": (rule(".*", weight=QSpec("i4", per_channel=True)),),
}
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


def test_constants(trial):
    assert_constant(trial, "w")
    assert_constant(trial, "l")
    per_channel = trial.model.specs["w"].per_channel
    assert trial.step("w").shape == ((1, 1, 4) if per_channel else (1, 1, 1))
    assert trial.step("l").size == 1


def test_weights_have_the_type_of_the_other_operand():
    """TOSA has no MATMUL of two types: bits stay what they were asked to be."""
    expected = {"i8": (DType.INT8, 8), "i4": (DType.INT8, 4), "i16": (DType.INT16, 8)}
    for kind, (dtype, bits) in expected.items():
        model = prepare(graph(), KINDS[kind])
        assert model.graph.tensors["w"].dtype is dtype
        assert model.specs["w"].bits == bits


@pytest.mark.parametrize("name", ["a", "b"])
def test_two_types_are_refused(name):
    b = Builder()
    x, y = floats(b, "a", 2, 3, 5), floats(b, "b", 2, 5, 4)
    graph = b.graph([b.op("MATMUL", x, y, *zeros(b), name="y")])
    with pytest.raises(UnsupportedError, match=r"MATMUL 'y': INT\d+ by INT\d+, expected one type"):
        prepare(graph, [rule(f"^{name}$", act=QSpec("i16"))])


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
