"""Checks the structure of a graph: names, producers, order and sizes of its tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor
from tosajax.report import Finding, TosaError, Verdict
from tosajax.spec.target import Target
from tosajax.versions import is_in, needed

OPEN = "tensor.dynamic"


def error(label: str, message: str, node: Node | None = None) -> Finding:
    return Finding(Verdict.ERROR, label, message, node.title if node else None)


def structure_findings(graph: Graph) -> Iterator[Finding]:
    yield from _undeclared(graph)
    yield from _producers(graph)
    for node in graph.nodes:
        try:
            spec.operator_named(node.op)
        except ValueError as problem:
            yield error("graph.operator", str(problem), node)
    try:
        graph.ordered_nodes()
    except TosaError as problem:
        yield from problem.report.findings


def _undeclared(graph: Graph) -> Iterator[Finding]:
    for what, names in (("graph input", graph.inputs), ("graph output", graph.outputs)):
        for name in names:
            if name not in graph.tensors:
                yield error("graph.undefined", f"{what} {name!r} is not declared")
            elif graph.tensors[name].dtype is DType.SHAPE:
                yield error("graph.shape", f"{what} {name!r} is a shape, expected a tensor")
    for name, count in Counter(graph.inputs).items():
        if count > 1:
            yield error("graph.duplicate", f"input {name!r} is listed {count} times")
    for node in graph.nodes:
        for name in (*node.inputs, *node.outputs):
            if name not in graph.tensors:
                yield error("graph.undefined", f"tensor {name!r} is not declared", node)


def _producers(graph: Graph) -> Iterator[Finding]:
    """Checks that every tensor read has exactly one origin: a node or a graph input."""
    origin: dict[str, Node | None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        for name in node.outputs:
            if name in origin:
                other = origin[name]
                by = f"{other.op} also writes it" if other else "it is a graph input"
                yield error("graph.duplicate", f"output {name!r} has two origins: {by}", node)
            origin[name] = node
    for node in graph.nodes:
        for name in node.inputs:
            source = origin.get(name)
            if name not in origin:
                yield error("graph.undefined", f"no node produces tensor {name!r}", node)
            elif source is not None and source.op == "VARIABLE":
                message = f"tensor {name!r} is a variable"
                yield error(
                    "graph.variable", f"{message}, expected an output of VARIABLE_READ", node
                )
    for name in graph.outputs:
        source = origin.get(name)
        if name not in origin:
            yield error("graph.undefined", f"no node produces the graph output {name!r}")
        elif source is not None and source.op == "VARIABLE":
            yield error("graph.variable", f"the graph output {name!r} is a variable", source)
    for name, tensor in graph.tensors.items():
        node = origin.get(name)
        constant = node is not None and node.op in (*spec.CONSTANT_OPERATORS, "VARIABLE")
        if tensor.values is not None and tensor.variable is None and not constant:
            yield error("graph.constant", f"tensor {name!r} has values and no CONST", node)


def tensor_findings(graph: Graph, target: Target) -> Iterator[Finding]:
    limit = 1 << min(target.limits.MAX_LOG2_SIZE, 63)
    for tensor in graph.tensors.values():
        if not is_in(tensor.dtype, target.version):
            stated = f"tensor {tensor.name!r} is {tensor}, which needs {needed(tensor.dtype)}"
            where = f"{target} of TOSA {target.version}"
            yield error("tensor.version", f"{stated}, target is {where}")
        if tensor.dtype is DType.SHAPE:
            continue
        if tensor.shape is None:
            yield error("tensor.rank", f"tensor {tensor.name!r} has no rank: bind its shape")
        elif DYNAMIC in tensor.shape:
            stated = f"tensor {tensor.name!r} is {tensor}, expected known dimensions"
            yield error(OPEN, f"{stated}: bind them, for instance with batch=1")
        elif any(d < 1 for d in tensor.shape):
            yield from illegal_dimensions([tensor])
        elif math.prod(tensor.shape) * max(tensor.dtype.bits // 8, 1) >= limit:
            message = f"tensor {tensor.name!r} is {tensor}, above the level's size of {limit} bytes"
            yield Finding(Verdict.UNPREDICTABLE, "tensor.size", message)


def illegal_dimensions(tensors: Iterable[Tensor]) -> Iterator[Finding]:
    """The tensors with dimensions that are neither open nor positive."""
    for tensor in tensors:
        is_shape = tensor.dtype is DType.SHAPE or tensor.shape is None
        if not is_shape and any(d < 1 and d != DYNAMIC for d in tensor.shape or ()):
            message = f"tensor {tensor.name!r} has shape {tensor.shape}"
            yield error("tensor.shape", f"{message}, expected dimensions of at least 1")
