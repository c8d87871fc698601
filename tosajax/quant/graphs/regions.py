"""Regions: which tensors are functions, element by element, of one other tensor.

A lookup table can replace the operators between the two: an activation function, or a function
that converters write as a dozen operators, as GELU or the square root in a layer norm.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.lowering.build import lower
from tosajax.quant.ranges.masks import REACHED

# Choices of this pass. Conversions of these chapters end in a RESCALE, where a CLAMP costs nothing.
_ENDING_IN_RESCALE = ("conv", "elementwise_binary", "pool", "products", "reduction")
# Integers compute these as well as a table would, and MUL by a constant.
_LINEAR = ("ADD", "CLAMP", "NEGATE", "SUB")
# A table with even steps is coarse where these are steep: near 0.
_STEEP = ("LOG", "POW", "RECIPROCAL", "RSQRT")


@dataclasses.dataclass(frozen=True)
class Function:
    """A tensor as a function of another, element by element.

    Args:
      source: the tensor that it is a function of, FP32.
      output: the tensor, FP32 and of the same shape.
      graph: computes `output` of `source`, as tensors of one element, shape (1,).
    """

    source: str
    output: str
    graph: Graph


def functions(graph: Graph) -> dict[str, Function]:
    """The tensors that lookup tables can compute, by name, in the order of the graph.

    A source is as far up as it can be. A tensor is listed if a node outside of functions reads
    it, or if it is an output of the graph; and only if more lies between it and its source than
    ADD, SUB, CLAMP, NEGATE and MUL by constants, which integers compute as well.

    Args:
      graph: the graph, from `simplify`.
    """
    origins = _origins(graph)
    sources = {
        name: origin.source
        for name, origin in origins.items()
        if origin.curved and graph.tensors[name].dtype.is_float
    }
    needed = _dependencies(graph, graph.outputs, {name: (read,) for name, read in sources.items()})
    return {name: _function(graph, sources[name], name) for name in sources if name in needed}


def covered(graph: Graph, functions: Mapping[str, Function]) -> frozenset[str]:
    """The tensors that need not be computed when these functions are tables.

    Args:
      graph: the graph, from `simplify`.
      functions: all functions of the graph or some, by output.
    """
    reads = {name: (function.source,) for name, function in functions.items()}
    nodes = [node for node in graph.nodes if node.op not in spec.CONSTANT_OPERATORS]
    computed = frozenset(name for node in nodes for name in node.outputs)
    return computed - _dependencies(graph, graph.outputs, reads)


def evaluate(function: Function, x: jax.Array | np.ndarray) -> jax.Array:
    """A function at some points, which may be traced.

    Args:
      function: any.
      x: float32, of one axis; at least one point.

    Returns:
      float32, the shape of x; infinite or NaN where an operator gives that.

    Raises:
      ValueError: x has another number of axes, or no points.
    """
    points = jnp.asarray(x, jnp.float32)
    if points.ndim != 1:
        raise ValueError(f"x has shape {points.shape}, expected one axis")
    run, params = lower(_with_length(function.graph, points.size))
    (y,) = run(params, points)
    return y


class Steep(NamedTuple):
    """A function that is steep where its source is near 0.

    Args:
      op: the steep operator: of 1/x, 1/sqrt(x), log(x) or x**p.
      is_moved: whether a positive number is added before it, so that the source may be negative.
    """

    op: str
    is_moved: bool


def steepness(function: Function) -> Steep | None:
    """How a function is steep near 0, as 1/sqrt(x + epsilon) is; None where it is not.

    Between the source and the operator are products with positive constants and sums with constants
    that are not negative, at most.
    """
    name, tensors, is_moved = function.source, function.graph.tensors, False
    for node in function.graph.ordered_nodes():
        if name not in node.inputs:
            continue
        constants = [n for n in node.inputs if tensors[n].values is not None]
        if len(constants) != len(node.inputs) - 1:
            return None
        if node.op in _STEEP:
            return Steep(node.op, is_moved) if node.inputs[0] == name else None
        numbers = [_values(tensors[n]) for n in constants if n in node.inputs[:2]]
        least = np.min([x.min() for x in numbers], initial=np.inf)
        if node.op not in ("ADD", "MUL") or least < 0 or (node.op == "MUL" and least == 0):
            return None
        is_moved = is_moved or (node.op == "ADD" and least > 0)
        (name,) = node.outputs
    return None


def steep_functions(graph: Graph, functions: Mapping[str, Function]) -> frozenset[str]:
    """The outputs of functions that are steep near 0 and defined for no negative source.

    Args:
      graph: the graph, from `simplify`.
      functions: the functions from `functions`.
    """
    positive = not_negative(graph)
    steep = {name: steepness(function) for name, function in functions.items()}
    # Logarithms and square roots of negative numbers are NaN.
    return frozenset(
        name
        for name, own in steep.items()
        if own is not None
        and (functions[name].source in positive or own in (("LOG", False), ("RSQRT", False)))
    )


def not_negative(graph: Graph) -> frozenset[str]:
    """The tensors that are never negative: exponentials, squares, sums of these and others.

    Args:
      graph: of floats.
    """
    names = {n for n, t in graph.tensors.items() if t.values is not None and np.all(t.values >= 0)}
    for node in graph.ordered_nodes():
        if _is_not_negative(node, names, graph.tensors):
            names.update(node.outputs)
    return frozenset(names)


def _is_not_negative(node: Node, names: Collection[str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether the results of a node are not negative, where those of `names` are not."""
    operator = spec.OPERATORS[node.op]
    if node.op in ("ABS", "EXP", "RSQRT", "SIGMOID") or _is_square(node):
        return True
    if node.op == "CLAMP":
        return float(node.attributes["min_val"]) >= 0
    floats = [n for n in node.inputs if tensors[n].dtype.is_float]
    if node.op == "MAXIMUM":
        return any(n in names for n in floats)
    if node.op in ("AVG_POOL2D", "REDUCE_SUM", "ADD", "MUL", "POW", "RECIPROCAL", "MINIMUM"):
        return all(n in names for n in floats)
    keeps = operator.keeps_scale or node.op == "SELECT"
    return keeps and bool(floats) and all(n in names for n in floats)


def _values(tensor: Tensor) -> np.ndarray:
    assert tensor.values is not None
    return tensor.values


class _Origin(NamedTuple):
    """The tensor that another is a function of; its own name, if nothing else.

    `curved`: an operator on the way does more than scale, move and clamp.
    """

    source: str
    curved: bool


def _origins(graph: Graph) -> dict[str, _Origin]:
    """The origin of every tensor, in the order of the graph."""
    origins = {name: _Origin(name, False) for name in graph.inputs}
    readers = Counter([*(name for node in graph.nodes for name in node.inputs), *graph.outputs])
    summed = {node.inputs[0] for node in graph.nodes if node.op == "REDUCE_SUM"}
    producers: dict[str, Node] = {}
    for node in graph.ordered_nodes():
        origin = _common_origin(node, origins, graph.tensors)
        # A sum of squares is one of integers, without a table.
        if origin is not None and (
            _is_fused(node, origin, producers, readers)
            or (_is_square(node) and readers[node.outputs[0]] == 1 and node.outputs[0] in summed)
        ):
            origin = None
        for name in node.outputs:
            origins[name] = origin or _Origin(name, False)
            producers[name] = node
    return origins


def _is_square(node: Node) -> bool:
    """Whether a node squares a tensor."""
    return node.op == "MUL" and node.inputs[0] == node.inputs[1]


def _common_origin(
    node: Node, origins: Mapping[str, _Origin], tensors: Mapping[str, Tensor]
) -> _Origin | None:
    """The origin of a node's output, if it is a function of one float tensor."""
    operands = [name for name in node.inputs if tensors[name].values is None]
    sources = {origins[name].source for name in operands}
    if len(sources) != 1 or not _is_elementwise(node, operands, tensors):
        return None
    (source,) = sources
    # A TABLE saturates products with the magnitudes of masks.
    is_small = all(
        np.all(np.abs(_values(tensors[n])) < REACHED) for n in node.inputs if n not in operands
    )
    linear = node.op in _LINEAR or (node.op == "MUL" and len(operands) == 1 and is_small)
    curved = not linear or any(origins[name].curved for name in operands)
    return _Origin(source, curved) if tensors[source].dtype.is_float else None


def _is_elementwise(node: Node, operands: Sequence[str], tensors: Mapping[str, Tensor]) -> bool:
    """Whether each element of the output depends on one element of each operand alone.

    Operands of one source have its shape, so that none of them is broadcast.
    """
    constants = [tensors[name] for name in node.inputs if name not in operands]
    operator = spec.OPERATORS[node.op]
    return (
        operator.is_elementwise
        and node.op != "RESCALE"
        and all(math.prod(tensor.shape or ()) == 1 for tensor in constants)
    )


def _is_fused(
    node: Node, origin: _Origin, producers: Mapping[str, Node], readers: Mapping[str, int]
) -> bool:
    """Whether a node is a CLAMP that belongs to the operator before it."""
    (name, *_) = node.inputs
    producer = producers.get(name)
    return (
        node.op == "CLAMP"
        and producer is not None
        and origin.source == name
        and readers[name] == 1
        and spec.OPERATORS[producer.op].chapter in _ENDING_IN_RESCALE
    )


def _dependencies(
    graph: Graph, names: Sequence[str], reads: Mapping[str, Sequence[str]]
) -> frozenset[str]:
    """The tensors that given ones depend on, themselves included.

    Args:
      graph: any.
      names: the tensors.
      reads: for some tensors, the tensors that replace the inputs of their nodes.
    """
    reads = {name: node.inputs for node in graph.nodes for name in node.outputs} | dict(reads)
    pending = list(names)
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(reads.get(name, ()))
    return frozenset(needed)


def _function(graph: Graph, source: str, output: str) -> Function:
    inside = _dependencies(graph, (output,), {source: ()})
    computed = inside - {source}
    nodes = [node for node in graph.ordered_nodes() if not computed.isdisjoint(node.outputs)]
    tensors = {name: _one_element(graph.tensors[name]) for name in inside}
    return Function(source, output, Graph((source,), (output,), tensors, tuple(nodes), name=output))


def _one_element(tensor: Tensor) -> Tensor:
    """A tensor of one element; a constant has one."""
    values = None if tensor.values is None else tensor.values.reshape(1)
    return dataclasses.replace(tensor, shape=(1,), values=values)


def _with_length(graph: Graph, length: int) -> Graph:
    """The graph of a function for tensors of `length` elements; constants broadcast."""
    tensors = {
        name: tensor if tensor.values is not None else dataclasses.replace(tensor, shape=(length,))
        for name, tensor in graph.tensors.items()
    }
    return dataclasses.replace(graph, tensors=tensors)
