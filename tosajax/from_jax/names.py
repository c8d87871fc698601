"""Other names for tensors of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tosajax.graph import Graph, Node
from tosajax.graph.edit import unused


def with_room(graph: Graph, names: Mapping[str, str]) -> dict[str, str]:
    """New names for some tensors, and for those that have had one of them, by the old ones.

    Args:
      graph: any.
      names: new names, all different, by the old ones.
    """
    found = dict(names)
    taken = {*graph.tensors, *names.values()}
    for name in graph.tensors:
        if name not in names and name in names.values():
            found[name] = unused(name, taken)
            taken.add(found[name])
    return found


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with other names for some tensors, none of which is in use.

    Args:
      graph: any; names inside of subgraphs stay.
      names: new names, all different, by the old ones.
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
