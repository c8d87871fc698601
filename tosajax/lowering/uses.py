"""The nodes that read each tensor of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tosajax import spec
from tosajax.checks import RULES
from tosajax.graph import Graph, Node


class Uses(NamedTuple):
    """The nodes of a graph that compute, and the readers of its tensors.

    Args:
      nodes: all nodes except constants and declarations, in an order in which they can run.
      counts: the number of times that each tensor is read, by name.
      only: the only reader of each tensor that has one, by the tensor's name; graph outputs are
        left out.
      several: the readers of each tensor that has more, or one that reads it twice, likewise.
    """

    nodes: Sequence[Node]
    counts: Counter[str]
    only: Mapping[str, Node]
    several: Mapping[str, Sequence[Node]]


def uses_of(graph: Graph, *, report_unpredictable: bool = False) -> Uses:
    """The uses of a graph's tensors; a flag of a REQUIRE rule counts as a reader of the inputs."""
    nodes = [n for n in graph.ordered_nodes() if n.op not in (*spec.CONSTANT_OPERATORS, "VARIABLE")]
    counts = Counter(name for node in nodes for name in node.inputs)
    by_nodes = counts.copy()
    if report_unpredictable:
        counts.update(name for node in nodes if RULES[node.op].require for name in node.inputs)
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    inside = readers.keys() - {*graph.outputs}
    only = {name: readers[name][0] for name in readers if name in inside and counts[name] == 1}
    several = {n: readers[n] for n in inside - only.keys() if counts[n] == by_nodes[n]}
    return Uses(nodes, counts, only, several)
