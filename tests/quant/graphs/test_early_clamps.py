"""A CLAMP goes before what passes its elements on, so that tensors have its range."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quant.convert.helpers import (
    Trial,
    assert_rounded,
    clamp,
    constant,
    floats,
    legal,
    operators,
    uniform,
)

import tosajax
from tosajax import Builder, DType, Graph, Tensor, spec
from tosajax.quant import QSpec, calibrate, prepare, rule
from tosajax.quant.graphs.simplify import simplify
from tosajax.spec import NanMode

SHAPE = (1, 4, 4, 2)
INFINITY = float("inf")
LOWEST = float(np.finfo(np.float32).min)


def shape(b: Builder, *sizes: int) -> Tensor:
    return b.const_shape(sizes)


def pad(b: Builder, x: Tensor, value: float) -> Tensor:
    return b.op("PAD", x, shape(b, 0, 0, 1, 0, 0, 2, 0, 0), constant(b, [value]))


def gathered(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    x = b.op("RESHAPE", x, shape(b, 1, 16, 2))
    return b.op("GATHER", x, b.const([[3, 15, 0]], DType.INT32))


def scattered(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    x = b.op("RESHAPE", x, shape(b, 1, 16, 2))
    y = b.op("SLICE", b.op("RESHAPE", y, shape(b, 1, 16, 2)), shape(b, 0, 4, 0), shape(b, 1, 2, 2))
    return b.op("SCATTER", x, b.const([[15, 0]], DType.INT32), y)


def selected(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.op("SELECT", b.const(np.eye(4).reshape(1, 4, 4, 1) > 0, DType.BOOL), x, y)


# How each operator passes on x, and maybe y.
PASSES: dict[str, Callable[[Builder, Tensor, Tensor], Tensor]] = {
    "CONCAT": lambda b, x, y: b.op("CONCAT", x, y, x, axis=1),
    "GATHER": gathered,
    "IDENTITY": lambda b, x, y: b.op("IDENTITY", x),
    "MAX_POOL2D": lambda b, x, y: b.op(
        "MAX_POOL2D", x, kernel=(2, 2), stride=(1, 1), pad=(1, 0, 0, 1)
    ),
    "PAD": lambda b, x, y: pad(b, x, -2.5),
    "REDUCE_MAX": lambda b, x, y: b.op("REDUCE_MAX", x, axis=1),
    "REDUCE_MIN": lambda b, x, y: b.op("REDUCE_MIN", x, axis=2),
    "RESHAPE": lambda b, x, y: b.op("RESHAPE", x, shape(b, 8, 4)),
    "REVERSE": lambda b, x, y: b.op("REVERSE", x, axis=1),
    "SCATTER": scattered,
    "SELECT": selected,
    "SLICE": lambda b, x, y: b.op("SLICE", x, shape(b, 0, 1, 0, 0), shape(b, 1, 3, 3, 2)),
    "TILE": lambda b, x, y: b.op("TILE", x, shape(b, 1, 1, 2, 1)),
    "TRANSPOSE": lambda b, x, y: b.op("TRANSPOSE", x, perms=(0, 3, 1, 2)),
}  # fmt: skip
BOUNDS = {"relu": (0.0, INFINITY), "narrow": (-1e-3, 2e-3), "inside": (-2.0, 1.5)}


def passed(op: str, bounds: tuple[float, float] | None) -> Graph:
    """Sums that an operator passes on to a CLAMP."""
    b = Builder()
    x, y = floats(b, "x", *SHAPE), floats(b, "y", *SHAPE)
    first, second = b.op("ADD", x, y, name="first"), b.op("SUB", x, y, name="second")
    moved = PASSES[op](b, first, second)
    return legal(b.graph([moved if bounds is None else clamp(b, moved, *bounds, "limited")]))


def examples() -> list[np.ndarray]:
    return [uniform(seed, *SHAPE) for seed in (0, 1)]


def run(graph: Graph, *inputs: np.ndarray) -> np.ndarray:
    function, params = tosajax.lower(graph)
    return np.asarray(function(params, *inputs)[0])


def test_every_operator_that_passes_elements_on_is_here():
    assert PASSES.keys() == {name for name, op in spec.OPERATORS.items() if op.passes_on}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("op", PASSES)
def test_integers_have_the_range_of_the_clamp(op, bounds):
    low, high = BOUNDS[bounds]
    graph = passed(op, (low, high))
    simple = simplify(graph)
    np.testing.assert_array_equal(run(simple, *examples()), run(graph, *examples()))
    model = prepare(graph, wide_elementwise=False)
    params = calibrate(model, [examples()])
    owners = {n: q for n, q in params["qparams"].items() if n not in ("x", "y")}
    for name, qparams in owners.items():
        ends = (np.array([-128, 127]) - float(qparams.zero_point)) * float(qparams.scale)
        step = float(qparams.scale)
        assert low - step <= ends[0], name
        assert ends[1] <= high + step, name
    assert "first" not in owners


@pytest.mark.parametrize("op", PASSES)
def test_what_is_trained_ships(op):
    trial = Trial(passed(op, BOUNDS["inside"]), *examples(), against=("frozen", "reference_model"))
    assert trial.report, str(trial.report)
    given = [trial[name].astype(np.float32) for name in ("x", "y")]
    # Each operand was rounded to its own step, and the whole to that of the result.
    steps = [float(q.scale) for n, q in trial.params["qparams"].items() if n not in ("x", "y")]
    expected = run(passed(op, BOUNDS["inside"]), *given)
    assert np.abs(trial["limited"] - expected).max() <= sum(steps)
    assert len(np.unique(trial["limited"])) > 2


@pytest.mark.parametrize("bits", [8, 4])
def test_a_layer_without_bias_is_as_good_as_one_with(bits):
    """`export` leaves a RESHAPE between the two."""
    w, x = jnp.asarray(uniform(0, 16, 32, high=3)), uniform(1, 64, 16, high=3)
    rules = [rule(".*", act=QSpec(bits=bits, symmetric=False))]

    def scale(function: Callable[[jax.Array], jax.Array]) -> float:
        model = prepare(function, rules, example_args=(x,))
        params = calibrate(model, [x])
        return float(params["qparams"][model.owners["output"]].scale)

    plain = scale(lambda x: jax.nn.relu(x @ w))
    with_bias = scale(lambda x: jax.nn.relu(x @ w + jnp.float32(1e-6)))
    np.testing.assert_allclose(plain, with_bias, rtol=1e-5)
    narrow = scale(lambda x: jnp.clip(x @ w, -1e-3, 1e-3))
    np.testing.assert_allclose(narrow, 2e-3 / (2**bits - 2), rtol=0.08)  # with an exact 0


def test_rules_find_what_a_clamp_limits():
    graph = passed("RESHAPE", BOUNDS["relu"])
    for pattern in ("limited", "first", "^first$"):
        model = prepare(graph, [rule(pattern, act=QSpec(bits=5))])
        assert model.specs[model.owners["limited"]].bits == 5, pattern


# What stays where it is.


@pytest.mark.parametrize("reader", ["caller", "node"])
def test_what_others_read_has_all_of_its_range(reader):
    b = Builder()
    x = floats(b, "x", *SHAPE)
    total = b.op("ADD", x, x, name="total")
    moved = b.op("REVERSE", total, axis=1, name="moved")
    other = moved if reader == "caller" else b.op("ABS", moved)
    graph = legal(b.graph([clamp(b, moved, 0, 0.1, "limited"), other]))
    assert operators(simplify(graph)) == operators(graph)
    model = prepare(graph)
    assert model.owners["limited"] == model.owners["total"]


def test_a_clamp_of_a_moved_input_stays():
    b = Builder()
    x = floats(b, "x", *SHAPE)
    graph = b.graph([clamp(b, b.op("REVERSE", x, axis=1), 0, 0.1, "limited")])
    assert operators(simplify(graph)) == ["REVERSE", "CLAMP"]


def test_only_what_one_clamp_reads_is_limited_in_place():
    """CONCAT of a sum, of an input and of a constant that is trained: each has a CLAMP."""
    b = Builder()
    x = floats(b, "x", *SHAPE)
    total = b.op("ADD", x, x, name="total")
    token = constant(b, uniform(0, 1, 1, 4, 2), "token")
    inside = constant(b, uniform(0, 1, 1, 4, 2, low=0, high=0.1), "inside")
    joined = b.op("CONCAT", total, x, token, inside, axis=1)
    graph = legal(b.graph([clamp(b, joined, 0, 0.1, "limited")]))
    simple = simplify(graph)
    assert operators(simple) == ["ADD", "CLAMP", "CLAMP", "CLAMP", "CONCAT"]
    np.testing.assert_array_equal(run(simple, examples()[0]), run(graph, examples()[0]))
    trial = Trial(graph, examples()[0])
    assert trial.report, str(trial.report)
    assert {"token", "inside"} <= set(trial.model.plan.trained)


@pytest.mark.parametrize("low", [0.0, -INFINITY])
def test_a_mask_is_limited(low):
    b = Builder()
    x = floats(b, "x", *SHAPE)
    total = b.op("ADD", x, x, name="total")
    never = constant(b, np.full((1, 1, 1, 1), -INFINITY), "never")
    mask = b.const(np.eye(4).reshape(1, 4, 4, 1) > 0, DType.BOOL)
    graph = legal(b.graph([clamp(b, b.op("SELECT", mask, total, never), low, 0.5, "limited")]))
    simple = simplify(graph)
    np.testing.assert_array_equal(run(simple, examples()[0]), run(graph, examples()[0]))
    trial = Trial(graph, examples()[0])
    assert trial.report, str(trial.report)
    end = trial.ends("limited")[0] if low else 0
    np.testing.assert_array_equal(trial["limited"][:, ~np.eye(4, dtype=bool)], end)


def test_nan_that_becomes_a_number_is_not_looked_for():
    """The largest of NaN and numbers is NaN, and a number after this CLAMP."""
    b = Builder()
    x = floats(b, "x", *SHAPE)
    largest = b.op("REDUCE_MAX", b.op("ADD", x, x), axis=1)
    low, high = np.float32(-1), np.float32(9)
    limited = b.op("CLAMP", largest, min_val=low, max_val=high, nan_mode=NanMode.IGNORE)
    graph = b.graph([limited])
    assert operators(simplify(graph)) == ["ADD", "REDUCE_MAX", "CLAMP"]


def test_a_clamp_goes_into_a_table():
    b = Builder()
    moved = b.op("REVERSE", b.op("TANH", floats(b, "x", *SHAPE)), axis=1)
    trial = Trial(legal(b.graph([clamp(b, moved, 0.25, INFINITY, "limited")])), examples()[0])
    assert operators(trial.frozen) == ["TABLE", "REVERSE"]
    expected = np.maximum(np.tanh(trial["x"]), 0.25)[:, ::-1]
    assert_rounded(trial, "limited", expected, extra=2.0**-20)


def test_clamps_that_follow_each_other_are_one():
    b = Builder()
    total = b.op("ADD", x := floats(b, "x", *SHAPE), x, name="total")
    first = clamp(b, b.op("REVERSE", total, axis=1), -1, INFINITY, "first")
    second = clamp(b, b.op("TRANSPOSE", first, perms=(0, 3, 1, 2)), -2, 0.5, "second")
    simple = simplify(legal(b.graph([second])))
    assert operators(simple) == ["ADD", "CLAMP", "REVERSE", "TRANSPOSE"]
    (node,) = (node for node in simple.nodes if node.op == "CLAMP")
    assert (node.attributes["min_val"], node.attributes["max_val"]) == (-1, 0.5)
