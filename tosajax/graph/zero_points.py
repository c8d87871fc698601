"""Infers zero points and signedness of a graph's tensors from its operators' arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node, arguments
from tosajax.spec import Kind

_KEEPING = {name for name, operator in spec.OPERATORS.items() if operator.keeps_scale}


def zero_points(graph: Graph) -> dict[str, int]:
    """The constant zero points with which operators read or write tensors.

    Operators that keep the scale, such as CLAMP and RESHAPE, pass a zero point on. The zero point
    of an unsigned tensor is reinterpreted as signed.

    Returns:
      Zero points by tensor name; tensors without a known zero point are left out.
    """
    zeros: dict[str, int] = {}
    for node in graph.ordered_nodes():
        for name, zero_point in _named(node, graph):
            zeros.setdefault(name, zero_point)
    _pass_on(graph, zeros)
    return zeros


def _named(node: Node, graph: Graph) -> list[tuple[str, int]]:
    """Pairs of a tensor, for which the node has a constant NAME_zp argument, and its value."""
    operator = spec.OPERATORS[node.op]
    named = arguments(operator, node.inputs, Kind.INPUT)
    owners = named | arguments(operator, node.outputs, Kind.OUTPUT)
    pairs = []
    for argument, name in named.items():
        owner = owners.get(argument.removesuffix("_zp"))
        if not argument.endswith("_zp") or not isinstance(owner, str):
            continue
        values = graph.tensors[name].values
        if values is not None and values.size == 1 and graph.tensors[owner].dtype.is_integer:
            pairs.append((owner, int(np.asarray(values).reshape(()))))
    return pairs


def of_one_scale(graph: Graph) -> dict[str, str]:
    """For each tensor, a representative of the tensors that share its scale.

    Tensors share a scale if only operators such as CLAMP and RESHAPE are between them.
    """
    owners = {name: name for name in graph.tensors}

    def root(name: str) -> str:
        while owners[name] != name:
            owners[name] = name = owners[owners[name]]
        return name

    for node in graph.ordered_nodes():
        if node.op in _KEEPING and node.inputs and node.outputs:
            ends = node.inputs[0], node.outputs[0]
            if graph.tensors[ends[0]].dtype is graph.tensors[ends[1]].dtype:
                owners[root(ends[1])] = root(ends[0])
    return {name: root(name) for name in owners}


def unsigned_tensors(graph: Graph) -> set[str]:
    """The tensors that hold unsigned integers, as inputs and outputs of converted graphs do."""
    signs: dict[str, bool] = {}
    for node in graph.nodes:
        if node.op == "RESCALE":
            signs[node.inputs[0]] = bool(node.attributes["input_unsigned"])
            signs[node.outputs[0]] = bool(node.attributes["output_unsigned"])
    _pass_on(graph, signs)
    return {name for name, is_unsigned in signs.items() if is_unsigned}


def _pass_on(graph: Graph, found: dict[str, Any]) -> None:
    """Copies a tensor's entry to the tensors before and after it that share its scale."""
    nodes = [n for n in graph.ordered_nodes() if n.op in _KEEPING and n.inputs and n.outputs]
    for node in nodes:
        if node.inputs[0] in found:
            found.setdefault(node.outputs[0], found[node.inputs[0]])
    for node in nodes[::-1]:
        if node.outputs[0] in found:
            found.setdefault(node.inputs[0], found[node.outputs[0]])
