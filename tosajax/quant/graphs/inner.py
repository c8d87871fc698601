"""Tensors that only elementwise operators read: sums of residuals, and what goes into them.

No product multiplies them, so that INT16 costs them no multiply-accumulate, and operators of the
base profile move them and add them up: neither a TABLE nor a CLAMP of INT16 is among them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft
from tosajax.quant.graphs.blocks import readers_by_tensor
from tosajax.quant.graphs.regions import covered, functions

_SUMS = ("ADD", "SUB")
_ENDS = ("min_val", "max_val")


def is_relu(low: float | None, high: float | None) -> bool:
    """Whether the bounds of a CLAMP are 0 and none."""
    return low == 0 and high is not None and high >= float(np.finfo(np.float32).max)


def elementwise_operands(graph: Graph) -> set[str]:
    """The computed float tensors that reach nothing but elementwise operators.

    Through operators that pass elements on, and copies of `with_narrow_copies`.
    """
    inner, tables = _inner(graph), _tables(graph)
    readers = readers_by_tensor(graph)
    names: set[str] = set()
    for node in reversed(graph.ordered_nodes()):
        for name in node.outputs:
            wide = [_reads_wide(reader, names, tables) for reader in readers.get(name, ())]
            if name in inner and wide and all(wide):
                names.add(name)
    return names


def with_narrow_copies(graph: Graph) -> Graph:
    """A graph in which operands of sums that other operators read have a copy for these.

    The sum reads the tensor itself, which may then have more bits than the copy.

    Args:
      graph: from `simplify`.
    """
    inner, tables = _inner(graph), _tables(graph)
    readers = readers_by_tensor(graph)
    draft = Draft(graph)
    copies: dict[str, str] = {}

    def adds(reader: Node) -> bool:
        """Whether all that a node passes on is added to other tensors."""
        after = [r for output in reader.outputs for r in readers.get(output, ())]
        passes = bool(after) and all(map(adds, after)) and reader.op != "IDENTITY"
        wide = reader.outputs if passes and inner.issuperset(reader.outputs) else ()
        return _reads_wide(reader, wide, tables) and (_is_sum(graph, reader) or bool(wide))

    for node in graph.ordered_nodes():
        inputs = node.inputs if adds(node) else [copies.get(x, x) for x in node.inputs]
        draft.nodes.append(dataclasses.replace(node, inputs=tuple(inputs)))
        for name in inner.intersection(node.outputs):
            reads_wide = [adds(reader) for reader in readers.get(name, ())]
            if any(reads_wide) and not all(reads_wide):
                copies[name] = draft.tensor(f"{name}/copy", DType.FP32, graph.tensors[name].shape)
                draft.nodes.append(Node("IDENTITY", (name,), (copies[name],)))
    return draft.finished()


def _inner(graph: Graph) -> set[str]:
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
    }.difference(graph.outputs, covered(graph, functions(graph)))


def _tables(graph: Graph) -> set[str]:
    """The tensors that a TABLE computes, or leaves out."""
    found = functions(graph)
    return {*found, *covered(graph, found)}


def _reads_wide(reader: Node, names: Collection[str], tables: Collection[str]) -> bool:
    if not set(tables).isdisjoint(reader.outputs) or reader.op == "CLAMP":
        return False
    operator = spec.OPERATORS[reader.op]
    if operator.chapter == "data_layout" and reader.op != "IDENTITY":
        return _is_in_base_profile(reader.op) and set(names).issuperset(reader.outputs)
    return operator.is_elementwise or reader.op == "IDENTITY"


def _is_in_base_profile(op: str) -> bool:
    """Whether the integer profile has the operator in INT16 without an extension."""
    rows = spec.OPERATORS[op].types
    wide = [row for row in rows if row.types.get("in_out_t") is DType.INT16]
    return any(frozenset({"PRO-INT"}) in row.needs for row in wide)


def _is_sum(graph: Graph, node: Node) -> bool:
    """Whether a node adds two computed tensors."""
    return node.op in _SUMS and all(graph.tensors[x].values is None for x in node.inputs)
