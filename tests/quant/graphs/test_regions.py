"""Tensors that are functions of one other tensor, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from oracle import elementwise_oracle
from paths import DATA

import tosajax
from tosajax import Builder, DType, Graph, Tensor
from tosajax.passes.folding import fold
from tosajax.quant.graphs.regions import Function, covered, evaluate, functions
from tosajax.quant.graphs.simplify import simplify
from tosajax.spec import NanMode

SHAPE = (2, 3, 4)
POINTS = np.concatenate([[0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0], np.linspace(-9, 9, 181)])
POINTS = POINTS.astype(np.float32)


def start(shape: tuple[int, ...] = SHAPE, name: str = "x") -> tuple[Builder, Tensor]:
    b = Builder()
    return b, b.input(name, DType.FP32, shape)


def scalar(b: Builder, x: Tensor, value: float) -> Tensor:
    """A constant of one element and the rank of x."""
    return b.const(np.full([1 for _ in x.shape or ()], value), DType.FP32)


def times(b: Builder, x: Tensor, y: Tensor | float, name: str | None = None) -> Tensor:
    other = y if isinstance(y, Tensor) else scalar(b, x, y)
    return b.op("MUL", x, other, b.const([0], DType.INT8), name=name)


def plus(b: Builder, x: Tensor, value: float) -> Tensor:
    return b.op("ADD", x, scalar(b, x, value))


def clamp(b: Builder, x: Tensor, low: float, high: float, **names: Any) -> Tensor:
    return b.op("CLAMP", x, min_val=np.float32(low), max_val=np.float32(high), **names)


def negate(b: Builder, x: Tensor) -> Tensor:
    return b.op("NEGATE", x, b.const([0], DType.FP32), b.const([0], DType.FP32))


def found(b: Builder, *outputs: Tensor) -> dict[str, str]:
    """The source of every function that outputs need, by name; each function is checked."""
    graph = fold(b.graph(outputs))
    tosajax.validate(graph).raise_errors()
    regions = functions(graph)
    for name, function in regions.items():
        check_form(function, graph)
        assert function.output == name
    return {name: function.source for name, function in regions.items()}


def check_form(function: Function, graph: Graph) -> None:
    """A legal graph of single elements, complete."""
    inner = function.graph
    assert tosajax.validate(inner).findings == ()
    assert (inner.inputs, inner.outputs) == ((function.source,), (function.output,))
    assert {t.shape for t in inner.tensors.values()} == {(1,)}
    read = {name for node in inner.nodes for name in node.inputs} | {function.output}
    assert inner.tensors.keys() == read
    assert {n.op for n in inner.nodes} <= {n.op for n in graph.nodes}


def inside(b: Builder, *outputs: Tensor) -> frozenset[str]:
    graph = fold(b.graph(outputs))
    return covered(graph, functions(graph))


# Functions and their values.


def gelu_erf(b: Builder, x: Tensor) -> Tensor:
    return times(b, x, times(b, plus(b, b.op("ERF", times(b, x, math.sqrt(0.5))), 1), 0.5))


def gelu_tanh(cube: Any) -> Any:
    def function(b: Builder, x: Tensor) -> Tensor:
        inner = b.op("ADD", x, times(b, cube(b, x), 0.044715))
        tanh = b.op("TANH", times(b, inner, math.sqrt(2 / math.pi)))
        return times(b, times(b, x, 0.5), plus(b, tanh, 1))

    return function


def hard_swish(b: Builder, x: Tensor) -> Tensor:
    return times(b, times(b, x, clamp(b, plus(b, x, 3), 0, 6)), 1 / 6)


def hard_sigmoid(b: Builder, x: Tensor) -> Tensor:
    """By comparisons: 0 up to -3, 1 from 3 on."""
    line = plus(b, times(b, x, 1 / 6), 0.5)
    low = b.op("GREATER_EQUAL", scalar(b, x, -3), x)
    high = b.op("GREATER_EQUAL", x, scalar(b, x, 3))
    either = b.op("LOGICAL_OR", low, high)
    ends = b.op("SELECT", low, scalar(b, x, 0), scalar(b, x, 1))
    return b.op("SELECT", either, ends, line)


def mish(b: Builder, x: Tensor) -> Tensor:
    return times(b, x, b.op("TANH", b.op("LOG", plus(b, b.op("EXP", x), 1))))


def gelu_reference(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


FUNCTIONS = {
    "sigmoid": (lambda b, x: b.op("SIGMOID", x), elementwise_oracle.sigmoid),
    "tanh": (lambda b, x: b.op("TANH", x), np.tanh),
    "abs": (lambda b, x: b.op("ABS", x), np.abs),
    "gelu-erf": (gelu_erf, lambda x: x * 0.5 * (1 + elementwise_oracle.erf(x * np.sqrt(0.5)))),
    "gelu-tanh-mul": (gelu_tanh(lambda b, x: times(b, times(b, x, x), x)), gelu_reference),
    "silu": (
        lambda b, x: times(b, x, b.op("SIGMOID", x)),
        lambda x: x * elementwise_oracle.sigmoid(x),
    ),
    "hard-swish": (hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hard-sigmoid": (hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "mish": (mish, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "square": (lambda b, x: times(b, x, x), np.square),
    "square-of-sum": (lambda b, x: times(b, plus(b, x, 1), plus(b, x, 1)), lambda x: (x + 1) ** 2),
    "power-of-2": (lambda b, x: b.op("POW", scalar(b, x, 2), x), np.exp2),
    "negated": (lambda b, x: negate(b, b.op("EXP", negate(b, x))), lambda x: -np.exp(-x)),
    "leaky-relu": (
        lambda b, x: b.op("MAXIMUM", x, times(b, x, 0.1)),
        lambda x: np.maximum(x, 0.1 * x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions(kind):
    make, reference = FUNCTIONS[kind]
    b, x = start()
    y = make(b, x)
    assert found(b, y) == {y.name: "x"}
    graph = b.graph([y])
    (function,) = functions(graph).values()
    everything = {n for node in graph.nodes if node.inputs for n in node.outputs}
    assert covered(graph, {y.name: function}) == everything - {y.name}
    result = evaluate(function, POINTS)
    assert (result.dtype, result.shape) == (np.float32, POINTS.shape)
    want = reference(POINTS.astype(np.float64))
    # A few roundings of intermediate results that are as large as the points, or as the result.
    unit = 2.0**-24 * np.maximum(1, np.maximum(np.abs(POINTS), np.abs(want)))
    assert np.all(np.abs(result - want) <= 16 * unit)


POSITIVE = np.concatenate([[2.0**-100, 1e-9, 1.0], np.linspace(0.01, 50, 50)]).astype(np.float32)


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (
            lambda b, x: b.op("RSQRT", plus(b, times(b, x, 1 / 32), 1e-5)),
            lambda x: 1 / np.sqrt(x / 32 + np.float64(np.float32(1e-5))),
        ),
        (lambda b, x: b.op("POW", x, scalar(b, x, 0.75)), lambda x: x**0.75),
        (
            gelu_tanh(lambda b, x: b.op("POW", x, scalar(b, x, 3))),
            gelu_reference,
        ),
        (lambda b, x: b.op("RECIPROCAL", b.op("RSQRT", x)), np.sqrt),
    ],
    ids=["rsqrt", "pow", "gelu-tanh-pow", "sqrt"],
)
def test_functions_of_positive_values(make, reference):
    b, x = start()
    y = make(b, x)
    assert found(b, y) == {y.name: "x"}
    result = evaluate(functions(b.graph([y]))[y.name], POSITIVE)
    np.testing.assert_allclose(result, reference(POSITIVE.astype(np.float64)), rtol=2.0**-18)


def test_functions_are_those_of_the_graph_bit_for_bit():
    b, x = start((3, 5))
    y = gelu_erf(b, x)
    graph = b.graph([y])
    run, params = tosajax.lower(graph)
    given = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    (want,) = run(params, given)
    result = evaluate(functions(graph)[y.name], given.ravel())
    assert result.tobytes() == np.asarray(want).tobytes()


def test_results_may_be_infinite_or_nan():
    b, x = start()
    y = b.op("LOG", x)
    result = evaluate(functions(b.graph([y]))[y.name], np.array([0, -1, np.inf], np.float32))
    np.testing.assert_array_equal(result, [-np.inf, np.nan, np.inf])


def test_points_of_other_types():
    b, x = start()
    y = b.op("ABS", x)
    result = evaluate(functions(b.graph([y]))[y.name], np.array([-2, 0, 3]))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, [2, 0, 3])


@pytest.mark.parametrize("nan_mode", list(NanMode))
def test_attributes_stay(nan_mode):
    b, x = start()
    y = b.op("SIN", clamp(b, x, -1, 2, nan_mode=nan_mode))
    result = evaluate(functions(b.graph([y]))[y.name], np.array([np.nan], np.float32))
    want = np.nan if nan_mode is NanMode.PROPAGATE else np.sin(-1)
    np.testing.assert_allclose(result, [want], rtol=2.0**-22)


@pytest.mark.parametrize("points", [np.zeros((2, 2)), np.zeros(()), np.zeros(0)])
def test_points_have_one_axis(points):
    b, x = start()
    y = b.op("ABS", x)
    with pytest.raises(ValueError, match="shape"):
        evaluate(functions(b.graph([y]))[y.name], points)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 2, 3, 4)])
def test_any_shape(shape):
    b, x = start(shape)
    y = plus(b, b.op("EXP", x), 1)
    assert found(b, y) == {y.name: "x"}
    result = evaluate(functions(b.graph([y]))[y.name], np.zeros(3, np.float32))
    np.testing.assert_array_equal(result, [2, 2, 2])


# Tensors that are not functions.


@pytest.mark.parametrize(
    "make",
    [
        plus,
        times,
        lambda b, x, v: b.op("SUB", scalar(b, x, v), x),
        lambda b, x, v: negate(b, x),
        lambda b, x, v: clamp(b, x, -v, v),
        lambda b, x, v: b.op("ADD", x, x),
        lambda b, x, v: b.op("SUB", clamp(b, x, 0, v), times(b, clamp(b, x, -v, 0), 0.1)),
    ],
)
def test_scaling_moving_and_clamping_are_left(make):
    b, x = start()
    y = make(b, make(b, x, 2.0), 3.0)
    assert found(b, y) == {}
    assert inside(b, y) == frozenset()


def test_layout_ends_a_region_and_casts_do_not():
    b, x = start()
    y = b.op("EXP", b.op("TRANSPOSE", x, perms=(1, 0, 2), name="moved"), name="y")
    z = b.op("ABS", b.op("CAST", b.op("CAST", x, dtype=DType.INT32), dtype=DType.FP32))
    assert found(b, y, z) == {"y": "moved", z.name: "x"}


def test_integers_have_no_functions():
    b = Builder()
    x = b.input("x", DType.INT32, SHAPE)
    flags = b.input("flags", DType.BOOL, SHAPE)
    positive = b.op("GREATER", x, b.const(np.zeros((1, 1, 1)), DType.INT32))
    one, two = (b.const(np.full((1, 1, 1), v), DType.FP32) for v in (1, 2))
    assert found(b, b.op("ABS", x), *(b.op("SELECT", f, one, two) for f in (positive, flags))) == {}


def test_constants_of_channels_end_a_region():
    b, x = start()
    moved = b.op("ADD", x, b.const(np.arange(4).reshape(1, 1, 4), DType.FP32), name="moved")
    y = b.op("SIGMOID", moved, name="y")
    z = times(b, moved, b.const(np.arange(4).reshape(1, 1, 4), DType.FP32))
    assert found(b, y, z) == {"y": "moved"}


def test_two_tensors_end_a_region():
    """Softmax: the largest value is another tensor than the values, and has another shape."""
    b, x = start()
    largest = b.op("REDUCE_MAX", x, axis=2)
    difference = b.op("SUB", x, largest, name="difference")
    exp = b.op("EXP", difference, name="exp")
    total = b.op("REDUCE_SUM", exp, axis=2, name="total")
    share = b.op("RECIPROCAL", total, name="share")
    y = times(b, exp, share)
    assert found(b, y) == {"exp": "difference", "share": "total"}
    assert inside(b, y) == frozenset()


def test_two_tensors_of_one_shape():
    b, x = start()
    z = b.input("z", DType.FP32, SHAPE)
    assert found(b, b.op("POW", x, z), times(b, x, b.op("TANH", z, name="tanh"))) == {"tanh": "z"}


@pytest.mark.parametrize(("shape", "whole"), [((1, 1, 4), False), ((2, 1, 4), True)])
def test_operands_of_another_shape_end_a_region(shape, whole):
    """An operand that is broadcast is another element's value."""
    b, x = start((2, 1, 4))
    rows = b.op("SLICE", x, b.const_shape((0, 0, 0)), b.const_shape(shape), name="rows")
    tall = b.const(np.ones((2, 1, 4)), DType.FP32)
    square = times(b, rows, times(b, rows, 2.0) if whole else b.op("ADD", rows, tall), name="y")
    assert found(b, square) == ({"y": "rows"} if whole else {})


def test_an_open_shift_is_no_constant():
    b, x = start()
    y = b.op("MUL", x, b.op("ABS", x, name="abs"), b.input("shift", DType.INT8, (1,)))
    assert found(b, y) == {"abs": "x"}


# Where regions begin and end.


def test_two_functions_of_one_tensor():
    b, x = start()
    double = times(b, x, 2)
    line = plus(b, double, 1)
    sigmoid = b.op("SIGMOID", line, name="sigmoid")
    square = times(b, line, line, name="square")
    y = b.op("MATMUL", sigmoid, b.op("TRANSPOSE", square, perms=(0, 2, 1)), *zeros(b))
    assert found(b, y) == {"sigmoid": "x", "square": "x"}
    assert inside(b, y) == {double.name, line.name}


def zeros(b: Builder) -> tuple[Tensor, Tensor]:
    return b.const([0], DType.FP32), b.const([0], DType.FP32)


def test_a_function_of_a_function_reads_the_first_source():
    """A tensor read outside is a function itself, and the end does not depend on it."""
    b, x = start()
    inner = b.op("EXP", x, name="inner")
    line = plus(b, inner, 1)
    y = b.op("LOG", line, name="y")
    total = b.op("REDUCE_SUM", inner, axis=1)
    assert found(b, y, total) == {"inner": "x", "y": "x"}
    assert inside(b, y, total) == {line.name}
    assert found(b, y) == {"y": "x"}
    assert inside(b, y) == {"inner", line.name}


def test_outputs_of_the_graph_within_a_region():
    b, x = start()
    line = plus(b, x, 1)
    square = times(b, line, line, name="square")
    y = b.op("TANH", square, name="y")
    assert found(b, line, square, y, x) == {"square": "x", "y": "x"}
    assert inside(b, line, square, y, x) == frozenset()
    assert inside(b, square, y) == {line.name}


def test_the_straight_start_of_a_region_that_is_read_outside():
    b, x = start()
    line = plus(b, x, 1)
    y = b.op("TANH", line, name="y")
    total = b.op("REDUCE_SUM", line, axis=1)
    assert found(b, y, total) == {"y": "x"}
    assert inside(b, y, total) == frozenset()


def test_order_is_that_of_the_graph():
    b, x = start()
    names = [b.op(op, x, name=name) for op, name in (("EXP", "z"), ("ABS", "a"), ("TANH", "m"))]
    assert list(found(b, *reversed(names))) == ["z", "a", "m"]


def test_some_functions():
    b, x = start()
    y, z = times(b, x, b.op("EXP", x, name="exp")), b.op("LOG", plus(b, x, 1))
    graph = b.graph([y, z])
    every = functions(graph)
    assert covered(graph, {}) == frozenset()
    assert covered(graph, {y.name: every[y.name]}) == {"exp"}


def test_a_comparison_that_is_read_outside():
    """It is not a function, but computed from one; the region uses its own."""
    b, x = start()
    sigmoid = b.op("SIGMOID", x, name="sigmoid")
    high = b.op("GREATER", sigmoid, scalar(b, x, 0.5), name="high")
    y = b.op("SELECT", high, sigmoid, scalar(b, x, 0), name="y")
    assert found(b, y) == {"y": "x"}
    assert inside(b, y) == {"sigmoid", "high"}
    assert found(b, y, high) == {"sigmoid": "x", "y": "x"}
    assert inside(b, y, high) == frozenset()
    result = evaluate(functions(b.graph([y]))["y"], POINTS)
    want = elementwise_oracle.sigmoid(POINTS.astype(np.float64))
    np.testing.assert_allclose(result, np.where(POINTS > 0, want, 0), rtol=2.0**-21)


# A CLAMP and the operator before it.


def convolution(b: Builder, x: Tensor) -> Tensor:
    weight, bias = b.const(np.ones((1, 1, 1, 4)), DType.FP32), b.const([1], DType.FP32)
    window = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1), "acc_type": DType.FP32}
    return b.op("CONV2D", x, weight, bias, *zeros(b), **window, name="made")


def product(b: Builder, x: Tensor) -> Tensor:
    rows = b.op("RESHAPE", x, b.const_shape((1, 6, 4)))
    return b.op("MATMUL", rows, b.op("TRANSPOSE", rows, perms=(0, 2, 1)), *zeros(b), name="made")


def mean(b: Builder, x: Tensor) -> Tensor:
    window = {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0, 0, 0), "acc_type": DType.FP32}
    return b.op("AVG_POOL2D", x, *zeros(b), **window, name="made")


def by_channel(b: Builder, x: Tensor) -> Tensor:
    return b.op("SUB", x, b.const(np.ones((1, 1, 1, 4)), DType.FP32), name="made")


PRODUCERS = {
    "conv2d": convolution,
    "matmul": product,
    "add": lambda b, x: b.op("ADD", x, b.op("REVERSE", x, axis=1), name="made"),
    "mul": lambda b, x: times(b, x, b.op("REVERSE", x, axis=1), name="made"),
    "sub": by_channel,
    "reduce_sum": lambda b, x: b.op("REDUCE_SUM", x, axis=3, name="made"),
    "avg_pool2d": mean,
}


@pytest.mark.parametrize("kind", PRODUCERS)
def test_a_clamp_belongs_to_its_producer(kind):
    b, x = start((1, 2, 3, 4))
    made = PRODUCERS[kind](b, x)
    clamped = clamp(b, made, 0, 6, name="clamped")
    assert found(b, b.op("TANH", clamped, name="y")) == {"y": "clamped"}


@pytest.mark.parametrize("kind", PRODUCERS)
def test_a_clamp_beside_another_reader_belongs_to_the_region(kind):
    b, x = start((1, 2, 3, 4))
    made = PRODUCERS[kind](b, x)
    y = b.op("TANH", clamp(b, made, 0, 6), name="y")
    assert found(b, y, b.op("EXP", made, name="z")) == {"y": "made", "z": "made"}
    assert found(b, y, made) == {"y": "made"}


def test_a_clamp_of_what_has_no_accumulator_belongs_to_the_region():
    b, x = start()
    for name, made in (("y", x), ("z", b.op("REVERSE", x, axis=1, name="made"))):
        y = b.op("TANH", clamp(b, made, 0, 6), name=name)
        assert found(b, y) == {name: made.name}


def test_a_second_clamp_belongs_to_the_region():
    b, x = start((1, 2, 3, 4))
    clamped = clamp(b, convolution(b, x), 0, 6, name="clamped")
    assert found(b, b.op("EXP", clamp(b, clamped, 1, 5), name="y")) == {"y": "clamped"}


# Networks.


def test_regions_of_a_transformer():
    """Two blocks: layer norms have square roots, attention exponentials; sums square by MUL."""
    graph = simplify(tosajax.load(DATA / "et_digits_vit_fp32" / "model.tosa"))
    regions = functions(graph)
    operators = [
        tuple(n.op for n in f.graph.nodes if not n.op.startswith("CONST")) for f in regions.values()
    ]
    block = [
        ("MUL", "ADD", "RSQRT"), ("EXP",), ("RECIPROCAL",),
        ("MUL", "ADD", "RSQRT"), ("MUL", "ERF", "ADD", "MUL", "MUL"),
    ]  # fmt: skip
    assert operators == [*block, *block, ("MUL", "ADD", "RSQRT")]
    # Two in each of five square roots, four in each of two GELUs.
    assert len(covered(graph, regions)) == 5 * 2 + 2 * 4
    for function in regions.values():
        check_form(function, graph)
        assert np.isfinite(evaluate(function, np.array([0.5, 1.5], np.float32))).all()


def test_regions_of_an_autoencoder():
    """Its leaky ReLU, of two CLAMPs, is left as it is."""
    graph = simplify(tosajax.load(DATA / "et_digits_ae_fp32" / "model.tosa"))
    assert {name: f.source for name, f in functions(graph).items()} == {
        "tosa_tanh_default": "tosa_conv2d_default",
        "tosa_sigmoid_default": "tosa_transpose_conv2d_default_1",
    }
