"""Checks the nodes of a legal graph against the limits of an NPU."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks import Call, Surroundings
from tosajax.checks.npu import Neighbours, npu_problems
from tosajax.graph import Graph
from tosajax.report import Finding
from tosajax.spec.npu import NPUS
from tosajax.validation.structure import error


def npu_findings(graph: Graph, around: Surroundings, name: str) -> Iterator[Finding]:
    """Yields an error for each limit of the NPU that a node exceeds.

    Args:
      graph: a legal graph; nodes of its subgraphs are not checked.
      around: the surroundings of the graph's nodes.
      name: the NPU's name in `spec.npu.NPUS`.
    """
    neighbours = Neighbours.of(graph)
    for node in graph.nodes:
        call = Call(node, graph.tensors, around)
        for label, message in npu_problems(call, NPUS[name], neighbours):
            yield error(label, message, node)
