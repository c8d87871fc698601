"""Matches the tensors of two graphs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tosajax.graph import Graph, Node
from tosajax.runtime.watch import activations


def match(a: Graph, b: Graph, names: Sequence[str]) -> dict[str, str]:
    """Maps tensors of a to tensors of b, both by name.

    Tensors match by name, if the same operator computes most pairs of one name; else nodes match
    by the order of equal operators and shapes. Outputs of equal shapes always match in their order.

    Args:
      a: a graph of known dimensions.
      b: a graph of known dimensions.
      names: tensors of a.

    Raises:
      ValueError: no tensor has a counterpart.
    """
    common = set(activations(a)) & set(activations(b))
    same = {n for n in common if a.tensors[n].shape == b.tensors[n].shape}
    pairs = {n: n for n in same} if _share_names(a, b, same, len(common)) else _in_order(a, b)
    if len(a.outputs) == len(b.outputs):
        pairs |= {
            x.name: y.name
            for x, y in zip(a.output_tensors, b.output_tensors, strict=True)
            if x.shape == y.shape
        }
    matched = {name: pairs[name] for name in names if name in pairs}
    if not matched:
        raise ValueError(f"graphs {a.name!r} and {b.name!r} have no tensor in common")
    return matched


def _share_names(a: Graph, b: Graph, same: set[str], common: int) -> bool:
    """Whether equal names mean the same tensor; not if an exporter numbers tensors per file."""
    in_a, in_b = _producers(a), _producers(b)
    kinds = [a.tensors[n].dtype.is_float == b.tensors[n].dtype.is_float for n in same]
    if not all(kinds):
        return bool(same)  # graphs of floats and of integers have different operators
    alike = sum(in_a[n].op == in_b[n].op for n in same)
    return 2 * alike > common


def _in_order(a: Graph, b: Graph) -> dict[str, str]:
    mine, theirs = (list(_producers(graph).items()) for graph in (a, b))
    keys = [
        [
            (node.op, graph.tensors[name].shape, graph.tensors[name].dtype)
            for name, node in producers
        ]
        for graph, producers in ((a, mine), (b, theirs))
    ]
    blocks = difflib.SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks()
    return {
        mine[block.a + i][0]: theirs[block.b + i][0] for block in blocks for i in range(block.size)
    }


def _producers(graph: Graph) -> dict[str, Node]:
    """For each tensor that depends on the inputs, in order, the node that computes it."""
    nodes = {name: node for node in graph.nodes for name in node.outputs}
    return {name: nodes[name] for name in activations(graph)}
