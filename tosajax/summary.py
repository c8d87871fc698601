"""Figures of a graph: operators, types, parameters, multiply-accumulates."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from tosajax.checks import Call
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
    match node.op:
        case "CONV2D" | "CONV3D":
            call = Call(node, graph.tensors)
            return math.prod(call.output.shape) * math.prod(call.weight.shape[1:])
        case "DEPTHWISE_CONV2D":
            call = Call(node, graph.tensors)
            return math.prod(call.output.shape) * math.prod(call.weight.shape[:2])
        case "TRANSPOSE_CONV2D":
            call = Call(node, graph.tensors)
            out_channels, *window = call.weight.shape
            return math.prod(call.input.shape[:3]) * out_channels * math.prod(window)
        case "MATMUL":
            call = Call(node, graph.tensors)
            return math.prod(call.output.shape) * call.a.shape[2]
        case _:
            return 0
