"""Renames tensors of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tosajax.graph import Graph, Node
from tosajax.graph.edit import unused


def with_room(graph: Graph, names: Mapping[str, str]) -> dict[str, str]:
    """Extends a renaming to the tensors that already have one of the new names.

    Args:
      graph: the graph to rename tensors of.
      names: old name -> new name; the new names are all different.

    Returns:
      `names`, and an unused name for each tensor that has one of the new names.
    """
    result = dict(names)
    taken = {*graph.tensors, *names.values()}
    for name in graph.tensors:
        if name not in names and name in names.values():
            result[name] = unused(name, taken)
            taken.add(result[name])
    return result


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with tensors renamed.

    Args:
      graph: the graph; names inside subgraphs stay.
      names: old name -> new name; the new names are all different and not in use.
    """
    new = {name: name for name in graph.tensors} | dict(names)

    def renamed_node(node: Node) -> Node:
        inputs, outputs = (tuple(new[name] for name in ns) for ns in (node.inputs, node.outputs))
        return dataclasses.replace(node, inputs=inputs, outputs=outputs)

    tensors = [dataclasses.replace(t, name=new[t.name]) for t in graph.tensors.values()]
    return dataclasses.replace(
        graph,
        inputs=tuple(new[name] for name in graph.inputs),
        outputs=tuple(new[name] for name in graph.outputs),
        tensors={tensor.name: tensor for tensor in tensors},
        nodes=tuple(map(renamed_node, graph.nodes)),
    )
