"""Looks at upgraded graphs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tosajax
from tosajax import DType, Graph, Node, Source, Verdict, spec
from tosajax.graph import Rewrite
from tosajax.io.pre_1_0.model import OldGraph
from tosajax.io.pre_1_0.upgrade import upgrade


def upgraded(old: OldGraph, *, unpredictable: bool = False) -> Graph:
    """The legal graph of 1.0.1; `unpredictable` because of its constants, or not."""
    graph = upgrade(old, Source("test", "0.80.0"))
    report = tosajax.validate(graph)
    assert report.verdict is (Verdict.UNPREDICTABLE if unpredictable else Verdict.VALID)
    return graph


def nodes_of(graph: Graph) -> list[Node]:
    """The nodes but constants."""
    return [node for node in graph.nodes if node.op not in spec.CONSTANT_OPERATORS]


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in nodes_of(graph)]


def only_node(graph: Graph) -> Node:
    (node,) = nodes_of(graph)
    return node


def constant(graph: Graph, name: str) -> tuple[DType, list[Any]]:
    tensor = graph.tensors[name]
    assert tensor.values is not None
    return tensor.dtype, tensor.values.tolist()


def notes(graph: Graph) -> list[Rewrite]:
    """The report on nodes."""
    places = ("test", "shapes", "floats", "input", "output")
    return [r for r in graph.source.rewrites if not r.place.startswith(places)]


def result(graph: Graph, *inputs: np.ndarray) -> np.ndarray:
    """The only output."""
    (found,) = tosajax.compile(graph)(*inputs)
    return np.asarray(found)


def changed(old: OldGraph, **attributes: Any) -> OldGraph:
    """The graph with other attributes of its last node; None takes one away."""
    *nodes, last = old.nodes
    found = {**last.attributes, **attributes}
    found = {name: value for name, value in found.items() if value is not None}
    return dataclasses.replace(old, nodes=(*nodes, dataclasses.replace(last, attributes=found)))


def refused(old: OldGraph, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        upgrade(old, Source("test", "0.80.0"))
