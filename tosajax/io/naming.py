"""Gives converted graphs the names of the file that they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tosajax.graph import Graph, Node
from tosajax.graph.edit import unused


def with_ends(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """The graph with other names of its inputs and outputs.

    An output that is an input, or another output as well, becomes the result of an IDENTITY.

    Args:
      graph: a graph without control flow.
      inputs: a name for each input.
      outputs: a name for each output; no name occurs twice among all.
    """
    ends = {*inputs, *outputs}
    graph = _with_own_outputs(graph, ends)
    names = dict(zip((*graph.inputs, *graph.outputs), (*inputs, *outputs), strict=True))
    taken = {*ends, *graph.tensors}
    for name in graph.tensors:
        if name in ends and name not in names:
            names[name] = unused(name, taken)
            taken.add(names[name])
    return _renamed(graph, names)


def with_locations(graph: Graph, change: Callable[[str], str]) -> Graph:
    """The graph with other locations of its nodes, subgraphs included."""
    nodes = tuple(
        node if node.location is None else dataclasses.replace(node, location=change(node.location))
        for node in graph.nodes
    )
    parts = {name: with_locations(part, change) for name, part in graph.subgraphs.items()}
    return dataclasses.replace(graph, nodes=nodes, subgraphs=parts)


def _with_own_outputs(graph: Graph, taken: set[str]) -> Graph:
    """The graph with outputs that are neither inputs nor equal."""
    tensors, nodes = dict(graph.tensors), list(graph.nodes)
    outputs: list[str] = []
    taken, ends = {*tensors, *taken}, {*graph.inputs}
    for name in graph.outputs:
        if name in ends:
            copy = unused(f"{name}'", taken)
            tensors[copy] = dataclasses.replace(
                tensors[name], name=copy, values=None, variable=None
            )
            nodes.append(Node("IDENTITY", (name,), (copy,)))
            name = copy
            taken.add(name)
        ends.add(name)
        outputs.append(name)
    return dataclasses.replace(graph, outputs=tuple(outputs), tensors=tensors, nodes=tuple(nodes))


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with other names of tensors; subgraphs have names of their own."""

    def of(old: Sequence[str]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in old)

    tensors = {
        names.get(name, name): dataclasses.replace(tensor, name=names.get(name, name))
        for name, tensor in graph.tensors.items()
    }
    nodes = tuple(
        dataclasses.replace(node, inputs=of(node.inputs), outputs=of(node.outputs))
        for node in graph.nodes
    )
    scales = {names.get(name, name): scale for name, scale in graph.quantization.items()}
    places = {f"tensor {old!r}": f"tensor {new!r}" for old, new in names.items()}
    rewrites = tuple(
        dataclasses.replace(rewrite, place=places.get(rewrite.place, rewrite.place))
        for rewrite in graph.source.rewrites
    )
    return dataclasses.replace(
        graph,
        inputs=of(graph.inputs),
        outputs=of(graph.outputs),
        tensors=tensors,
        nodes=nodes,
        source=dataclasses.replace(graph.source, rewrites=rewrites),
        quantization=scales,
    )
