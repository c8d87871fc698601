"""Tensors that only elementwise operators read: sums of residuals, and what goes into them.

No product multiplies them, so that INT16 costs them no multiply-accumulate, and operators of the
base profile move them and add them up: neither a TABLE nor a CLAMP of INT16 is among them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft
from tosajax.quant.graphs.blocks import readers_by_tensor
from tosajax.quant.graphs.regions import Function, covered
from tosajax.quant.graphs.regions import functions as functions_of

_SUMS = ("ADD", "SUB")
_ENDS = ("min_val", "max_val")
_WINDOW = 9  # elements of the window of a MAX_POOL2D that makes an image smaller


def is_relu(low: float | None, high: float | None) -> bool:
    """Whether the bounds of a CLAMP are 0 and none."""
    return low == 0 and high is not None and high >= float(np.finfo(np.float32).max)


def elementwise_operands(graph: Graph, functions: Mapping[str, Function]) -> set[str]:
    """The computed float tensors that reach nothing but elementwise operators.

    Through operators that pass elements on, and copies of `with_narrow_copies`.

    Args:
      graph: from `simplify`.
      functions: its functions, by output: TABLEs, which read INT8.
    """
    inside = covered(graph, functions)
    inner, tables = _inner(graph, inside), {*functions, *inside}
    readers = readers_by_tensor(graph)
    names: set[str] = set()
    for node in reversed(graph.ordered_nodes()):
        for name in node.outputs:
            wide = [_reads_wide(reader, names, tables) for reader in readers.get(name, ())]
            if name in inner and wide and all(wide):
                names.add(name)
    return names


def with_narrow_copies(graph: Graph) -> Graph:
    """A graph in which terms of residual sums that other operators read have a copy for these.

    The sum reads the tensor itself, which may then have more bits than the copy.

    Args:
      graph: from `simplify`.
    """
    added = _terms_of_sums(graph)
    draft = Draft(graph)
    copies: dict[str, str] = {}
    for node in graph.ordered_nodes():
        inputs = [copies[x] if x in copies and node not in added[x] else x for x in node.inputs]
        draft.nodes.append(dataclasses.replace(node, inputs=tuple(inputs)))
        for name in added.keys() & {*node.outputs}:
            copies[name] = draft.tensor(f"{name}/copy", DType.FP32, graph.tensors[name].shape)
            draft.nodes.append(Node("IDENTITY", (name,), (copies[name],)))
    return draft.finished()


def moved_into(graph: Graph, names: Collection[str]) -> list[str]:
    """Some tensors, and those whose elements they have."""
    found = dict.fromkeys(names)
    for node in reversed(graph.ordered_nodes()):
        if spec.OPERATORS[node.op].moves and not found.keys().isdisjoint(node.outputs):
            found |= dict.fromkeys(node.inputs)
    return list(found)


def operands_of_maxima(graph: Graph) -> set[str]:
    """The tensors of whose elements a maximum over many is taken, and those they are computed from.

    Back to products. The greatest values alone are left of them, so that none is an outlier.
    """
    names: set[str] = set()
    for node in reversed(graph.ordered_nodes()):
        operator = spec.OPERATORS[node.op]
        goes_on = operator.is_elementwise or operator.keeps_scale
        if _is_maximum(node) or (goes_on and not names.isdisjoint(node.outputs)):
            names.update(node.inputs)
    return names


def _is_maximum(node: Node) -> bool:
    """Whether a node takes the maximum over an axis, or over a large window."""
    kernel = node.attributes.get("kernel", ())
    return node.op == "REDUCE_MAX" or (node.op == "MAX_POOL2D" and math.prod(kernel) > _WINDOW)


def _terms_of_sums(graph: Graph) -> dict[str, list[Node]]:
    """Terms of residual sums that other nodes read as well, and the nodes that lead to the sums.

    A residual sum adds computed tensors of one shape; operators may pass terms on to it.
    """
    found = functions_of(graph)
    inside = covered(graph, found)
    inner, tables = _inner(graph, inside), {*found, *inside}
    readers = readers_by_tensor(graph)
    passed: set[str] = set()  # tensors that all readers lead to sums
    terms: dict[str, list[Node]] = {}
    for node in reversed(graph.ordered_nodes()):
        for name in inner.intersection(node.outputs):
            leading = [
                reader
                for reader in readers.get(name, ())
                if (_is_residual_sum(graph, reader) and not tables.intersection(reader.outputs))
                or (_passes(reader) and passed.issuperset(reader.outputs))
            ]
            if leading and len(leading) == len(readers[name]):
                passed.add(name)
            elif leading:
                terms[name] = leading
    return terms


def _inner(graph: Graph, inside: Collection[str]) -> set[str]:
    """The computed float tensors but outputs, bounded ones, and those inside of functions.

    ReLU is no bound where it follows a sum that nothing else reads: it is MAXIMUM in INT32.
    """
    readers = readers_by_tensor(graph)
    sums = {name for node in graph.nodes if node.op in _SUMS for name in node.outputs}

    def is_bounded(node: Node) -> bool:
        if node.op != "CLAMP":
            return False
        (x,) = node.inputs
        is_alone = x in sums and len(readers[x]) == 1 and x not in graph.outputs
        return not (is_alone and is_relu(*(float(node.attributes[end]) for end in _ENDS)))

    return {
        name
        for node in graph.nodes
        if node.op not in spec.CONSTANT_OPERATORS and not is_bounded(node)
        for name in node.outputs
        if graph.tensors[name].dtype.is_float
    }.difference(graph.outputs, inside)


def _reads_wide(reader: Node, names: set[str], tables: set[str]) -> bool:
    """Whether a node reads INT16 at no cost of products, given the tensors known to be wide."""
    if reader.op == "CLAMP" or not tables.isdisjoint(reader.outputs):
        return False
    is_elementwise = spec.OPERATORS[reader.op].is_elementwise or reader.op == "IDENTITY"
    return is_elementwise or (_passes(reader) and names.issuperset(reader.outputs))


def _passes(node: Node) -> bool:
    """Whether a node passes elements on, in INT16 without an extension of the integer profile."""
    operator = spec.OPERATORS[node.op]
    wide = [row for row in operator.types if row.types.get("in_out_t") is DType.INT16]
    is_base = any(frozenset({"PRO-INT"}) in row.needs for row in wide)
    return operator.chapter == "data_layout" and node.op != "IDENTITY" and is_base


def _is_residual_sum(graph: Graph, node: Node) -> bool:
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    is_computed = all(tensor.values is None for tensor in tensors)
    return node.op in _SUMS and is_computed and len({tensor.shape for tensor in tensors}) == 1
