"""Graphs as a module keeps them."""

from __future__ import annotations

import dataclasses

from tosajax.graph import Graph
from tosajax.io import load, to_bytes


def without_identities(graph: Graph) -> Graph:
    """The graph, readers of each IDENTITY's result reading its input."""
    same = {n.outputs[0]: n.inputs[0] for n in graph.ordered_nodes() if n.op == "IDENTITY"}

    def origin(name: str) -> str:
        while name in same:
            name = same[name]
        return name

    nodes = (
        dataclasses.replace(node, inputs=tuple(map(origin, node.inputs)))
        for node in graph.nodes
        if node.op != "IDENTITY"
    )
    outputs = tuple(map(origin, graph.outputs))
    return dataclasses.replace(graph, nodes=tuple(nodes), outputs=outputs)


def complete(graph: Graph) -> Graph:
    """The graph with all attributes stated, as files have them."""
    return load(to_bytes(graph))
