"""Random graphs on tosajax and on Arm's reference model: a few; `fuzz.py` runs many."""

from __future__ import annotations

import math
import random as python_random
from collections import Counter

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import arm, edits, judge, known, trial
from reference.growth import OPERATORS, Case, Growth, grow
from tosajax import Builder, DType, Graph, Node, validate
from tosajax.spec.enums import ResizeMode

pytestmark = pytest.mark.skipif(not arm.is_installed(), reason="tosa-tools is not installed")

few = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# Hypothesis chooses only the seed: it would too often choose the simplest graph.
randoms = st.integers(0, 2**64 - 1).map(python_random.Random)
graphs = randoms.map(grow)


@pytest.fixture(autouse=True)
def _no_programs_left():
    yield
    jax.clear_caches()


def unexplained(differences: list[judge.Difference]) -> list[judge.Difference]:
    return [d for d in differences if known.reason(d) is None]


@pytest.mark.slow
@settings(few, max_examples=40)
@given(graphs)
def test_legal_graphs(case):
    verdict = judge.judge(case)
    assert verdict == (arm.Status.VALID, [])


@settings(few, max_examples=10)
@given(graphs)
def test_the_ends_of_a_graph_have_the_same_bits_alone(case):
    assert judge.judge_ends(case) == []


@settings(few, max_examples=60)
@given(randoms)
def test_edited_graphs(random):
    _, case = edits.apply(random, grow(random))
    assert unexplained(judge.judge_edited(case).differences) == []


def test_every_operator_and_type_grows():
    operators, types = Counter(), Counter()
    for seed in range(500):
        case = grow(python_random.Random(seed))
        operators += trial.operators(case)
        types += trial.types(case)
    assert operators.keys() >= {op.name for op in OPERATORS}
    assert types.keys() == {dtype.name for dtype in DType}


def test_grown_graphs_are_legal_for_validate():
    for seed in range(200):
        graph = grow(python_random.Random(seed)).graph
        assert validate(graph).findings == ()
        assert 1 <= len(graph.outputs) <= 13  # of 12 operators; FFT2D has two
        assert all(math.prod(t.shape or ()) < 1000 for t in graph.tensors.values())


def small(op: str, dtype: DType, *shapes: tuple[int, ...]) -> Case:
    growth = Growth(python_random.Random(1))
    leaves = [growth.leaf(dtype, shape, -9, 9, constant=0.0) for shape in shapes]
    growth.add(op, *(v.tensor for v in leaves))
    return Case(growth.builder.graph(growth.made), growth.inputs)


@pytest.mark.parametrize(
    "case",
    [
        small("ADD", DType.INT32, (2, 3), (2, 3)),
        small("ADD", DType.FP32, (2, 3), (2, 3)),
        small("MAXIMUM", DType.FP16, (2, 3), (2, 3)),
        small("IDENTITY", DType.INT48, (4,)),
        small("IDENTITY", DType.FP8E5M2, (4,)),
    ],
    ids=lambda case: str(case.graph.output_tensors[0]),
)
def test_a_wrong_element_is_a_difference(case, monkeypatch):
    assert judge.judge(case).differences == []
    right = judge.run(case)
    name = case.graph.outputs[0]
    wrong = np.array(right[name])
    wrong.flat[1] = wrong.flat[1] + wrong.dtype.type(1)
    monkeypatch.setattr(judge, "run", lambda case: {**right, name: wrong})
    (difference,) = judge.judge(case).differences
    assert difference.node == case.graph.nodes[-1]
    assert known.reason(difference) is None


def test_a_rejection_by_one_of_the_two_is_a_difference(monkeypatch):
    case = small("ABS", DType.FP32, (2, 3))
    illegal = Graph(("a",), ("b",), case.graph.tensors, (Node("ABS", ("a",), ("b",)),))
    status, differences = judge.judge_edited(Case(illegal, {"a": np.zeros(1, np.float32)}))
    assert (status, differences) == (arm.Status.ERROR, [])
    valid = arm.run(case.graph, case.inputs)
    monkeypatch.setattr(arm, "run", lambda *_, **__: valid._replace(status=arm.Status.ERROR))
    (difference,) = judge.judge_edited(case).differences
    assert difference.kind is judge.Kind.ONLY_ARM
    assert known.reason(difference) is None


def test_the_model_tells_what_is_unpredictable():
    growth = Growth(python_random.Random(1))
    x = growth.hold(np.array([1, 2**31 - 1]), DType.INT32, constant=0.0)
    total = growth.builder.op("ADD", x.tensor, x.tensor)
    outcome = arm.run(growth.builder.graph([total]), growth.inputs)
    assert outcome.status is arm.Status.UNPREDICTABLE


def test_an_error_outweighs_a_broken_level():
    """Arm's model ends with the status of its first failed check."""
    b = Builder()
    x = b.input("x", DType.INT8, (1, 2, 2, 1))
    shapes = [b.const_shape(v) for v in ((2048, 1, 1, 1), (0, 0), (0, 0))]
    y = b.op("RESIZE", x, *shapes, mode=ResizeMode.BILINEAR, dtype=DType.INT32, shape=(1, 4, 2, 1))
    zeros = {"x": np.zeros((1, 2, 2, 1), np.int8)}
    assert arm.run(b.graph([y]), zeros).status is arm.Status.ERROR
