"""One-node graphs, and the findings of validation on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oracle.legal_graphs import Arguments
from oracle.legal_graphs import graph_of as build

from tosajax import spec
from tosajax.checks import RULES, Call
from tosajax.graph import Graph
from tosajax.validation import validate

Found = list[tuple[str, str]]


@pytest.fixture(scope="session")
def graph_of() -> Callable[[str, Arguments], Graph]:
    """Builds a graph of one operator from its arguments, as `legal_graphs.graph_of`."""
    return build


@pytest.fixture(scope="session")
def call_of() -> Callable[[str, Arguments], Call]:
    """The node of such a graph, as rules see it."""
    return _call


@pytest.fixture(scope="session")
def findings() -> Callable[[str, Arguments], Found]:
    """(label, message) of everything that validation finds in such a graph, at level 8K."""
    return lambda op, arguments: [
        (f.label, f.message) for f in validate(build(op, arguments)).findings
    ]


@pytest.fixture(scope="session")
def derived() -> Callable[[str, Arguments], tuple[int, ...]]:
    """The shape that follows from the arguments, for all outputs the same."""

    def derive(op: str, arguments: Arguments) -> tuple[int, ...]:
        rule = RULES[op].shape
        assert rule is not None
        shape, *others = rule(_call(op, arguments))
        assert all(other == shape for other in others)
        assert all(type(dim) is int for dim in shape)
        return shape

    return derive


@pytest.fixture(scope="session")
def exceeded() -> Callable[[str, Arguments], Found]:
    """(label, message) of the limits of level 8K that such a graph exceeds, legal or not."""

    def find(op: str, arguments: Arguments) -> Found:
        rule = RULES[op].levels
        assert rule is not None
        return [(p.label, p.message) for p in rule(_call(op, arguments), spec.LEVELS["8K"])]

    return find


def _call(op: str, arguments: Arguments) -> Call:
    graph = build(op, arguments)
    return Call(graph.nodes[-1], graph.tensors)
