"""Checks whether a format has the element types of a graph."""

from __future__ import annotations

from collections.abc import Container

from tosajax.dtypes import DType
from tosajax.graph import Graph
from tosajax.report import UnsupportedError


def check_types(graph: Graph, types: Container[DType], form: str) -> None:
    """Checks the types of all tensors of a graph and its subgraphs.

    Args:
      graph: the graph to write.
      types: the types that files have.
      form: the format, as messages name it.

    Raises:
      UnsupportedError: a tensor has another type.
    """
    for part in graph.walk():
        for tensor in part.tensors.values():
            if tensor.dtype not in types:
                raise UnsupportedError(
                    f"tensor {tensor.name!r} is {tensor}: {form} has no tensors of "
                    f"{tensor.dtype.name}"
                )
