"""Open dimensions: rules that are broken whatever the sizes are, and no others."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pytest
from oracle.legal_graphs import CHAPTERS, LEGAL, ROW_IDS, ROWS, graph_of, legal_graph

from tosajax import DType
from tosajax.graph import Graph, Tensor
from tosajax.report import Finding, Verdict
from tosajax.validation import validate
from tosajax.validation.certain import Outcomes, Size, certain

_OPEN = "tensor.dynamic"
_ILLEGAL = [case for chapter in CHAPTERS for case in chapter.get("ILLEGAL", [])]


def _opened(graph: Graph, tensor: Tensor, axes: range) -> Graph:
    shape = tuple(-1 if axis in axes else d for axis, d in enumerate(tensor.shape or ()))
    changed = dataclasses.replace(tensor, shape=shape)
    return dataclasses.replace(graph, tensors={**graph.tensors, tensor.name: changed})


def _variants(graph: Graph) -> Iterator[Graph]:
    """The graph with each dimension open by itself, all of a tensor, and all of all tensors."""
    every = graph
    for tensor in graph.tensors.values():
        if tensor.values is None and tensor.dtype is not DType.SHAPE and tensor.shape:
            rank = len(tensor.shape)
            yield from (_opened(graph, tensor, range(n, n + 1)) for n in range(rank))
            yield _opened(graph, tensor, range(rank))
            every = _opened(every, tensor, range(rank))
    yield every


def _labels(graph: Graph) -> set[str]:
    return {f.label for f in validate(graph).findings if f.verdict is Verdict.ERROR}


@pytest.mark.parametrize(("operator", "row"), ROWS, ids=ROW_IDS)
def test_a_legal_graph_breaks_no_rule_with_open_dimensions(operator, row):
    for graph in _variants(legal_graph(operator, row)):
        assert _labels(graph) <= {_OPEN}


@pytest.mark.parametrize("case", _ILLEGAL, ids=lambda case: case[0])
def test_a_rule_that_is_broken_whatever_the_sizes_are(case):
    """All that is said of an open graph is true of the graph that it was."""
    graph = graph_of(*_arguments(case))
    closed = _labels(graph)
    for variant in _variants(graph):
        assert _labels(variant) <= closed | {_OPEN}


def _arguments(case: tuple) -> tuple:
    label, changes = case[0], case[1]
    op = label.partition(".")[0].upper()
    return op, LEGAL[op] | changes


def _halves(*shape: int) -> dict:
    return {"output_real": shape, "output_imag": shape}


# Rules that do not depend on the open dimension, with the tensors that have one.
_CERTAIN = [
    ("conv2d.e3", "CONV2D", {"input": (-1, 9, 12, 3), "pad": (-1, 3, 2, 2)}),
    ("conv2d.e4", "CONV2D", {"input": (1, -1, -1, 3), "stride": (0, 1)}),
    ("conv2d.e5", "CONV2D", {"input": (1, -1, 12, 3), "dilation": (0, 1)}),
    ("conv2d.e6", "CONV2D", {"input": (-1, 9, -1, 3), "output": (-1, 5, -1, 6)}),
    ("conv2d.e8", "CONV2D", {"input": (-1, -1, -1, 3), "bias": (7,), "output": (-1, -1, -1, 6)}),
    ("conv2d.shape", "CONV2D", {"input": (-1, -1, -1, 9)}),
    ("conv2d.rank", "CONV2D", {"input": (-1, 9, 12)}),
    ("add.e1", "ADD", {"input1": (-1, 2, 3), "input2": (-1, 2, 4), "output": (-1, 2, 4)}),
    ("add.e1", "ADD", {"input1": (-1, 3), "input2": (1, 3), "output": (-1, 4)}),
    ("argmax.e1", "ARGMAX", {"input": (-1, 3), "axis": 2, "output": (-1,)}),
    ("concat.e2", "CONCAT", {"input1": [(-1, 3), (-1, 3)], "axis": 5, "output": (-1, 6)}),
    ("concat.e4", "CONCAT", {"input1": [(-1, 3), (-1, 4)], "axis": 0, "output": (-1, 3)}),
    ("pad.e2", "PAD", {"input1": (-1, 3), "padding": [0, 0, -1, 0], "output": (-1, 2)}),
    (
        "slice.e3",
        "SLICE",
        {"input1": (-1, 3), "start": [0, -1], "size": [-1, 1], "output": (-1, 1)},
    ),
    ("slice.e5", "SLICE", {"input1": (-1, 3), "start": [0, 2], "size": [-1, 2], "output": (-1, 2)}),
    ("transpose.e5", "TRANSPOSE", {"input1": (-1, 3), "perms": (0, 0), "output": (-1, -1)}),
    ("reverse.e1", "REVERSE", {"input1": (-1, 3), "axis": 2, "output": (-1, 3)}),
    ("max_pool2d.e2", "MAX_POOL2D", {"input": (-1, 9, 12, 2), "stride": (0, 3)}),
    ("matmul.shape", "MATMUL", {"a": (-1, 2, 3), "b": (-1, 4, 5), "output": (-1, 2, 5)}),
    ("rfft2d.e1", "RFFT2D", {"input_real": (-1, 3, 8), **_halves(-1, 3, 5)}),
]


@pytest.mark.parametrize(("label", "op", "changes"), _CERTAIN)
def test_rules_that_are_broken_are_said_before_the_open_dimension(label, op, changes):
    findings = validate(graph_of(op, LEGAL[op] | changes)).findings
    labels = [finding.label for finding in findings]
    assert label in labels
    assert labels[-1] == _OPEN
    assert labels.index(label) < labels.index(_OPEN)
    assert all("object at" not in finding.message for finding in findings)


# Sizes that would make the rule good.
_POSSIBLE = [
    ("CONV2D", {"input": (-1, -1, -1, 3), "output": (-1, 4, 4, -1)}),
    ("RFFT2D", {"input_real": (1, -1, 8), **_halves(1, -1, 5)}),
    ("ADD", {"input1": (-1, 3), "input2": (2, 3), "output": (-1, 3)}),
    ("RESHAPE", {"input1": (-1, 4), "shape": [-1, 2], "output": (-1, 2)}),
    ("RESHAPE", {"input1": (2, 4), "shape": [-1, 2], "output": (-1, 2)}),
    ("SLICE", {"input1": (-1, 3), "start": [5, 0], "size": [-1, 3], "output": (-1, 3)}),
    ("TILE", {"input1": (-1, 3), "multiples": [2, 1], "output": (6, 3)}),
]


@pytest.mark.parametrize(("op", "changes"), _POSSIBLE)
def test_a_rule_that_some_sizes_keep_is_not_said(op, changes):
    assert _labels(graph_of(op, LEGAL[op] | changes)) == {_OPEN}


# The numbers in the place of open dimensions.


def test_a_size_is_at_least_1():
    outcomes = Outcomes()
    size = Size(outcomes, 1)
    never = [size < 1, size <= 0, size == 0, size == -1, size <= -1]
    always = [size >= 1, size > 0, size != 0, size > -1, size >= 1, size > 0, bool(size)]
    assert (any(never), all(always)) == (False, True)
    assert not outcomes.taken
    assert repr(size) == "?"


_FOUND = Finding(Verdict.ERROR, "label", "message")


def test_every_outcome_is_tried_while_something_is_certain():
    taken = []

    def check(outcomes):
        size = Size(outcomes, 1)
        taken.append((size < 5, size * 2 == 7, size > 1))
        return [_FOUND]

    assert certain(check) == [_FOUND]
    assert sorted(taken) == sorted(itertools.product((False, True), repeat=3))


def test_what_one_outcome_lacks_is_not_certain():
    for compare in (lambda s: s == 3, lambda s: s != 3, lambda s: s < 2, lambda s: s >= 2):
        for wanted in (True, False):
            found = certain(lambda o, c=compare, w=wanted: [_FOUND] if c(Size(o, 1)) is w else [])
            assert found == []


def test_a_run_that_needs_a_size_keeps_what_it_found():
    def check(outcomes):
        yield _FOUND
        range(Size(outcomes, 1))  # pyright: ignore[reportArgumentType]
        yield Finding(Verdict.ERROR, "second", "")

    assert certain(check) == [_FOUND]


def test_a_label_is_certain_whichever_message_it_has():
    def check(outcomes):
        yield Finding(Verdict.ERROR, "a", "both")
        yield Finding(Verdict.ERROR, "a", f"size is 3: {Size(outcomes, 1) == 3}")
        yield Finding(Verdict.ERROR, "b", f"size is 5: {Size(outcomes, 1) == 5}")

    assert [f.message for f in certain(check)] == ["both", "size is 5: False"]


def test_nothing_is_certain_of_too_many_outcomes():
    def check(outcomes):
        size = Size(outcomes, 1)
        return [_FOUND] * (1 + 0 * sum(size < n for n in range(2, 20)))

    assert certain(check) == []
