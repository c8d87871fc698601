"""Summarizes a graph (operators, types, parameters, multiply-accumulates), also for notebooks."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

from tosajax import html, spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.locations import described


@dataclasses.dataclass(frozen=True)
class Summary:
    """Counts over a graph, subgraphs included."""

    operators: dict[str, int]  # operator -> nodes, most frequent first
    dtypes: dict[str, int]  # element type -> tensors
    parameters: int  # elements of all CONSTs
    parameter_bytes: int  # as held in memory
    macs: int  # multiply-accumulates in convolutions and matrix products


def summarize(graph: Graph) -> Summary:
    """The Summary of a legal graph with known dimensions."""
    parts = list(graph.walk())
    tensors = [part.tensors[n.outputs[0]] for part in parts for n in part.nodes if n.op == "CONST"]
    constants = [tensor for tensor in tensors if tensor.values is not None]
    return Summary(
        operators=dict(Counter(node.op for part in parts for node in part.nodes).most_common()),
        dtypes=dict(Counter(t.dtype.name for p in parts for t in p.tensors.values()).most_common()),
        parameters=sum(math.prod(t.values.shape) for t in constants),
        parameter_bytes=sum(map(_held, constants)),
        macs=sum(macs_of(node, part) for part in parts for node in part.nodes),
    )


def macs_of(node: Node, graph: Graph) -> int:
    """The multiply-accumulates of one node of a legal graph."""
    operator = spec.OPERATORS[node.op]
    if not operator.is_product:
        return 0
    names = (*node.inputs[:2], *node.outputs[:1])
    x, weight, output = (graph.tensors[name].shape or () for name in names)
    if node.op == "TRANSPOSE_CONV2D":  # each input element times each weight of its channel
        return math.prod(x[:3]) * math.prod(weight)
    return math.prod(output) * math.prod(weight[axis] for axis in operator.summed_axes)


def graph_box(graph: Graph) -> str:
    """The HTML of a graph in a notebook: its facts, and a table of its nodes without constants."""
    head, rows = node_table(graph)
    return html.box(f"Graph {graph.name}", facts(graph), head, rows, noun="node", named_by=2)


def facts(graph: Graph) -> list[tuple[str, str]]:
    """Facts about a graph: pairs of a term and its HTML."""
    operators = Counter(node.op for part in graph.walk() for node in part.nodes)
    counts = [f"{count} {op}" for op, count in operators.most_common()]
    held = sum(_held(t) for part in graph.walk() for t in part.tensors.values())
    pairs = [
        ("inputs", html.listed([f"{t.name}: {t}" for t in graph.input_tensors])),
        ("outputs", html.listed([f"{t.name}: {t}" for t in graph.output_tensors])),
        ("nodes", f"{sum(operators.values()):,}: {html.listed(counts, 12)}"),
        ("constants", html.counted(held, "byte")),
    ]
    if graph.subgraphs:
        pairs.append(("subgraphs", html.listed(list(graph.subgraphs))))
    source = graph.source
    if source.producer or source.version:
        producer = f"{source.format} {source.version} {source.producer}"
        pairs.append(("made by", html.shortened(producer, 120)))
    if source.rewrites:
        pairs.append(("rewritten", html.listed([str(rewrite) for rewrite in source.rewrites])))
    if source.agreement:
        pairs.append(("agreement", html.listed([str(each) for each in source.agreement])))
    return [(term, html.wrappable(text)) for term, text in pairs]


def node_table(graph: Graph) -> tuple[list[str], list[list[object]]]:
    """The header and the rows of a table of a graph's nodes, constants left out."""
    constants = {
        name for node in graph.nodes if node.op in spec.CONSTANT_OPERATORS for name in node.outputs
    }
    rows: list[list[object]] = [
        [at, node.op, html.listed(node.outputs), _types_of(node, graph),
         html.listed([name for name in node.inputs if name not in constants]),
         described(node.location)]
        for at, node in enumerate(graph.nodes)
        if node.op not in spec.CONSTANT_OPERATORS
    ]  # fmt: skip
    return ["#", "operator", "output", "type", "inputs", "location"], rows


def _held(tensor: Tensor) -> int:
    """The bytes of a constant, as held in memory; 0 for other tensors."""
    return 0 if tensor.values is None else tensor.dtype.nbytes(tensor.values.shape)


def _types_of(node: Node, graph: Graph) -> str:
    outputs = [graph.tensors[name] for name in node.outputs if name in graph.tensors]
    return html.listed([str(tensor) for tensor in outputs])
