"""WHILE_LOOP and COND_IF: their graphs are converted too, in the scales of the tensors around them.

A float state of a loop has the scale of the loop's output in all turns; a state that no turn
changes keeps the scale that it comes in with. The results of both branches have the scale of the
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosajax.graph import Graph, Node
from tosajax.quant.convert.converter import Converter
from tosajax.quant.convert.graphs import convert, is_moved


def while_loop(c: Converter, node: Node) -> None:
    condition, body = (c.graph.subgraphs[node.attributes[k]] for k in ("cond_graph", "body_graph"))
    operands = []
    for name, output, before, after in zip(
        node.inputs, node.outputs, body.inputs, body.outputs, strict=True
    ):
        if c.is_float(name) and before == after:
            c.owners[output] = c.owner(name)
        elif c.is_float(name):
            _own_result(c, output, (body, after), also=(before,))
            c.observe(before, for_=output)
            operands.append(c.in_unit(name, c.owner(output), f"{output}/initial"))
            continue
        operands.append(c.get(name))
    owners = [c.owners.get(name) for name in node.outputs]
    _put_node(
        c,
        node,
        operands,
        cond_graph=_converted(c, condition, owners),
        body_graph=_converted(c, body, owners, owners),
    )


def cond_if(c: Converter, node: Node) -> None:
    keys = ("then_graph", "else_graph")
    branches = {key: c.graph.subgraphs[node.attributes[key]] for key in keys}
    operands = [c.get(name) for name in node.inputs]
    for place, output in enumerate(node.outputs):
        if c.is_float(output):
            results = [(branch, branch.outputs[place]) for branch in branches.values()]
            _own_result(c, output, *results)
            for _, name in results:  # so that examples have to take both branches
                c.observe(name, for_=output)
    before = [c.owners.get(name) for name in node.inputs[1:]]
    after = [c.owners.get(name) for name in node.outputs]
    graphs = {key: _converted(c, branch, before, after) for key, branch in branches.items()}
    _put_node(c, node, operands, **graphs)


def _put_node(c: Converter, node: Node, operands: Sequence, **graphs: Graph) -> None:
    """The node with graphs of integers."""
    names: dict[str, Any] = {key: c.builder.subgraph(graph) for key, graph in graphs.items()}
    outputs = c.builder.ops(node.op, *operands, names=node.outputs, location=node.location, **names)
    for name, tensor in zip(node.outputs, outputs, strict=True):
        c.put(name, tensor)


def _own_result(
    c: Converter, output: str, *results: tuple[Graph, str], also: Sequence[str] = ()
) -> None:
    """Gives the output of a node a scale that holds the results of its graphs as they are made."""
    sources = [_unmoved_source(graph, name) for graph, name in results]
    names = [name for _, name in results]
    c.own(output, *dict.fromkeys((*also, *names, *sources)))
    for name in dict.fromkeys(sources):
        if name not in names:
            c.observe(name, for_=output)


def _converted(
    c: Converter,
    graph: Graph,
    before: Sequence[str | None],
    after: Sequence[str | None] = (None,),
) -> Graph:
    """A graph inside the graph of a converter, of integers.

    Args:
      c: the converter.
      graph: inside its graph.
      before: the tensors whose scales the float inputs have, one for each input.
      after: the same for each output.
    """
    sources = [_unmoved_source(graph, name) for name in graph.outputs]
    pairs = [*zip(sources, after, strict=True), *zip(graph.inputs, before, strict=True)]
    owners = {name: owner for name, owner in pairs if owner is not None}
    inner = Converter(graph, {}, c.options, around=c, owners=owners)
    convert(inner)
    outputs = [
        inner.get(name) if owner is None else inner.in_unit(name, owner, f"{name}/result")
        for name, owner in zip(graph.outputs, after, strict=True)
    ]
    return inner.builder.graph(outputs)


def _unmoved_source(graph: Graph, name: str) -> str:
    """The tensor that others are made of without a change of scale, until the one of this name."""
    producers = {output: node for node in graph.nodes for output in node.outputs}
    while (node := producers.get(name)) is not None and is_moved(node):
        name = node.inputs[0]
    return name
