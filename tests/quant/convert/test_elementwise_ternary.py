"""SELECT: both choices in one scale."""

from __future__ import annotations

import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    assert_rounded,
    constant,
    floats,
    legal,
    operators,
    uniform,
)

from tosajax import Builder, DType, Graph
from tosajax.quant import prepare

SHAPE = (3, 4, 6)
EXAMPLES = (
    np.random.default_rng(0).random(SHAPE) < 0.5,
    uniform(0, *SHAPE),
    uniform(1, *SHAPE, low=-0.5, high=2),
    uniform(2, 3, 1, 6, high=9),
)
CHOICES = {
    "two": ("x", "y"),
    "broadcast": ("row", "x"),
    "constant": ("x", "row of constants"),
    "scalar": ("fill", "y"),
    "constants": ("row of constants", "fill"),
}  # fmt: skip


def graph() -> Graph:
    b = Builder()
    condition = b.input("condition", DType.BOOL, SHAPE)
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    tensors = {
        "x": x,
        "y": y,
        "row": floats(b, "row", 3, 1, 6),
        "row of constants": constant(b, np.linspace(-4, 1, 6).reshape(1, 1, 6), "row of constants"),
        "fill": constant(b, [[[-7.0]]], "fill"),
    }
    outputs = [
        b.op("SELECT", condition, *(tensors[t] for t in names), name=name)
        for name, names in CHOICES.items()
    ]
    moved = b.op("REVERSE", x, axis=1, name="moved")
    outputs.append(b.op("SELECT", condition, x, moved, name="same"))
    compared = b.op("GREATER", x, y, name="compared")
    outputs.append(b.op("SELECT", compared, x, y, name="larger"))
    return legal(b.graph(outputs))


@pytest.fixture(scope="module", params=["i8", "i8-of-4-bits", "i16", "mixed"])
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), *EXAMPLES, rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_rounded_once(trial, name):
    x, y = (trial[t] for t in CHOICES[name])
    assert_rounded(trial, name, np.where(trial["condition"], x, y))


def test_choices_of_one_scale_are_moved(trial):
    expected = np.where(trial["condition"], trial["x"], trial["moved"])
    np.testing.assert_array_equal(trial["same"], expected)
    assert trial.model.owners["same"] == "x"


def test_a_comparison_chooses(trial):
    assert_rounded(trial, "larger", np.where(trial["compared"], trial["x"], trial["y"]))


def test_choices_of_one_scale_take_no_rescale():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    chosen = b.op("SELECT", b.input("c", DType.BOOL, SHAPE), x, b.op("REVERSE", x, axis=0))
    assert operators(prepare(b.graph([chosen])).graph) == ["REVERSE", "SELECT", "CLAMP"]
