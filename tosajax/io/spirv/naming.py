"""Names of tensors that formats give, which need not differ from each other."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from tosajax.graph import Graph


def renamed(graph: Graph, wishes: Mapping[str, str]) -> Graph:
    """A graph with other names for its tensors.

    Args:
      graph: without subgraphs.
      wishes: a new name for some of the tensors. Where several have the same wish, the first gets
        it, and the others get one like it; so do tensors without a wish, whose name others take.

    Returns:
      The graph, where each tensor has the same place.
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
    """Names that are in use."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._tried: Counter[str] = Counter()  # so that many equal wishes take no longer each

    def unused(self, wish: str) -> str:
        name = wish
        while name in self._taken:
            self._tried[wish] += 1
            name = f"{wish}_{self._tried[wish]}"
        self._taken.add(name)
        return name
