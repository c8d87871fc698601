"""Comparisons, and operators that read their results."""

from __future__ import annotations

import numpy as np
import pytest
from quant.convert.helpers import (
    VARIANTS,
    Trial,
    against,
    constant,
    floats,
    in_common,
    legal,
    operators,
    uniform,
)

from tosajax import Builder, DType, Graph

SHAPE = (4, 5, 6)
CONSTANT = np.linspace(-1.5, 2, 6).reshape(1, 1, 6)
COMPARISONS = {"EQUAL": np.equal, "GREATER": np.greater, "GREATER_EQUAL": np.greater_equal}
# The second operand has a scale of its own, or that of the first.


def graph() -> Graph:
    b = Builder()
    x = floats(b, "x", *SHAPE)
    others = {
        "y": floats(b, "y", *SHAPE),
        "row": floats(b, "row", 4, 1, 6),
        "constant": constant(b, CONSTANT, "constant"),
        "reversed": b.op("REVERSE", x, axis=2, name="reversed"),
        "x": x,
    }
    outputs = [
        b.op(op, x, others[other], name=f"{op}/{other}") for op in COMPARISONS for other in others
    ]
    return legal(b.graph(outputs))


EXAMPLES = uniform(0, *SHAPE), uniform(1, *SHAPE, low=-0.5, high=2), uniform(2, 4, 1, 6)


@pytest.fixture(scope="module", params=["i8", "i8-of-4-bits", "i16", "mixed"])
def trial(request) -> Trial:
    rules = VARIANTS[request.param]
    return Trial(graph(), *EXAMPLES, rules=rules, against=against(request.param))


def test_training_computes_what_ships(trial):
    assert trial.report, str(trial.report)


@pytest.mark.parametrize("other", ["reversed", "x"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_integers_of_one_scale_compare_as_they_are(trial, op, other):
    expected = COMPARISONS[op](trial["x"], trial[other])
    np.testing.assert_array_equal(trial[f"{op}/{other}"], expected)


@pytest.mark.parametrize("other", ["y", "row", "constant"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_real_values_are_compared(trial, op, other):
    """But for those that are closer than the unit that both get; 0 is exact in every one."""
    x, y = np.broadcast_arrays(trial["x"], trial[other])
    clear = (np.abs(x - y) > in_common(trial, "x", other)) | ((x == 0) & (y == 0))
    assert clear.mean() > 0.8
    found = trial[f"{op}/{other}"]
    np.testing.assert_array_equal(found[clear], COMPARISONS[op](x, y)[clear])


def test_zeros_are_equal(trial):
    x, y = trial["x"], trial["y"]
    both = (x == 0) & (y == 0)
    assert both.any()
    assert trial["EQUAL/y"][both].all()


# Booleans stay booleans.


@pytest.fixture(scope="module")
def logical() -> Trial:
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    given = b.input("given", DType.BOOL, SHAPE)
    fixed = b.const(np.arange(6).reshape(1, 1, 6) % 3 == 0, DType.BOOL, name="fixed")
    greater = b.op("GREATER", x, y, name="greater")
    outputs = [
        b.op("LOGICAL_AND", greater, given, name="and"),
        b.op("LOGICAL_OR", greater, fixed, name="or"),
        b.op("LOGICAL_XOR", given, fixed, name="xor"),
        b.op("LOGICAL_NOT", greater, name="not"),
        b.op("REDUCE_ALL", given, axis=2, name="all"),
        b.op("REDUCE_ANY", greater, axis=1, name="any"),
        b.op("SELECT", b.op("LOGICAL_NOT", given, name="not given"), x, x, name="chosen"),
    ]
    graph = legal(b.graph(outputs))
    bits = np.random.default_rng(3).random(SHAPE) < 0.7
    return Trial(graph, EXAMPLES[0], EXAMPLES[1], bits, against=("frozen", "reference_model"))


def test_logical_operators_are_those_of_the_float_graph(logical):
    greater, given, fixed = (logical[name] for name in ("greater", "given", "fixed"))
    assert logical.report, str(logical.report)
    np.testing.assert_array_equal(logical["and"], greater & given)
    np.testing.assert_array_equal(logical["or"], greater | fixed)
    np.testing.assert_array_equal(logical["xor"], given ^ fixed)
    np.testing.assert_array_equal(logical["not"], ~greater)
    np.testing.assert_array_equal(logical["all"], given.all(axis=2, keepdims=True))
    np.testing.assert_array_equal(logical["any"], greater.any(axis=1, keepdims=True))


def test_bool_outputs_are_bool(logical):
    for name, tensor in logical.frozen.tensors.items():
        if name in ("and", "or", "xor", "not", "all", "any", "given", "fixed"):
            assert tensor.dtype is DType.BOOL
            assert name not in logical.model.owners
            assert logical[name].dtype == bool


def test_operands_of_a_comparison_take_two_rescales():
    b = Builder()
    c = b.op("GREATER", floats(b, "x", 2), floats(b, "y", 2))
    trial = Trial(b.graph([c]), np.array([-1, 2], np.float32), np.array([3, -4], np.float32))
    assert operators(trial.frozen) == ["RESCALE", "RESCALE", "GREATER"]
