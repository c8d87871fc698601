"""Graphs of any batch: what two graphs of different batches have in common."""

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

# Two sizes that few other dimensions have a multiple of by chance; differences show either way.
SIZES = 5, 7


def of_batch(args: Sequence[Any], size: int) -> list[Any]:
    """The arguments as shapes and types, with another first dimension.

    Args:
      args: arrays, or shapes and types, in pytrees. The first dimension of the first array is the
        batch; all that have the same one follow.

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


def merged(one: Graph, other: Graph) -> Graph:
    """The graph that both are, with open dimensions where they differ.

    Raises:
      UnsupportedError: they differ in more than sizes that follow from the inputs.
    """
    if [node.op for node in one.nodes] != [node.op for node in other.nodes]:
        raise _depends("the number of operators", "the same for any")
    ends = [[*g.inputs, *(name for node in g.nodes for name in node.outputs)] for g in (one, other)]
    other = renamed(other, dict(zip(ends[1], ends[0], strict=True)))
    for a, b in zip(one.nodes, other.nodes, strict=True):
        if (a.inputs, dict(a.attributes)) != (b.inputs, dict(b.attributes)):
            raise _depends(a.title, "the same operands and attributes for any")
    tensors = {
        name: _merged(one, tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    }
    parts = {name: merged(part, other.subgraphs[name]) for name, part in one.subgraphs.items()}
    found = dataclasses.replace(one, tensors=tensors, subgraphs=parts)
    return renamed(found, with_room(found, _shape_names(one, found)))


def _merged(graph: Graph, one: Tensor, other: Tensor) -> Tensor:
    """The tensor that both are."""
    if one == other:
        return one
    if one.values is not None or one.shape is None or other.shape is None:
        return _merged_constant(graph, one, other)
    sizes = zip(one.shape, other.shape, strict=True)
    return dataclasses.replace(one, shape=tuple(a if a == b else DYNAMIC for a, b in sizes))


def _merged_constant(graph: Graph, one: Tensor, other: Tensor) -> Tensor:
    """A shape with one open dimension, as `bind` finds it."""
    readers = [node for node in graph.nodes if one.name in node.inputs]
    if one.dtype is not DType.SHAPE and not readers:
        raise _depends(f"output {one.name!r}", "one that does not")
    for node in readers:
        if one.dtype is not DType.SHAPE or node.op not in ("RESHAPE", "SLICE"):
            raise _depends(f"{one.name!r}, an operand of {node.title},", "one that does not")
    assert one.values is not None
    assert other.values is not None
    differs = one.values != other.values
    if np.count_nonzero(differs) > 1:
        raise _depends(f"more than one size in {readers[0].title}", "one at most that does")
    return dataclasses.replace(one, values=np.where(differs, DYNAMIC, one.values))


def _shape_names(before: Graph, after: Graph) -> dict[str, str]:
    """Names of shapes that are open now, which tell so."""
    names: dict[str, str] = {}
    for name, tensor in after.tensors.items():
        if tensor.values is not None and tensor != before.tensors[name]:
            sizes = ("any" if n == DYNAMIC else str(n) for n in tensor.values)
            names[name] = unused("shape_" + "x".join(sizes), {*after.tensors, *names.values()})
    return names


def _depends(what: str, wanted: str) -> UnsupportedError:
    return UnsupportedError(
        f"dynamic_batch: {what} depends on the batch, expected {wanted}; export for one example, "
        "and compile(graph, batch=...)"
    )
