"""Renames tensors to names given in a file, which need not be unique."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from tosajax.graph import Graph


def renamed(graph: Graph, wishes: Mapping[str, str]) -> Graph:
    """Renames tensors of a graph.

    Args:
      graph: a graph without subgraphs.
      wishes: the requested new names of some tensors, by name. If several tensors request the same
        name, all except the first get a suffix, as do tensors without a request whose name is
        taken.

    Returns:
      The graph with new names, otherwise unchanged.
    """
    names = _Names()
    new = {name: names.unused(wishes[name]) for name in graph.tensors if name in wishes}
    new |= {name: names.unused(name) for name in graph.tensors if name not in wishes}
    nodes = (
        dataclasses.replace(
            node,
            inputs=tuple(map(new.__getitem__, node.inputs)),
            outputs=tuple(map(new.__getitem__, node.outputs)),
        )
        for node in graph.nodes
    )
    tensors = (dataclasses.replace(t, name=new[n]) for n, t in graph.tensors.items())
    return dataclasses.replace(
        graph,
        inputs=tuple(map(new.__getitem__, graph.inputs)),
        outputs=tuple(map(new.__getitem__, graph.outputs)),
        nodes=tuple(nodes),
        tensors={tensor.name: tensor for tensor in tensors},
    )


class _Names:
    """The names in use."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._tried: Counter[str] = Counter()  # makes many equal wishes take linear time

    def unused(self, wish: str) -> str:
        name = wish
        while name in self._taken:
            self._tried[wish] += 1
            name = f"{wish}_{self._tried[wish]}"
        self._taken.add(name)
        return name
