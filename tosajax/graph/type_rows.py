"""Matches nodes with the type rows of their operators; the version that a graph needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tosajax import spec
from tosajax.graph.model import Graph, Node, Tensor, arguments
from tosajax.spec import Argument, Form, Kind, Operator, TypeRow
from tosajax.versions import V1_0, Version


def tensor_arguments(
    operator: Operator, node: Node, tensors: Mapping[str, Tensor]
) -> list[tuple[Argument, Tensor]]:
    """Pairs of argument and tensor for every tensor of a node, inputs first."""
    if operator.name == "VARIABLE":  # its output holds the variable's initial value
        values = (a for a in operator.attributes if a.form is Form.VALUES)
        return [(a, tensors[name]) for a in values for name in node.outputs[:1]]
    pairs: list[tuple[Argument, Tensor]] = []
    for kind, names in ((Kind.INPUT, node.inputs), (Kind.OUTPUT, node.outputs)):
        named = arguments(operator, names, kind)
        for argument in operator.inputs if kind is Kind.INPUT else operator.outputs:
            value = named.get(argument.name, ())
            for name in value if isinstance(value, tuple) else (value,):
                pairs.append((argument, tensors[name]))
    return pairs


def matching_rows(
    operator: Operator, node: Node, paired: Sequence[tuple[Argument, Tensor]]
) -> list[TypeRow]:
    """The type rows of all versions that a node's tensors and accumulator type match."""
    acc_type = node.attributes.get("acc_type")
    return [
        row
        for row in operator.types
        if (acc_type is None or row.types.get("acc_t", acc_type) is acc_type)
        and all(row.type_of(a) in (None, t.dtype) for a, t in paired)
    ]


def versioned_attributes(operator: Operator, node: Node) -> list[Argument]:
    """The attributes that not all versions have and that a node sets to a non-default value."""
    return [
        a
        for a in operator.attributes
        if (a.since > V1_0 or a.until is not None)
        and node.attributes.get(a.name, a.default) != a.default
    ]


def needed_version(graph: Graph) -> Version:
    """The first version of the specification that has everything in a graph, legal or not."""
    return max(since for part in graph.walk() for since in _versions(part))


def _versions(graph: Graph) -> Iterator[Version]:
    """Yields the versions that tensors and nodes of a graph need, without its subgraphs."""
    yield V1_0
    yield from (tensor.dtype.since for tensor in graph.tensors.values())
    yield from (node_version(node, graph.tensors) for node in graph.nodes)


def node_version(node: Node, tensors: Mapping[str, Tensor]) -> Version:
    """The first version that has a node's operator, attributes and types; 1.0 if none has them."""
    operator = spec.OPERATORS.get(node.op)
    if operator is None:
        return V1_0
    since = [operator.since, *(a.since for a in versioned_attributes(operator, node))]
    if all(name in tensors for name in (*node.inputs, *node.outputs)):
        rows = matching_rows(operator, node, tensor_arguments(operator, node, tensors))
        since.append(min((row.since for row in rows), default=V1_0))
    return max(since)
