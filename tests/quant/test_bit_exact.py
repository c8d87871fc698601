"""check_bit_exact finds differences and their places."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from tosajax import Builder, DType, Graph, Tensor, reference_model
from tosajax.grad.qtensor import QTensor
from tosajax.quant import (
    BitExactReport,
    Comparison,
    QModel,
    QSpec,
    calibrate,
    check_bit_exact,
    lift,
    prepare,
    rule,
)
from tosajax.quant.model.recipes import Params

needs_model = pytest.mark.skipif(
    not reference_model.is_installed(), reason="tosa-tools is not installed"
)
PROGRAMS = [
    pytest.param("frozen", id="frozen"),
    pytest.param("reference_model", id="reference_model", marks=needs_model),
]
# In the order in which the frozen graph computes them; (examples, *shape) each.
SHAPES = {
    "first/acc": (5, 1, 2, 2, 3),
    "first": (5, 1, 2, 2, 3),
    "second/acc": (5, 1, 2, 2, 2),
    "second": (5, 1, 2, 2, 2),
}


class Case(NamedTuple):
    """A model that is cheap to compile, and five examples for it."""

    model: QModel
    params: Params
    x: np.ndarray  # float32 (5, 1, 2, 2, 2)


def convolution(b: Builder, x: Tensor, channels: int, name: str) -> Tensor:
    assert x.shape is not None
    rng = np.random.default_rng(channels)
    return b.op(
        "CONV2D",
        x,
        b.const(rng.normal(0, 1, (channels, 1, 1, x.shape[-1])), DType.FP32),
        b.const(rng.normal(0, 1, channels), DType.FP32),
        *(b.const([0.0], DType.FP32) for _ in range(2)),
        pad=(0, 0, 0, 0),
        stride=(1, 1),
        dilation=(1, 1),
        acc_type=DType.FP32,
        name=name,
    )


def two_layers(act: QSpec) -> Case:
    b = Builder()
    x = b.input("x", DType.FP32, (1, 2, 2, 2))
    x = convolution(b, convolution(b, x, 3, "first"), 2, "second")
    model = prepare(b.graph([x]), [rule(".*", act=act)])
    examples = np.random.default_rng(1).normal(0, 1, (5, 1, 2, 2, 2)).astype(np.float32)
    return Case(model, calibrate(model, [examples]), examples)


@pytest.fixture(scope="module")
def case() -> Case:
    return two_layers(QSpec("i8", symmetric=False))


def with_values(graph: Graph, name: str, change: Any) -> Graph:
    """The graph, a constant of it changed."""
    tensor = graph.tensors[name]
    assert tensor.values is not None
    values = np.asarray(change(tensor.values.copy()), tensor.values.dtype)
    changed = dataclasses.replace(tensor, values=values)
    return dataclasses.replace(graph, tensors={**graph.tensors, name: changed})


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch):
    """Makes `freeze` return another graph than the one of the parameters."""

    def other(graph: Graph) -> None:
        monkeypatch.setattr("tosajax.quant.bit_exact.freeze", lambda model, params: graph)

    return other


# All equal


@needs_model
def test_all_equal(case):
    report = check_bit_exact(*case)
    assert report
    assert (report.mismatches, report.first_divergence) == (0, None)
    assert report.elements == 2 * sum(np.prod(shape) for shape in SHAPES.values())
    assert str(report) == f"0 mismatches in {report.elements} elements"
    assert report.comparisons == tuple(
        Comparison(name, program, int(np.prod(shape)), 0, 0, None)
        for program in ("frozen", "reference_model")
        for name, shape in SHAPES.items()
    )
    assert str(report.comparisons[0]) == "frozen: first/acc: 0 of 60 differ"


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_program(case, program):
    report = check_bit_exact(*case, against=(program,))
    assert [(c.tensor, c.against) for c in report.comparisons] == [(n, program) for n in SHAPES]
    assert report


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("rows", [np.s_[0], np.s_[:, 0]], ids=["one", "along"])
def test_examples(case, program, rows):
    """One example, or several along the first axis."""
    report = check_bit_exact(case.model, case.params, case.x[rows], against=(program,))
    examples = case.x[rows].size // 8
    sizes = {c.tensor: c.elements for c in report.comparisons}
    assert sizes == {n: examples * np.prod(shape[1:]) for n, shape in SHAPES.items()}
    assert report


@pytest.mark.parametrize("program", PROGRAMS)
def test_boolean_tensors(program):
    b = Builder()
    x, y = (b.input(name, DType.FP32, (4,)) for name in "xy")
    model = prepare(b.graph([b.op("GREATER", x, y, name="greater")]))
    data = np.random.default_rng(2).normal(0, 1, (2, 5, 4)).astype(np.float32)
    params = calibrate(model, [tuple(data)])
    report = check_bit_exact(model, params, *data, against=(program,))
    assert report.comparisons[-1] == Comparison("greater", program, 20, 0, 0, None)
    assert report


@pytest.mark.parametrize("program", PROGRAMS)
def test_lifted_models(case, program):
    model, params = lift(case.model.freeze(case.params))
    integers = np.random.default_rng(4).integers(-128, 128, case.x.shape, np.int8)
    report = check_bit_exact(model, params, integers, against=(program,))
    assert {c.tensor for c in report.comparisons} == set(SHAPES)
    assert report


# Something differs


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_bias(case, ship, program):
    """A bias that is 1 larger moves all sums of its channel by 1, and no tensor before them."""
    ship(with_values(case.model.freeze(case.params), "second/bias", lambda v: v + np.array([0, 1])))
    report = check_bit_exact(*case, against=(program,))
    assert not report
    before, first = report.comparisons[:2], report.comparisons[2]
    assert [c.mismatches for c in before] == [0, 0]
    assert first == Comparison("second/acc", program, 40, 20, 1, (0, 0, 0, 0, 1))
    assert report.first_divergence == first
    assert report.mismatches == sum(c.mismatches for c in report.comparisons) >= 20
    text = f"{program}: second/acc: 20 of 40 differ, by up to 1, first at (0, 0, 0, 0, 1)"
    assert str(first) == text
    assert str(report) == f"{report.mismatches} mismatches in 200 elements; first: {text}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_bias_of_int48(ship, program):
    model, params, x = two_layers(QSpec("i16"))
    assert model.graph.tensors["first/acc"].dtype is DType.INT48
    ship(with_values(model.freeze(params), "first/bias", lambda v: v - 1))
    report = check_bit_exact(model, params, x, against=(program,))
    assert report.comparisons[0] == Comparison("first/acc", program, 60, 60, 1, (0, 0, 0, 0, 0))


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_weight(case, ship, program):
    """It shows where the input is not at its zero point, and in later tensors."""
    graph = case.model.freeze(case.params)
    (name,) = [n for n in case.model.weights if graph.tensors[n].shape == (3, 1, 1, 2)]

    def flipped(weights: np.ndarray) -> np.ndarray:
        weights[1, 0, 0, 1] ^= 1
        return weights

    ship(with_values(graph, name, flipped))
    report = check_bit_exact(*case, against=(program,))
    first = report.first_divergence
    assert first is not None
    assert (first.tensor, first.first) == ("first/acc", (0, 0, 0, 0, 1))
    assert 1 <= first.mismatches <= 20
    assert 1 <= first.largest <= 255


@pytest.mark.parametrize("program", PROGRAMS)
def test_few_elements(ship, program):
    """Only the largest elements differ, where a CLAMP ends one earlier."""
    model, params, x = two_layers(QSpec("i8", bits=6, symmetric=False))
    (integers,) = jax.jit(model.with_outputs("second").integers)(params, x)
    second = np.asarray(integers.q)
    largest = np.argwhere(second == second.max())
    graph = model.freeze(params)
    (last,) = [node for node in graph.nodes if node.outputs == ("second",)]
    ends = {**last.attributes, "max_val": second.max() - np.int8(1)}
    assert (last.op, last.attributes["max_val"]) == ("CLAMP", 31)
    lower = dataclasses.replace(last, attributes=ends)
    nodes = tuple(lower if node is last else node for node in graph.nodes)
    ship(dataclasses.replace(graph, nodes=nodes))
    report = check_bit_exact(model, params, x, against=(program,))
    assert 1 <= len(largest) < 5
    assert [c for c in report.comparisons if c.mismatches] == [
        Comparison("second", program, 40, len(largest), 1, tuple(largest[0].tolist()))
    ]


class Unsteady:
    """A recipe that makes another constant every time."""

    def __init__(self, recipe: Any) -> None:
        self.recipe, self.more = recipe, 0

    def __call__(self, params: Params) -> QTensor:
        made = self.recipe(params)
        self.more += 1
        return QTensor(made.q + self.more, made.shadow)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_recipe_of_two_minds(case, program):
    recipes = {
        **case.model.plan.recipes,
        "first/bias": Unsteady(case.model.plan.recipes["first/bias"]),
    }
    plan = dataclasses.replace(case.model.plan, recipes=recipes)
    model = dataclasses.replace(case.model, plan=plan)
    first = check_bit_exact(model, case.params, case.x, against=(program,)).first_divergence
    assert first == Comparison("first/acc", program, 60, 60, 1, (0, 0, 0, 0, 0))


def test_first_divergence_is_that_of_the_first_program():
    found = [
        Comparison("a", "frozen", 4, 0, 0, None),
        Comparison("b", "frozen", 4, 2, 3, (1,)),
        Comparison("a", "reference_model", 4, 1, 1, (0,)),
        Comparison("b", "reference_model", 4, 3, 3, (0,)),
    ]
    report = BitExactReport(tuple(found))
    assert not report
    assert (report.mismatches, report.elements) == (6, 16)
    assert report.first_divergence == found[1]
    assert BitExactReport(tuple(found[2:])).first_divergence == found[2]


# Misuse


@pytest.mark.parametrize(
    ("against", "wrong"),
    [
        ((), r"\[\]"),
        (("arm",), r"\['arm'\]"),
        (("frozen", "Frozen"), r"\['Frozen'\]"),
        (("tflite", "arm", "reference_model"), r"\['arm', 'tflite'\]"),
    ],
)
def test_unknown_programs(case, against, wrong):
    with pytest.raises(ValueError, match=rf"{wrong}, expected some of frozen, reference_model$"):
        check_bit_exact(*case, against=against)


def test_without_tosa_tools(case, monkeypatch):
    monkeypatch.setattr("tosajax.reference_model.model.is_installed", lambda: False)
    with pytest.raises(ImportError, match=r"pip install 'tosajax\[reference\]'"):
        check_bit_exact(*case)
    assert check_bit_exact(*case, against=("frozen",))


@needs_model
def test_graphs_that_the_reference_model_refuses(case, ship):
    """Where the specification gives no result, there is nothing to be equal to."""
    graph = case.model.freeze(case.params)
    ship(with_values(graph, "first/rescaled/shift", lambda shift: np.full_like(shift, 2)))
    with pytest.raises(ValueError, match="example 0: Arm's model gave UNPREDICTABLE"):
        check_bit_exact(*case, against=("reference_model",))


def test_wrong_inputs(case):
    with pytest.raises(TypeError, match="2 inputs, expected 1"):
        check_bit_exact(*case, case.x, against=("frozen",))
    with pytest.raises(ValueError, match=r"inputs of shapes .*, expected x INT8\[1,2,2,2\]"):
        check_bit_exact(case.model, case.params, case.x[..., :1], against=("frozen",))


def test_sums_beyond_their_accumulator_are_named(case, ship):
    """Both programs wrap around in the same way; others need not."""
    graph = case.model.freeze(case.params)
    ship(with_values(graph, "first/bias", lambda v: np.full_like(v, 2**31 - 1)))
    report = check_bit_exact(*case, against="frozen")
    assert not report
    (first,) = [u for u in report.unpredictable if u.node == "CONV2D 'first/acc'"]
    assert (first.rule, 1 <= first.examples <= 5) == ("conv2d.r2", True)
    assert f"unpredictable: {first}" in str(report)
    assert str(first) == f"CONV2D 'first/acc' breaks conv2d.r2 for {first.examples} examples"


def test_nothing_is_unpredictable_in_an_ordinary_graph(case):
    assert check_bit_exact(*case, against="frozen").unpredictable == ()
