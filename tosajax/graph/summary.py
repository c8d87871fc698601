"""Figures of a graph: operators, types, parameters, multiply-accumulates."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from tosajax.graph import Graph, Node


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `tosajax info` shows of a graph, subgraphs included."""

    operators: dict[str, int]  # operator -> nodes, most frequent first
    dtypes: dict[str, int]  # element type -> tensors
    parameters: int  # elements of all CONST
    parameter_bytes: int  # as held in memory
    macs: int  # multiply-accumulates of convolutions and matrix products


def summarize(graph: Graph) -> Summary:
    """Counts what a legal graph with known dimensions consists of."""
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
    names = (*node.inputs[:2], *node.outputs[:1])
    shapes: list[tuple[int, ...]] = [graph.tensors[name].shape or () for name in names]
    match node.op:
        case "CONV2D" | "CONV3D":
            _, weight, output = shapes
            return math.prod(output) * math.prod(weight[1:])
        case "DEPTHWISE_CONV2D":
            _, weight, output = shapes
            return math.prod(output) * math.prod(weight[:2])
        case "TRANSPOSE_CONV2D":
            x, weight, _ = shapes
            return math.prod(x[:3]) * math.prod(weight)
        case "MATMUL":
            a, _, output = shapes
            return math.prod(output) * a[2]
        case _:
            return 0
