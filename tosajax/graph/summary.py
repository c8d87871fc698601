"""Figures of a graph: operators, types, parameters, multiply-accumulates."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from tosajax import spec
from tosajax.graph import Graph, Node


@dataclasses.dataclass(frozen=True)
class Summary:
    """The figures of a graph, subgraphs included."""

    operators: dict[str, int]  # operator -> nodes, most frequent first
    dtypes: dict[str, int]  # element type -> tensors
    parameters: int  # elements of all CONST
    parameter_bytes: int  # as held in memory
    macs: int  # multiply-accumulates of convolutions and matrix products


def summarize(graph: Graph) -> Summary:
    """The figures of a legal graph with known dimensions."""
    parts = list(graph.walk())
    constants = [
        values
        for part in parts
        for node in part.nodes
        if node.op == "CONST" and (values := part.tensors[node.outputs[0]].values) is not None
    ]
    return Summary(
        operators=dict(Counter(node.op for part in parts for node in part.nodes).most_common()),
        dtypes=dict(Counter(t.dtype.name for p in parts for t in p.tensors.values()).most_common()),
        parameters=sum(v.size for v in constants),
        parameter_bytes=sum(v.nbytes for v in constants),
        macs=sum(macs_of(node, part) for part in parts for node in part.nodes),
    )


def macs_of(node: Node, graph: Graph) -> int:
    """The multiply-accumulates of one node of a legal graph."""
    operator = spec.OPERATORS[node.op]
    if not operator.has_weights:
        return 0
    names = (*node.inputs[:2], *node.outputs[:1])
    x, weight, output = (graph.tensors[name].shape or () for name in names)
    if node.op == "TRANSPOSE_CONV2D":  # each element of the input meets each weight of its channel
        return math.prod(x[:3]) * math.prod(weight)
    return math.prod(output) * math.prod(weight[axis] for axis in operator.summed_axes)
