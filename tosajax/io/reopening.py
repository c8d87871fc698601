"""Opens the batch of a graph again that a converter needs closed.

The file is converted at two sizes of the batch. Where the two graphs differ in sizes alone, those
that follow the batch are open in the result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax.graph import DYNAMIC, Graph, Node, Tensor

SIZES = (2, 3)  # of 1 a converter may make another graph


def opened(graphs: Sequence[Graph]) -> Graph | None:
    """The graph with an open batch; None where the graphs differ in more than sizes.

    Args:
      graphs: the same network, converted for batches of SIZES.
    """
    first, second = graphs
    if not _are_alike(first, second) or first.subgraphs:
        return None
    tensors: dict[str, Tensor] = {}
    readers = _readers(first)
    for name, tensor in first.tensors.items():
        joined = _joined(tensor, second.tensors[name], readers.get(name, ()), first.tensors)
        if joined is None:
            return None
        tensors[name] = joined
    return dataclasses.replace(first, tensors=tensors)


def _are_alike(first: Graph, second: Graph) -> bool:
    """Whether two graphs have the same nodes and tensors, apart from shapes and values."""
    return (
        first.nodes == second.nodes
        and (first.inputs, first.outputs) == (second.inputs, second.outputs)
        and first.tensors.keys() == second.tensors.keys()
    )


def _readers(graph: Graph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return readers


def _joined(
    first: Tensor, second: Tensor, readers: Sequence[Node], tensors: Mapping[str, Tensor]
) -> Tensor | None:
    """A tensor of both graphs, open where its size follows the batch; None where it cannot be."""
    if first == second:
        return first
    if first.shape is None or second.shape is None or first.dtype is not second.dtype:
        return None
    if first.values is None:
        shape = _open_sizes(first.shape, second.shape)
        return None if shape is None else dataclasses.replace(first, shape=shape)
    if second.values is None or first.shape != second.shape:
        return None
    values = _open_sizes(tuple(first.values.tolist()), tuple(second.values.tolist()))
    if values is None or not all(_takes(node, first, values, tensors) for node in readers):
        return None
    return dataclasses.replace(first, values=np.array(values, np.int64))


def _open_sizes(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Sizes, open where they follow the batch; None where they differ in another way."""
    if len(first) != len(second):
        return None
    pairs = list(zip(first, second, strict=True))
    if any(a != b and a * SIZES[1] != b * SIZES[0] for a, b in pairs):
        return None
    return tuple(a if a == b else DYNAMIC for a, b in pairs)


def _takes(
    node: Node, constant: Tensor, values: Sequence[int], tensors: Mapping[str, Tensor]
) -> bool:
    """Whether a node infers the open sizes of a constant shape that it reads."""
    if node.op == "RESHAPE":
        return values.count(DYNAMIC) == 1
    if node.op != "SLICE" or node.inputs[2] != constant.name:
        return False
    source, start = tensors[node.inputs[0]].shape, tensors[node.inputs[1]].values
    if source is None or start is None:
        return False
    parts = zip(values, constant.values, source, start, strict=True)
    return all(size != DYNAMIC or own == whole - first for size, own, whole, first in parts)
