"""What a graph computes from constants alone, computed once; and nodes that nothing reads, gone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax import spec
from tosajax.checks import RULES
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.lower import MOVING, build

# Operators that do, or hold, more than their results say.
_KEPT = {"COND_IF", "WHILE_LOOP", "CUSTOM", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"}
_LARGE = 2**16  # elements


def fold(graph: Graph, *, keep_required: bool = False) -> Graph:
    """The graph with less to do, and the same results to the last bit.

    Args:
      graph: legal, every dimension known.
      keep_required: leave nodes that have rules on values (REQUIRE) as they are, for their flags.
    """
    tensors, nodes, known = dict(graph.tensors), [], set()
    for node in graph.ordered_nodes():
        if node.op in spec.CONSTANT_OPERATORS:
            known.update(node.outputs)
            nodes.append(node)
        elif _is_kept(node, keep_required) or not (
            known.issuperset(node.inputs) and _is_exact(node, tensors) and not _grows(node, tensors)
        ):
            nodes.append(node)
        else:
            known.update(node.outputs)
            for name, values in zip(node.outputs, _values(node, tensors), strict=True):
                tensors[name] = dataclasses.replace(tensors[name], values=values)
                nodes.append(Node("CONST", (), (name,)))
    live = _live(nodes, graph.outputs, keep_required)
    gone = {name for node in nodes for name in node.outputs}
    gone -= {name for node in live for name in node.outputs}
    return dataclasses.replace(
        graph,
        tensors={name: tensor for name, tensor in tensors.items() if name not in gone},
        nodes=live,
        subgraphs={n: fold(g, keep_required=keep_required) for n, g in graph.subgraphs.items()},
    )


def _is_kept(node: Node, keep_required: bool) -> bool:
    return node.op in _KEPT or (keep_required and RULES[node.op].require is not None)


def _is_exact(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the node has the same bits run by itself, outside a compiled graph."""
    types = {tensors[name].dtype for name in (*node.inputs, *node.outputs)}
    if spec.OPERATORS[node.op].chapter in MOVING:
        return DType.BF16 not in types
    return not any(dtype.is_float for dtype in types)


def _grows(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the results are large and larger than the operands: the program makes them anew."""
    before, after = (
        sum(math.prod(tensors[name].shape or ()) for name in names)
        for names in (node.inputs, node.outputs)
    )
    return after > max(before, _LARGE)


def _values(node: Node, tensors: Mapping[str, Tensor]) -> list[np.ndarray]:
    inputs = dict.fromkeys(node.inputs)
    constants = [
        Node("CONST_SHAPE" if tensors[name].dtype is DType.SHAPE else "CONST", (), (name,))
        for name in inputs
    ]
    needed = {name: tensors[name] for name in (*inputs, *node.outputs)}
    program, params = build(Graph((), node.outputs, needed, (*constants, node)))
    _, _, outputs = program(params, {})
    return [np.asarray(y) for y in outputs]


def _live(nodes: Sequence[Node], outputs: Sequence[str], keep_required: bool) -> tuple[Node, ...]:
    """The nodes that outputs, variables, subgraphs or flags depend on, in their order."""
    read, live = set(outputs), []
    for node in reversed(nodes):
        if _is_kept(node, keep_required) or not read.isdisjoint(node.outputs):
            read.update(node.inputs)
            live.append(node)
    return tuple(reversed(live))
