"""What an integer graph costs a processor: cycles, and bytes of activations."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.summary import macs_of
from tosajax.spec.rates import Rates

_SAME_MEMORY = {"IDENTITY", "RESHAPE"}
_FUSED = {"CAST", "CLAMP", "TABLE"}  # with the node in front, if nothing else reads that
_RESCALED = {"CAST", "CLAMP", "RESCALE"}  # what another RESCALE does not become a part of
_FREE_CHAPTERS = {"control_flow", "custom", "data_nodes", "shape", "variable"}
_READERS = {"indices", "reduction"}  # chapters of operators that read more than they write


def cycles(graph: Graph, rates: Rates) -> float:
    """The cycles of a processor for one run, without those that wait for memory.

    RESCALEs, CLAMPs and TABLEs that follow what they change are no steps of their own, nor are
    RESCALEs around an operator with two inputs, if all of these and the result have one type. Each
    loop runs once, and of a COND_IF both branches; CUSTOM operators count nothing.

    Args:
      graph: a legal graph of known dimensions, of integers; values of constants are not needed.
      rates: of the processor.
    """
    total = 0.0
    for part in graph.walk():
        fused = _fused(part).into
        steps = [node for node in part.nodes if fused.keys().isdisjoint(node.outputs)]
        total += sum(_node_cycles(node, part, rates) for node in steps)
    return total


def arena_bytes(graph: Graph) -> int:
    """The most bytes of activations at once, if nodes run in order and each tensor is whole.

    What `cycles` does not count as a step has no tensor of its own, nor have RESHAPE and IDENTITY.
    Those of loops and branches are not counted.

    Args:
      graph: a legal graph of known dimensions.
    """
    fused = _fused(graph)
    changes = np.zeros(len(graph.nodes) + 2, np.int64)
    for name, (begin, end) in _lifetimes(graph, fused).items():
        tensor = graph.tensors[name]
        size = tensor.dtype.nbytes(tensor.shape or ())
        changes[begin] += size
        changes[end + 1] -= size
    return int(np.cumsum(changes).max(initial=0))


class _Fused(NamedTuple):
    """What is no step of its own.

    Args:
      into: the node that each of these nodes is part of, by output.
      tensors: those between the two.
    """

    into: dict[str, Node]
    tensors: set[str]

    def step(self, node: Node) -> Node:
        """The node that is the step of a node."""
        while node.outputs and node.outputs[0] in self.into:
            node = self.into[node.outputs[0]]
        return node


def _fused(graph: Graph) -> _Fused:
    around = _Around.of(graph)
    found = _Fused({}, set())
    for node in graph.nodes:
        if node.op != "RESCALE" and node.op not in _FUSED:
            continue
        (name, *_), (output, *_) = node.inputs, node.outputs
        source, later = around.producers.get(name), around.readers.get(output, [])
        if source is not None and around.is_alone(name) and _takes(source, node, around):
            found.into[output] = source
            found.tensors.add(name)
        elif node.op == "RESCALE" and around.is_alone(output) and _takes(later[0], node, around):
            found.into[output] = later[0]
            found.tensors.add(output)
    return found


class _Around(NamedTuple):
    """The producers and readers of the tensors of a graph."""

    graph: Graph
    producers: dict[str, Node]
    readers: dict[str, list[Node]]

    @classmethod
    def of(cls, graph: Graph) -> _Around:
        producers = {name: node for node in graph.nodes for name in node.outputs}
        readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return cls(graph, producers, readers)

    def is_alone(self, name: str) -> bool:
        """Whether one node reads a tensor, and it is no output."""
        return len(self.readers.get(name, ())) == 1 and name not in self.graph.outputs

    def ends(self, node: Node) -> set[DType]:
        """The types of what an operator with two inputs reads and writes, RESCALEs included."""
        names = []
        for name in node.inputs[:2]:
            source = self.producers.get(name)
            names.append(source.inputs[0] if source and source.op == "RESCALE" else name)
        output, later = node.outputs[0], self.readers.get(node.outputs[0], [])
        names += [later[0].outputs[0] if len(later) == 1 and later[0].op == "RESCALE" else output]
        return {self.graph.tensors[name].dtype for name in names}


def _takes(other: Node, node: Node, around: _Around) -> bool:
    """Whether a node is part of the one in front of it, or of the one behind it."""
    operator = spec.OPERATORS[other.op]
    is_behind = node.inputs[0] in other.outputs
    if _has_operands(other) and node.op == "RESCALE":
        is_wide = around.graph.tensors[node.inputs[0]].dtype is DType.INT16
        return len(around.ends(other)) == 1 or (is_wide and not is_behind)
    if not is_behind or operator.chapter in _FREE_CHAPTERS or operator.moves:
        return False
    return node.op != "RESCALE" or other.op not in _RESCALED


def _has_operands(node: Node) -> bool:
    """Whether a node takes the elements of several tensors together."""
    operator = spec.OPERATORS[node.op]
    return operator.is_elementwise and sum(a.is_data for a in operator.inputs) > 1


def _node_cycles(node: Node, graph: Graph, rates: Rates) -> float:
    """The cycles of a node that is a step of its own."""
    operator = spec.OPERATORS[node.op]
    if node.op in _SAME_MEMORY or operator.chapter in _FREE_CHAPTERS:
        return 0.0
    if _has_operands(node):
        return _elements(node.outputs, graph) / rates.elements
    if operator.is_product:
        return _wide(node, graph, rates) * _filled_macs(node, graph, rates) / rates.macs
    names = node.inputs[:1] if operator.chapter in _READERS else node.outputs
    return _wide(node, graph, rates) * _elements(names, graph) / rates.moves


def _wide(node: Node, graph: Graph, rates: Rates) -> float:
    """How many times as long a node takes as with INT8."""
    before, after = (graph.tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    if node.op == "RESCALE":
        if before is DType.INT32:
            return rates.wide**2
        return 1 if before is after is DType.INT8 else rates.wide
    return rates.wide if DType.INT16 in (before, after) else 1


def _filled_macs(node: Node, graph: Graph, rates: Rates) -> float:
    """The multiply-accumulates of a product, with those by the zeros that fill up its kernel."""
    operator, macs = spec.OPERATORS[node.op], macs_of(node, graph)
    shape = graph.tensors[node.inputs[1]].shape or ()
    taps = math.prod(shape[axis] for axis in operator.window_axes)
    depth = math.prod(shape[a] for a in operator.summed_axes if a not in operator.window_axes)
    filled = _filled(depth, rates.depth)
    kernel = filled * (_filled(taps, rates.taps) if filled <= rates.depth else taps)
    return macs * kernel / max(1, depth * taps)


def _filled(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _elements(names: Collection[str], graph: Graph) -> int:
    return sum(math.prod(graph.tensors[name].shape or ()) for name in names)


def _lifetimes(graph: Graph, fused: _Fused) -> dict[str, tuple[int, int]]:
    """The first and the last step that needs each tensor, by name; constants are left out."""
    nodes = [node for node in graph.ordered_nodes() if node.op not in spec.CONSTANT_OPERATORS]
    places = {node.outputs: place for place, node in enumerate(nodes)}
    same: dict[str, str] = {}  # the tensor whose memory another one has
    needs = [(name, 0) for name in graph.inputs]
    for node in nodes:
        if node.op in _SAME_MEMORY:
            same[node.outputs[0]] = same.get(node.inputs[0], node.inputs[0])
        place = places[fused.step(node).outputs]
        needs += [(name, place) for name in (*node.inputs, *node.outputs)]
    needs += [(name, max(0, len(nodes) - 1)) for name in graph.outputs]
    stored = {name for node in nodes for name in node.outputs}.union(graph.inputs) - fused.tensors
    lives: dict[str, tuple[int, int]] = {}
    for name, place in needs:
        own = same.get(name, name)
        if own in stored:
            begin, end = lives.get(own, (place, place))
            lives[own] = min(begin, place), max(end, place)
    return lives
