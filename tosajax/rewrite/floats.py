"""Computes layers of an integer graph in floats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft, in_all_parts
from tosajax.graph.locations import matches
from tosajax.report import UnsupportedError
from tosajax.rewrite import _float_ops
from tosajax.rewrite._float_ops import Floats

_ACCUMULATORS = (DType.INT32, DType.INT48)


def to_float(graph: Graph, where: str | None = None) -> Graph:
    """The graph with chosen layers computed in FP32, without rounding inside them.

    A layer is a chosen operator, with the RESCALE and CLAMP after it if nothing else reads its
    output. Adjacent layers form a region. Integers that enter a region become floats; floats that
    nodes outside the region read are rounded to integers once (ties to even). Inside a region,
    each float is the unrounded value of the integer it replaces: RESCALE multiplies by its factor,
    and saturates to the range of its type as before. Weights and biases keep their integer values.
    To remove the rounding of one tensor, choose the layers before and after it.

    Convolutions, MATMUL, RESCALE, CLAMP, ADD, SUB, MUL, pooling, reductions and data layout can be
    computed in floats. Other operators, unsigned RESCALEs, and nodes that would need casts of int48
    stay as they are.

    Args:
      graph: a legal integer graph; ranks are known.
      where: a regular expression, found in the nodes' outputs or locations; None for all.

    Raises:
      ValueError: no node matches.
      UnsupportedError: no matching node can be computed in floats.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant, rewrite
      >>> w, example = np.float32([[1, -2], [3, 4]]), np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x @ w, example_args=[example])
      >>> graph = rewrite.to_float(model.freeze(quant.calibrate(model, [example])))
      >>> {graph.tensors[node.outputs[0]].dtype.name for node in graph.nodes if node.op == "CONV2D"}
      {'FP32'}
    """
    floats, count = in_all_parts(graph, lambda part: _of_part(part, where))
    if not count:
        raise _none(graph, where)
    return floats


def _of_part(graph: Graph, where: str | None) -> tuple[Graph, int]:
    """The graph with its chosen nodes in floats, and their number; subgraphs stay unchanged."""
    chosen = _chosen(graph, where)
    draft = Draft(graph)
    floats = Floats(draft)
    for node in graph.ordered_nodes():
        if node in chosen:
            floats.location = node.location
            floats.give(node.outputs[0], getattr(_float_ops, node.op.lower())(floats, node))
            continue
        for name in node.inputs:
            floats.round(name)
        draft.nodes.append(node)
    for name in graph.outputs:
        floats.round(name)
    return draft.finished(), len(chosen)


def _chosen(graph: Graph, where: str | None) -> set[Node]:
    """The nodes to compute in floats."""
    possible = {node for node in graph.nodes if _is_possible(graph, node)}
    matched = {node for node in possible if matches(node, where)}
    chosen = _with_following(graph, matched, possible)
    while wide := matched & _at_wide_edges(graph, chosen):
        matched -= wide
        chosen = _with_following(graph, matched, possible)
    return chosen


def _with_following(graph: Graph, matched: Set[Node], possible: Set[Node]) -> set[Node]:
    """The matched nodes, and the RESCALE and CLAMP that are the only readers of their outputs."""
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    readers.update(graph.outputs)
    chosen, computed = set(matched), {name for node in matched for name in node.outputs}
    for node in graph.ordered_nodes():
        if node in possible and _continues(graph, node):
            (name, *_) = node.inputs
            if name in computed and readers[name] == 1:
                chosen.add(node)
                computed.update(node.outputs)
    return chosen


def _continues(graph: Graph, node: Node) -> bool:
    """Whether the node is a RESCALE of an accumulator, or a CLAMP."""
    if node.op == "RESCALE":
        return graph.tensors[node.inputs[0]].dtype in _ACCUMULATORS
    return node.op == "CLAMP"


def _is_possible(graph: Graph, node: Node) -> bool:
    """Whether the node can be computed in floats."""
    if not hasattr(_float_ops, node.op.lower()):
        return False
    dtypes = [graph.tensors[n].dtype for n in (*node.inputs, *node.outputs)]
    if not all(dtype.is_integer or dtype is DType.SHAPE for dtype in dtypes):
        return False
    unsigned = ("input_unsigned", "output_unsigned")
    if node.op == "RESCALE" and any(node.attributes[name] for name in unsigned):
        return False
    fixed = (n for n in _float_ops.constants_of(node) if graph.tensors[n].values is None)
    return next(fixed, None) is None


def _at_wide_edges(graph: Graph, chosen: Set[Node]) -> set[Node]:
    """Chosen nodes with an int48 input or output outside the region, as CAST lacks int48."""
    inside = {name for node in chosen for name in node.outputs}
    read = {name for node in graph.nodes if node not in chosen for name in node.inputs}
    read.update(graph.outputs)

    def is_edge(node: Node) -> bool:
        taken = [n for n in node.inputs if n not in inside and graph.tensors[n].values is None]
        results = [n for n in node.outputs if n in read]
        return any(graph.tensors[n].dtype is DType.INT48 for n in (*taken, *results))

    return {node for node in chosen if is_edge(node)}


def _none(graph: Graph, where: str | None) -> Exception:
    """The error to raise if no node can be computed in floats."""
    nodes = [n for part in graph.walk() for n in part.nodes if n.inputs and matches(n, where)]
    if not nodes:
        return ValueError(f"no node of graph {graph.name!r} matches {where!r}")
    return UnsupportedError(f"{nodes[0].title} cannot be computed in floats, and stays as it is")
