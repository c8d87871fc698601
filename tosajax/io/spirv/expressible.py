"""Checks whether a module can express a graph."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.graph.type_rows import node_version
from tosajax.io.spirv.grammar import FLOATS, INSTRUCTION_SET, INTEGERS, NUMBERS
from tosajax.io.spirv.types import MOST_DIMENSIONS
from tosajax.report import UnsupportedError
from tosajax.versions import V1_0

_TYPES = {DType.BOOL, *INTEGERS.values(), *FLOATS.values()}
_FOLDED = (*spec.CONSTANT_OPERATORS, "IDENTITY")


def check(graph: Graph) -> None:
    """Checks that a module can express a graph.

    Raises:
      UnsupportedError: SPIR-V lacks an operator or a type of the graph, subgraphs, or graphs
        without outputs.
      ValueError: the graph is not well formed.
    """
    for node in graph.nodes:
        _check_operator(node, graph)
        for name in (*node.inputs, *node.outputs):
            if name not in graph.tensors:
                raise ValueError(f"{node.title}: tensor {name!r} is not declared")
    if graph.subgraphs or not graph.outputs:
        what = "with subgraphs" if graph.subgraphs else "without outputs"
        raise UnsupportedError(f"graph {graph.name!r}: SPIR-V has no graph {what}")
    for name in (*graph.inputs, *graph.outputs):
        if name not in graph.tensors:
            raise ValueError(f"tensor {name!r}, of the graph's ends, is not declared")
    for tensor in _written(graph):
        reason = _refused(tensor)
        if reason:
            raise UnsupportedError(f"tensor {tensor.name!r} is {tensor}: SPIR-V has no {reason}")


def _check_operator(node: Node, graph: Graph) -> None:
    if node.op not in spec.OPERATORS:
        raise ValueError(f"{node.title}: {node.op!r} is not an operator of TOSA 1.0")
    version = node_version(node, graph.tensors)
    if version > V1_0:
        have = f"the instruction set {INSTRUCTION_SET} has TOSA {V1_0}"
        raise UnsupportedError(f"{node.title} needs TOSA {version}: {have}")
    if node.op not in NUMBERS and node.op not in _FOLDED:
        raise UnsupportedError(f"{node.title}: SPIR-V has no {node.op}")


def _written(graph: Graph) -> Iterator[Tensor]:
    """Yields the tensors that a module declares as tensors; shapes are constant lists."""
    shapes = {name for n in graph.nodes if n.op == "CONST_SHAPE" for name in n.outputs}
    ends = (*graph.inputs, *graph.outputs)
    names = (*ends, *(n for node in graph.nodes for n in (*node.inputs, *node.outputs)))
    for name in dict.fromkeys(names):
        if name not in shapes or name in ends:
            yield graph.tensors[name]


def _refused(tensor: Tensor) -> str:
    """The property of a tensor that a module cannot express, for a message; "" if none."""
    if tensor.dtype not in _TYPES:
        return f"tensors of {tensor.dtype.name}"
    if tensor.shape is None:
        return ""
    if not 0 < len(tensor.shape) <= MOST_DIMENSIONS:
        return f"tensors of rank {len(tensor.shape)}"
    sizes = [dim for dim in tensor.shape if dim != DYNAMIC]
    for dim in sizes:
        if not 0 < dim < 1 << 32:
            return f"dimension of {dim}"
    return "tensors with some open dimensions" if 0 < len(sizes) < len(tensor.shape) else ""
