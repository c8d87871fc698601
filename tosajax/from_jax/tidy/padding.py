"""Turns a PAD with zeros into the padding of the convolution that reads it."""

from __future__ import annotations

import dataclasses

from tosajax import spec
from tosajax.from_jax.written import Written
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft

_LONGEST = spec.LEVELS["8K"].MAX_KERNEL


def with_padding(written: Written) -> Written:
    """The graph with each PAD of spatial axes by zeros merged into the convolution after it."""
    graph = written.graph
    producers = {name: node for node in graph.nodes for name in node.outputs}
    draft = Draft(graph)
    for node in graph.ordered_nodes():
        before = producers.get(node.inputs[0]) if _has_padding(node) else None
        pad = None if before is None else _padding(graph, node, before)
        if before is not None and pad is not None:
            inputs = (before.inputs[0], *node.inputs[1:])
            attributes = {**node.attributes, "pad": pad}
            node = dataclasses.replace(node, inputs=inputs, attributes=attributes)
        draft.nodes.append(node)
    return Written(draft.finished(), written.origins)


def _has_padding(node: Node) -> bool:
    """Whether a node is a convolution with a `pad` attribute."""
    operator = spec.OPERATORS[node.op]
    return operator.is_product and "pad" in node.attributes


def _padding(graph: Graph, conv: Node, before: Node) -> tuple[int, ...] | None:
    """The joint padding of a convolution and a PAD before it; None if they cannot be merged."""
    if before.op != "PAD":
        return None
    widths, fill = (graph.tensors[name].values for name in before.inputs[1:])
    zero_point = graph.tensors[conv.inputs[3]].values
    if widths is None or fill is None or zero_point is None or fill.any() or zero_point.any():
        return None
    rows = widths.reshape(-1, 2)
    if rows[0].any() or rows[-1].any():  # It pads the batch or the channels.
        return None
    own = conv.attributes["pad"]
    both = tuple(int(a + b) for a, b in zip(own, rows[1:-1].reshape(-1), strict=True))
    return both if max(both) <= _LONGEST else None
