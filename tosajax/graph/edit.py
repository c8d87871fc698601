"""Edits graphs: new names, node by node rewriting, removal of unread constants and tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tosajax import spec
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.locations import matches

# Returns the nodes that replace a node, or None if the node is not of the kind to change. Raises
# ValueError, with the reason, if it is of that kind and has to stay.
Change = Callable[["Draft", Node], Sequence[Node] | None]


class Draft:
    """A graph being rewritten: the original graph, all tensors so far, and the new nodes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self.nodes: list[Node] = []

    def const(self, name: str, values: Any, dtype: DType) -> str:
        """Adds a CONST or CONST_SHAPE; returns its name: `name`, or a similar unused one."""
        stored = to_storage(values, dtype)
        tensor = self._add(Tensor(unused(name, self.tensors), dtype, stored.shape, stored))
        op = "CONST_SHAPE" if dtype is DType.SHAPE else "CONST"
        self.nodes.append(Node(op, (), (tensor,)))
        return tensor

    def tensor(self, name: str, dtype: DType, shape: tuple[int, ...] | None) -> str:
        """Declares a computed tensor; returns its name: `name`, or a similar one if it is taken."""
        return self._add(Tensor(unused(name, self.tensors), dtype, shape))

    def finished(self) -> Graph:
        """The graph of the nodes so far, without constants and tensors that nothing reads."""
        read = {name for node in self.nodes for name in node.inputs} | set(self.graph.outputs)
        nodes = [
            node
            for node in self.nodes
            if node.op not in spec.CONSTANT_OPERATORS or not read.isdisjoint(node.outputs)
        ]
        used = read | set(self.graph.inputs) | {name for node in nodes for name in node.outputs}
        tensors = {n: t for n, t in self.tensors.items() if n in used or t.variable is not None}
        return dataclasses.replace(self.graph, tensors=tensors, nodes=tuple(nodes))

    def _add(self, tensor: Tensor) -> str:
        self.tensors[tensor.name] = tensor
        return tensor.name


def rewritten(graph: Graph, where: str | None, kind: str, change: Change) -> Graph:
    """The graph with the nodes of one kind changed, subgraphs included.

    Nodes that cannot be changed stay as they are; it is an error if none can be changed.

    Args:
      graph: a legal graph.
      where: a regular expression, found in the nodes' outputs or locations; None for all.
      kind: the kind of nodes to change, for messages: "RESCALE".
      change: the function that returns the nodes in place of one.

    Raises:
      ValueError: no node of the kind matches `where`, or no matching one can be changed.
    """
    refused: list[str] = []
    changed, count = in_all_parts(graph, lambda part: _changed(part, where, change, refused))
    if not count:
        place = f" matches {where!r}" if where is not None else ""
        raise ValueError(refused[0] if refused else f"no {kind} of graph {graph.name!r}{place}")
    return changed


def unused(name: str, taken: Collection[str]) -> str:
    """The name, with primes appended until it is not taken."""
    while name in taken:
        name += "'"
    return name


def in_all_parts(graph: Graph, change: Callable[[Graph], tuple[Graph, int]]) -> tuple[Graph, int]:
    """The graph and all its subgraphs changed, and the sum of the counts that `change` returns."""
    main, count = change(graph)
    parts = {name: in_all_parts(part, change) for name, part in graph.subgraphs.items()}
    subgraphs = {name: part for name, (part, _) in parts.items()}
    return dataclasses.replace(main, subgraphs=subgraphs), count + sum(n for _, n in parts.values())


def _changed(
    graph: Graph, where: str | None, change: Change, refused: list[str]
) -> tuple[Graph, int]:
    """The graph with its nodes changed, and their number; subgraphs stay unchanged."""
    draft, count = Draft(graph), 0
    for node in graph.ordered_nodes():
        nodes = None
        if matches(node, where):
            try:
                nodes = change(draft, node)
            except ValueError as error:
                refused.append(f"{node.title}: {error}")
        count += nodes is not None
        draft.nodes += [node] if nodes is None else nodes
    return draft.finished(), count
