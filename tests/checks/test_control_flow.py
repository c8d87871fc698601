"""Rules of COND_IF and WHILE_LOOP: each label, at its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import tosajax
from tosajax import Builder, DType, Graph, Tensor, Verdict
from tosajax.checks import RULES, Call, Surroundings

Kinds = Sequence[tuple[DType, tuple[int, ...]]]
BOOL, INT32, FP32 = DType.BOOL, DType.INT32, DType.FP32
PAIR: Kinds = [(INT32, (2,)), (FP32, (1, 3))]
TRUTH: Kinds = [(BOOL, (1,))]


def subgraph(name: str, inputs: Kinds, outputs: Kinds) -> Graph:
    """Constants as outputs: lists of any lengths, shapes and types."""
    b = Builder(name)
    for i, (dtype, shape) in enumerate(inputs):
        b.input(f"in_{i}", dtype, shape)
    return b.graph([zeros(b, dtype, shape) for dtype, shape in outputs])


def zeros(b: Builder, dtype: DType, shape: tuple[int, ...]):
    empty = b.const(0, dtype)
    axes = [1] * len(shape)
    scalar = b.op("RESHAPE", empty, b.const_shape(axes)) if shape else empty
    return b.op("TILE", scalar, b.const_shape(shape)) if shape else b.op("IDENTITY", scalar)


def cond_if(
    condition: tuple[DType, tuple[int, ...]] = (BOOL, (1,)),
    inputs: Kinds = PAIR,
    outputs: Kinds = PAIR,
    then_graph: tuple[Kinds, Kinds] = (PAIR, PAIR),
    else_graph: tuple[Kinds, Kinds] = (PAIR, PAIR),
) -> Graph:
    b = Builder()
    tensors = [b.input(f"x{i}", *kind) for i, kind in enumerate([condition, *inputs])]
    b.subgraph(subgraph("a", *then_graph))
    b.subgraph(subgraph("b", *else_graph))
    dtypes, shapes = [d for d, _ in outputs], [s for _, s in outputs]
    return b.graph(
        b.ops("COND_IF", *tensors, dtypes=dtypes, shapes=shapes, then_graph="a", else_graph="b")
    )


def while_loop(
    inputs: Kinds = PAIR,
    outputs: Kinds = PAIR,
    cond_graph: tuple[Kinds, Kinds] = (PAIR, TRUTH),
    body_graph: tuple[Kinds, Kinds] = (PAIR, PAIR),
) -> Graph:
    b = Builder()
    tensors = [b.input(f"x{i}", *kind) for i, kind in enumerate(inputs)]
    b.subgraph(subgraph("a", *cond_graph))
    b.subgraph(subgraph("b", *body_graph))
    dtypes, shapes = [d for d, _ in outputs], [s for _, s in outputs]
    names = {"cond_graph": "a", "body_graph": "b"}
    return b.graph(b.ops("WHILE_LOOP", *tensors, dtypes=dtypes, shapes=shapes, **names))


def labels(graph: Graph) -> list[str]:
    return [f.label for f in tosajax.validate(graph).errors]


LEGAL = [
    cond_if(),
    cond_if(condition=(BOOL, ())),
    cond_if(condition=(BOOL, (1, 1, 1, 1, 1, 1))),
    cond_if(inputs=[], then_graph=([], PAIR), else_graph=([], PAIR)),
    while_loop(),
    while_loop(cond_graph=(PAIR, [(BOOL, ())])),
    while_loop(cond_graph=(PAIR, [(BOOL, (1, 1))])),
]


@pytest.mark.parametrize("graph", LEGAL)
def test_legal(graph):
    assert tosajax.validate(graph).findings == ()


# Other lists than PAIR: shorter, longer, in another order, of another shape, of another type.
OTHERS: list[Kinds] = [
    PAIR[:1],
    [*PAIR, PAIR[0]],
    PAIR[::-1],
    [(INT32, (2,)), (FP32, (3,))],
    [(INT32, (2,)), (FP32, (1, 2))],
    [(INT32, (2,)), (DType.FP16, (1, 3))],
]


@pytest.mark.parametrize("other", OTHERS)
def test_lists_that_do_not_agree(other):
    assert labels(cond_if(then_graph=(other, PAIR))) == ["cond_if.e2"]
    assert labels(cond_if(else_graph=(other, PAIR))) == ["cond_if.e3"]
    assert labels(cond_if(then_graph=(PAIR, other))) == ["cond_if.e4"]
    assert labels(cond_if(else_graph=(PAIR, other))) == ["cond_if.e5"]
    assert labels(cond_if(inputs=other)) == ["cond_if.e2", "cond_if.e3"]
    assert labels(cond_if(outputs=other)) == ["cond_if.e4", "cond_if.e5"]
    assert labels(while_loop(outputs=other)) == ["while_loop.e2"]
    assert labels(while_loop(cond_graph=(other, TRUTH))) == ["while_loop.e3"]
    assert labels(while_loop(body_graph=(other, PAIR))) == ["while_loop.e4"]
    assert labels(while_loop(body_graph=(PAIR, other))) == ["while_loop.e5"]
    assert labels(while_loop(inputs=other)) == [f"while_loop.e{i}" for i in (2, 3, 4, 5)]


def test_message_of_a_list():
    (finding,) = tosajax.validate(cond_if(then_graph=(PAIR[:1], PAIR))).errors
    assert finding.message == (
        "input_list is (INT32[2], FP32[1,3]), expected (INT32[2]), the inputs of then_graph"
    )


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 1, 1)])
def test_condition_of_several_elements(shape):
    assert labels(cond_if(condition=(BOOL, shape))) == ["cond_if.e6"]
    assert labels(while_loop(cond_graph=(PAIR, [(BOOL, shape)]))) == ["while_loop.e6"]


def test_condition_of_another_type():
    assert labels(cond_if(condition=(DType.INT8, (1,)))) == ["cond_if.types"]
    assert labels(while_loop(cond_graph=(PAIR, [(DType.INT8, (1,))]))) == ["while_loop.e7"]


def test_loop_of_not_one_condition():
    assert labels(while_loop(cond_graph=(PAIR, []))) == ["while_loop.e6"]
    assert labels(while_loop(cond_graph=(PAIR, [*TRUTH, *TRUTH]))) == ["while_loop.e6"]


def test_rank_of_the_condition():
    assert labels(cond_if(condition=(BOOL, (1,) * 7))) == ["cond_if.rank"]


@pytest.mark.parametrize("length", [64, 65])
def test_lists_have_a_limit(length):
    many: Kinds = [(INT32, (1,))] * length
    beyond = length > 64
    graphs = {
        "cond_if": (
            cond_if(inputs=many, then_graph=(many, PAIR), else_graph=(many, PAIR)),
            cond_if(outputs=many, then_graph=(PAIR, many), else_graph=(PAIR, many)),
        ),
        "while_loop": (while_loop(many, many, cond_graph=(many, TRUTH), body_graph=(many, many)),),
    }
    limits = {"cond_if": [["l1"], ["l2"]], "while_loop": [["l1", "l2"]]}
    for op, cases in graphs.items():
        for graph, wanted in zip(cases, limits[op], strict=True):
            report = tosajax.validate(graph)
            assert [f.label for f in report.findings] == [f"{op}.{n}" for n in wanted * beyond]
            assert report.verdict is (Verdict.UNPREDICTABLE if beyond else Verdict.VALID)
            none = tosajax.validate(graph, tosajax.Target.everything("none"))
            assert none.findings == ()


def shapes(graph: Graph) -> tuple[tuple[int, ...], ...]:
    node = graph.nodes[-1]
    rule = RULES[node.op].shape
    assert rule is not None
    return rule(Call(node, graph.tensors, Surroundings(graph.subgraphs)))


def test_shapes():
    other: Kinds = [(FP32, (4, 5))]
    assert shapes(cond_if(then_graph=(PAIR, other), else_graph=(PAIR, other))) == ((4, 5),)
    assert shapes(while_loop()) == ((2,), (1, 3))


def test_no_shape_without_a_rank():
    graph = cond_if()
    part = graph.subgraphs["a"]
    tensors = {**part.tensors, part.outputs[0]: Tensor(part.outputs[0], INT32, None)}
    part = dataclasses.replace(part, tensors=tensors)
    with pytest.raises(ValueError, match="has no rank"):
        shapes(dataclasses.replace(graph, subgraphs={**graph.subgraphs, "a": part}))


def test_target_without_control_flow():
    for graph in (cond_if(), while_loop()):
        report = tosajax.validate(graph, tosajax.Target.parse("PRO-INT+PRO-FP"))
        assert [f.label for f in report.errors] == [f"{graph.nodes[-1].op.lower()}.profile"]


def test_rules_reach_into_subgraphs():
    b = Builder("a")
    x = b.input("in_0", INT32, (2,))
    bad = b.graph([b.op("ADD", x, x, shape=(3,), name="wrong")])
    b = Builder()
    flag, x = b.input("flag", BOOL, (1,)), b.input("x", INT32, (2,))
    names: dict[str, Any] = {"then_graph": b.subgraph(bad), "else_graph": "a"}
    graph = b.graph([b.op("COND_IF", flag, x, **names)])
    (finding,) = tosajax.validate(graph).errors
    assert (finding.label, finding.node) == ("add.e1", "ADD 'wrong'")
