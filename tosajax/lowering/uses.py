"""The nodes that read each tensor of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tosajax import spec
from tosajax.checks import RULES
from tosajax.graph import Graph, Node


class Uses(NamedTuple):
    """The nodes that compute, and who reads their tensors.

    Args:
      nodes: all but constants and declarations, in an order in which they can run.
      counts: how many times each tensor is read, by name.
      only: the only reader of a tensor that is no output of the graph, by the tensor's name.
    """

    nodes: Sequence[Node]
    counts: Counter[str]
    only: Mapping[str, Node]


def uses_of(graph: Graph, *, report_unpredictable: bool = False) -> Uses:
    """The uses of a graph's tensors; flags of REQUIRE rules read the inputs of nodes once more."""
    nodes = [n for n in graph.ordered_nodes() if n.op not in (*spec.CONSTANT_OPERATORS, "VARIABLE")]
    counts = Counter(name for node in nodes for name in node.inputs)
    if report_unpredictable:
        counts.update(name for node in nodes if RULES[node.op].require for name in node.inputs)
    only = {
        name: node
        for node in nodes
        for name in node.inputs
        if counts[name] == 1 and name not in graph.outputs
    }
    return Uses(nodes, counts, only)
