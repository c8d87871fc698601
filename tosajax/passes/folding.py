"""Folds constants: nodes of constants become constants, and unread nodes are removed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence

import jax

from tosajax import spec
from tosajax.checks import RULES
from tosajax.checks.zero_points import check_zero_points, open_zero_points
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor
from tosajax.lowering.build import build

_LARGE = 2**16  # elements; larger outputs are folded only if the inputs are no smaller


def fold(graph: Graph, *, keep_required: bool = False) -> Graph:
    """The graph with constants folded and dead nodes removed; results are the same bits.

    Args:
      graph: a legal graph, every dimension known.
      keep_required: whether nodes with rules on values (REQUIRE) stay, for their flags.

    Raises:
      TosaError: a zero point computed from constants breaks a rule.
    """
    nodes, folded, fixed = [], [], set()
    for node in graph.ordered_nodes():
        if node.op in spec.CONSTANT_OPERATORS:
            fixed.update(node.outputs)
            nodes.append(node)
        elif _is_kept(node, keep_required) or not (
            fixed.issuperset(node.inputs)
            and _is_exact(node, graph.tensors)
            and not _grows(node, graph.tensors)
        ):
            nodes.append(node)
        else:
            fixed.update(node.outputs)
            folded.append(node)
    zero_points = [z for node in graph.nodes for z in open_zero_points(node, graph.tensors)]
    read = {*graph.outputs, *(name for node in nodes for name in node.inputs)}
    read.update(z.tensor for z in zero_points)
    constants = _values(folded, read, graph.tensors)
    check_zero_points(
        zero_points, {n: t.values for n, t in constants.items() if t.values is not None}
    )
    tensors = {**graph.tensors, **constants}
    nodes = [*(Node("CONST", (), (name,)) for name in constants), *nodes]
    live = _live(nodes, graph.outputs, keep_required)
    gone = {name for node in (*nodes, *folded) for name in node.outputs}
    gone -= {name for node in live for name in node.outputs}
    return dataclasses.replace(
        graph,
        tensors={name: tensor for name, tensor in tensors.items() if name not in gone},
        nodes=live,
        subgraphs={n: fold(g, keep_required=keep_required) for n, g in graph.subgraphs.items()},
    )


def _is_kept(node: Node, keep_required: bool) -> bool:
    if not spec.OPERATORS[node.op].is_function:
        return True
    return keep_required and RULES[node.op].require is not None


def _is_exact(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the node has the same result bits when it is computed outside the program."""
    types = {tensors[name].dtype for name in (*node.inputs, *node.outputs)}
    if spec.OPERATORS[node.op].moves:
        return DType.BF16 not in types
    return not any(dtype.is_float for dtype in types)


def _grows(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the outputs are large and larger than the inputs; such nodes are not folded."""
    before, after = (
        sum(math.prod(tensors[name].shape or ()) for name in names)
        for names in (node.inputs, node.outputs)
    )
    return after > max(before, _LARGE)


def _values(
    nodes: Sequence[Node], read: Container[str], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The values of the nodes' outputs that are in `read`; the nodes depend only on constants."""
    computed = dict.fromkeys(name for node in nodes for name in node.outputs)
    outputs = tuple(name for name in computed if name in read)
    if not outputs:
        return {}
    sources = dict.fromkeys(name for node in nodes for name in node.inputs if name not in computed)
    constants = [
        Node("CONST_SHAPE" if tensors[name].dtype is DType.SHAPE else "CONST", (), (name,))
        for name in sources
    ]
    needed = {name: tensors[name] for name in (*sources, *computed)}
    program, params = build(Graph((), outputs, needed, (*constants, *nodes)))
    # One program for all nodes: outside jit, each operation would be compiled by itself.
    _, _, values = jax.jit(program)(params, {})
    return {
        name: dataclasses.replace(tensors[name], values=y)
        for name, y in zip(outputs, values, strict=True)
    }


def _live(nodes: Sequence[Node], outputs: Sequence[str], keep_required: bool) -> tuple[Node, ...]:
    """The nodes that outputs, variables, subgraphs or flags depend on, in their old order."""
    read, live = set(outputs), []
    for node in reversed(nodes):
        if _is_kept(node, keep_required) or not read.isdisjoint(node.outputs):
            read.update(node.inputs)
            live.append(node)
    return tuple(reversed(live))
