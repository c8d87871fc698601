"""All operators: no rule without a test, no operator without a shape."""

from __future__ import annotations

import contextlib

import pytest
from oracle.legal_graphs import CHAPTERS, LEGAL, OPERATORS, ROWS, of_row

from tosajax import spec
from tosajax.checks import RULES, Call
from tosajax.graph import Tensor, arguments

TESTED = {
    case[0]
    for chapter in CHAPTERS
    for table in ("ILLEGAL", "ABOVE")
    for case in chapter.get(table, [])
}
# ERROR_IF and LEVEL_CHECK lines of each operator, less those on MAX_RANK; one label for each.
BROADCASTING = {
    op.name: (1, 0)
    for op in spec.OPERATORS.values()
    if [a.name for a in op.inputs][:2] == ["input1", "input2"]
}
LINES = BROADCASTING | {
    "ARGMAX": (2, 0),
    "AVG_POOL2D": (9, 8),
    "CONV2D": (8, 8),
    "CONV3D": (9, 12),
    "DEPTHWISE_CONV2D": (8, 8),
    "FFT2D": (2, 2),
    "MATMUL": (1, 0),
    "MATMUL_T": (2, 0),
    "MAX_POOL2D": (7, 8),
    "RFFT2D": (2, 2),
    "TRANSPOSE_CONV2D": (8, 8),
    "CLAMP": (2, 0),
    "NEGATE": (2, 0),
    "REDUCE_ALL": (2, 0),
    "REDUCE_ANY": (2, 0),
    "REDUCE_MAX": (2, 0),
    "REDUCE_MIN": (2, 0),
    "REDUCE_PRODUCT": (2, 0),
    "REDUCE_SUM": (2, 0),
    "CONCAT": (5, 1),
    "PAD": (3, 0),
    "RESHAPE": (1, 0),
    "REVERSE": (1, 0),
    "SLICE": (6, 0),
    "TILE": (2, 0),
    "TRANSPOSE": (6, 0),
    "RESIZE": (10, 2),
    "RESCALE": (14, 0),
}
# Rules that the table of arguments states in words.
ARGUMENTS = {
    "DEPTHWISE_CONV2D",
    "PAD",
    "REDUCE_ALL",
    "REDUCE_ANY",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "REDUCE_PRODUCT",
    "REDUCE_SUM",
    "RESCALE",
    "RESHAPE",
    "RESIZE",
    "RFFT2D",
    "TILE",
    "TRANSPOSE",
}


WITH_ARGUMENTS = [
    pytest.param(op, row, id=f"{op.name}-{row.mode}") for op, row in ROWS if op.name in LEGAL
]


def labels():
    for op, (errors, levels) in LINES.items():
        yield from (f"{op.lower()}.e{number}" for number in range(1, errors + 1))
        yield from (f"{op.lower()}.l{number}" for number in range(1, levels + 1))
    yield from (f"{op.lower()}.arguments" for op in ARGUMENTS)


def test_every_label_is_tested():
    assert set(labels()) == TESTED


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_every_operator_has_its_rules(op):
    rules = RULES[op.name]
    errors, levels = LINES.get(op.name, (0, 0))
    assert rules.shape is not None
    assert (rules.errors is not None) == (errors > 0)
    assert (rules.levels is not None) == (levels > 0)


def test_every_operator_has_a_legal_graph():
    assert {op.name for op in OPERATORS} == LEGAL.keys() | {"CONST", "CONST_SHAPE"}


@pytest.mark.parametrize(("op", "row"), WITH_ARGUMENTS)
def test_legal(findings, call_of, op, row):
    arguments = LEGAL[op.name] | of_row(op, row)
    assert findings(op.name, arguments) == []
    rule = RULES[op.name].shape
    assert rule is not None
    assert rule(call_of(op.name, arguments)) == tuple(arguments[o.name] for o in op.outputs)


@pytest.mark.parametrize(("op", "row"), WITH_ARGUMENTS)
def test_unknown_values_break_no_rule(graph_of, op, row):
    """A zero point or shape that is known only at run time cannot be an error before."""
    graph = graph_of(op.name, LEGAL[op.name] | of_row(op, row))
    run_time = {name: Tensor(name, t.dtype, t.shape) for name, t in graph.tensors.items()}
    call = Call(graph.nodes[-1], run_time)
    rules = RULES[op.name]
    assert list(rules.errors(call) if rules.errors else ()) == []
    assert list(rules.levels(call, spec.LEVELS["8K"]) if rules.levels else ()) == []


@pytest.mark.parametrize(
    ("op", "known"),
    [
        ("SLICE", "start"),
        ("SLICE", "size"),
        *(("RESIZE", n) for n in ("scale", "offset", "border")),
    ],
)
def test_one_known_list_breaks_no_rule(graph_of, op, known):
    graph = graph_of(op, LEGAL[op])
    node, rule = graph.nodes[-1], RULES[op].errors
    kept = arguments(spec.OPERATORS[op], node.inputs, spec.Kind.INPUT)[known]
    run_time = {name: Tensor(name, t.dtype, t.shape) for name, t in graph.tensors.items()}
    assert rule is not None
    assert list(rule(Call(node, run_time | {kept: graph.tensors[kept]}))) == []


@pytest.mark.parametrize("op", ["PAD", "RESHAPE", "SLICE", "TILE", "RESIZE"])
def test_no_shape_from_unknown_values(graph_of, op):
    graph = graph_of(op, LEGAL[op])
    run_time = {name: Tensor(name, t.dtype, t.shape) for name, t in graph.tensors.items()}
    rule = RULES[op].shape
    assert rule is not None
    with pytest.raises(ValueError, match="not known before the graph runs"):
        rule(Call(graph.nodes[-1], run_time))


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("AVG_POOL2D", {"stride": (0, 1)}),
        ("MAX_POOL2D", {"stride": (1, 0)}),
        ("CONV2D", {"stride": (0, 1)}),
        ("CONV3D", {"stride": (1, 1, 0)}),
        ("DEPTHWISE_CONV2D", {"stride": (1, 0)}),
        ("RESIZE", {"scale": [1, 0, 1, 1]}),
    ],
)
def test_no_shape_without_a_stride(derived, op, change):
    with pytest.raises(ValueError, match="expected at least 1"):
        derived(op, LEGAL[op] | change)


CASES = [case for chapter in CHAPTERS for case in chapter.get("ILLEGAL", [])]


@pytest.mark.parametrize(("label", "change"), [c[:2] for c in CASES], ids=[c[0] for c in CASES])
def test_an_illegal_shape_is_a_value_error(derived, label, change):
    """Whatever is wrong: a shape that means nothing, or ValueError, and no other exception."""
    op = label.split(".")[0].upper()
    with contextlib.suppress(ValueError):
        derived(op, LEGAL[op] | change)
