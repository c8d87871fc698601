"""Graphs of loops and branches, as quantization takes them.

Each node of control flow has graphs of its own, and all tensors of a graph and of those inside it
have different names: "body/x" is the tensor x of the graph "body". So one name is enough for the
scale of a tensor, wherever it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tosajax import spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.edit import unused
from tosajax.spec import Form


def graph_keys(node: Node) -> list[str]:
    """The attributes of a node that name graphs."""
    return [a.name for a in spec.OPERATORS[node.op].attributes if a.form is Form.GRAPH]


def in_parts(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph and all graphs inside it, each changed without those inside it."""
    parts = {name: in_parts(part, change) for name, part in graph.subgraphs.items()}
    return dataclasses.replace(change(graph), subgraphs=parts)


def all_tensors(graph: Graph) -> dict[str, Tensor]:
    """The tensors of a graph and of those inside it, by name."""
    return {name: tensor for part in graph.walk() for name, tensor in part.tensors.items()}


def all_nodes(graph: Graph) -> list[Node]:
    """The nodes of a graph and of those inside it."""
    return [node for part in graph.walk() for node in part.ordered_nodes()]


def readers_by_tensor(graph: Graph) -> dict[str, list[Node]]:
    """The nodes of the main graph that read each tensor, each once, in order."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    return readers


def inner_tensors(graph: Graph) -> dict[str, Tensor]:
    """The tensors of the graphs inside a graph, by name."""
    return {n: t for part in graph.subgraphs.values() for n, t in all_tensors(part).items()}


# Graphs of their own, with names of their own.


def separated(graph: Graph) -> Graph:
    """The graph whose nodes of control flow share no graph, and whose tensors share no name."""
    return _separated(graph, "", {graph.name}, set(graph.tensors))


def _separated(graph: Graph, path: str, blocks: set[str], names: set[str]) -> Graph:
    nodes, parts = [], {}
    for node in graph.nodes:
        attributes = dict(node.attributes)
        for key in graph_keys(node):
            part = graph.subgraphs[attributes[key]]
            name = unused(part.name, blocks)
            blocks.add(name)
            inside = f"{path}{name}/"
            named = dataclasses.replace(_with_path(part, inside, names), name=name)
            parts[name] = _separated(named, inside, blocks, names)
            attributes[key] = name
        nodes.append(dataclasses.replace(node, attributes=attributes) if attributes else node)
    return dataclasses.replace(graph, nodes=tuple(nodes), subgraphs=parts)


def _with_path(graph: Graph, path: str, names: set[str]) -> Graph:
    """The graph whose tensors have its path in front of their names; adds these to `names`."""
    renamed: dict[str, str] = {}
    for name in graph.tensors:
        renamed[name] = unused(path + name, names)
        names.add(renamed[name])
    tensors = [dataclasses.replace(t, name=renamed[name]) for name, t in graph.tensors.items()]
    return dataclasses.replace(
        graph,
        inputs=tuple(renamed[name] for name in graph.inputs),
        outputs=tuple(renamed[name] for name in graph.outputs),
        tensors={tensor.name: tensor for tensor in tensors},
        nodes=tuple(
            dataclasses.replace(
                node,
                inputs=tuple(renamed[name] for name in node.inputs),
                outputs=tuple(renamed[name] for name in node.outputs),
            )
            for node in graph.nodes
        ),
    )


# Constants that go in as operands.


def with_constants_inside(graph: Graph) -> Graph:
    """The graph whose loops and branches have their constants themselves, as weights of nodes.

    Converters pass a weight into a loop as a state that stays as it is.

    Args:
      graph: the graph, from `separated`.
    """
    parts, nodes = dict(graph.subgraphs), []
    for node in graph.nodes:
        nodes += (
            _without_constant_operands(node, graph.tensors, parts) if graph_keys(node) else [node]
        )
    parts = {name: with_constants_inside(part) for name, part in parts.items()}
    return dataclasses.replace(graph, nodes=tuple(nodes), subgraphs=parts)


def _without_constant_operands(
    node: Node, tensors: Mapping[str, Tensor], parts: dict[str, Graph]
) -> list[Node]:
    """A node of control flow without constants among its operands, and nodes for its results."""
    keys = graph_keys(node)
    # The condition of a COND_IF comes before the operands of its graphs.
    first = len(node.inputs) - len(parts[node.attributes[keys[0]]].inputs)
    operands = node.inputs[first:]
    for key in keys:
        parts[node.attributes[key]] = _without_copies(parts[node.attributes[key]])
    constants = [place for place, name in enumerate(operands) if tensors[name].values is not None]
    if node.op == "WHILE_LOOP":
        body = parts[node.attributes["body_graph"]]
        constants = [place for place in constants if body.outputs[place] == body.inputs[place]]
    values = {place: tensors[operands[place]] for place in constants}
    for key in keys:
        # All states of a loop come out of its body.
        is_body = key == "body_graph"
        parts[node.attributes[key]] = _with_values(parts[node.attributes[key]], values, is_body)
    inputs = (*node.inputs[:first], *_without_places(operands, constants))
    if node.op != "WHILE_LOOP":
        return [dataclasses.replace(node, inputs=inputs)]
    outputs = tuple(_without_places(node.outputs, constants))
    copies = [Node("IDENTITY", (operands[place],), (node.outputs[place],)) for place in constants]
    return [*copies, dataclasses.replace(node, inputs=inputs, outputs=outputs)]


def _without_places(names: Sequence[str], places: Sequence[int]) -> list[str]:
    return [name for place, name in enumerate(names) if place not in places]


def _without_copies(graph: Graph) -> Graph:
    """The graph whose outputs are no results of IDENTITY."""
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.op == "IDENTITY"}

    def source(name: str) -> str:
        while name in sources:
            name = sources[name]
        return name

    return dataclasses.replace(graph, outputs=tuple(map(source, graph.outputs)))


def _with_values(graph: Graph, values: Mapping[int, Tensor], is_body: bool) -> Graph:
    """The graph with constants in place of some inputs, and of the same outputs of a body."""
    constants = {
        graph.inputs[place]: dataclasses.replace(tensor, name=graph.inputs[place])
        for place, tensor in values.items()
    }
    places = list(values)
    return dataclasses.replace(
        graph,
        inputs=tuple(_without_places(graph.inputs, places)),
        outputs=tuple(_without_places(graph.outputs, places)) if is_body else graph.outputs,
        tensors={**graph.tensors, **constants},
        nodes=(*(Node("CONST", (), (name,)) for name in constants), *graph.nodes),
    )
