"""Makes a graph with an open batch by merging graphs for two batch sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tosajax.dtypes import DType
from tosajax.from_jax.names import renamed, with_room
from tosajax.graph import DYNAMIC, Graph, Tensor
from tosajax.graph.edit import unused
from tosajax.report import UnsupportedError

# Two batch sizes; other dimensions are rarely a multiple of them by chance.
SIZES = 5, 7


def of_batch(args: Sequence[Any], size: int) -> list[Any]:
    """The arguments as shapes and dtypes, for a given batch.

    Args:
      args: pytrees of arrays, or of shapes and dtypes. The first dimension of the first array is
        the batch. Every array whose first dimension has the same size is resized.
      size: the new batch.

    Raises:
      ValueError: the first array has no dimension.
    """
    leaves = jax.tree_util.tree_leaves(list(args))
    if not leaves or not np.shape(leaves[0]):
        raise ValueError("dynamic_batch: the first input has no dimension, expected a batch")
    batch = np.shape(leaves[0])[0]

    def resized(leaf: Any) -> jax.ShapeDtypeStruct:
        shape = tuple(np.shape(leaf))
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        return jax.ShapeDtypeStruct((size, *shape[1:]) if shape[:1] == (batch,) else shape, dtype)

    return jax.tree_util.tree_map(resized, list(args))


def merged(first: Graph, second: Graph) -> Graph:
    """Merges two graphs that differ only in sizes; sizes that differ become open dimensions.

    Raises:
      UnsupportedError: the graphs differ in more than sizes that follow from the inputs.
    """
    if [node.op for node in first.nodes] != [node.op for node in second.nodes]:
        raise _batch_dependence_error("the number of operators", "the same for any")
    ends = [
        [*g.inputs, *(name for node in g.nodes for name in node.outputs)] for g in (first, second)
    ]
    second = renamed(second, dict(zip(ends[1], ends[0], strict=True)))
    for a, b in zip(first.nodes, second.nodes, strict=True):
        if (a.inputs, dict(a.attributes)) != (b.inputs, dict(b.attributes)):
            raise _batch_dependence_error(a.title, "the same operands and attributes for any")
    tensors = {
        name: _merged(first, tensor, second.tensors[name]) for name, tensor in first.tensors.items()
    }
    parts = {name: merged(part, second.subgraphs[name]) for name, part in first.subgraphs.items()}
    result = dataclasses.replace(first, tensors=tensors, subgraphs=parts)
    return renamed(result, with_room(result, _shape_names(first, result)))


def _merged(graph: Graph, first: Tensor, second: Tensor) -> Tensor:
    """Merges two tensors; sizes that differ become open dimensions."""
    if first == second:
        return first
    if first.values is not None or first.shape is None or second.shape is None:
        return _merged_constant(graph, first, second)
    sizes = zip(first.shape, second.shape, strict=True)
    return dataclasses.replace(first, shape=tuple(a if a == b else DYNAMIC for a, b in sizes))


def _merged_constant(graph: Graph, first: Tensor, second: Tensor) -> Tensor:
    """Merges two constant shapes into one with a single open dimension, as `bind` expects."""
    readers = [node for node in graph.nodes if first.name in node.inputs]
    if first.dtype is not DType.SHAPE and not readers:
        raise _batch_dependence_error(f"output {first.name!r}", "one that does not")
    for node in readers:
        if first.dtype is not DType.SHAPE or node.op not in ("RESHAPE", "SLICE"):
            raise _batch_dependence_error(
                f"{first.name!r}, an operand of {node.title},", "one that does not"
            )
    assert first.values is not None
    assert second.values is not None
    differs = first.values != second.values
    if np.count_nonzero(differs) > 1:
        raise _batch_dependence_error(
            f"more than one size in {readers[0].title}", "one at most that does"
        )
    return dataclasses.replace(first, values=np.where(differs, DYNAMIC, first.values))


def _shape_names(before: Graph, after: Graph) -> dict[str, str]:
    """New names for the shapes with an open dimension, such as "shape_anyx8"."""
    names: dict[str, str] = {}
    for name, tensor in after.tensors.items():
        if tensor.values is not None and tensor != before.tensors[name]:
            sizes = ("any" if n == DYNAMIC else str(n) for n in tensor.values)
            names[name] = unused("shape_" + "x".join(sizes), {*after.tensors, *names.values()})
    return names


def _batch_dependence_error(part: str, wanted: str) -> UnsupportedError:
    return UnsupportedError(
        f"dynamic_batch: {part} depends on the batch, expected {wanted}; export for one example, "
        "and compile(graph, batch=...)"
    )
