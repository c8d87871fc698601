"""One form of operators that exporters write in several ways, so that other passes know one."""

from __future__ import annotations

import dataclasses

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft
from tosajax.spec import NanMode

_LARGEST = np.float32(np.finfo(np.float32).max)


def with_canonical_operators(graph: Graph) -> Graph:
    """Writes MAXIMUM and MINIMUM with one number as CLAMP, and POW by 2 as MUL.

    A CLAMP goes into the RESCALE before it, where MAXIMUM would need a TABLE; and a sum of squares
    is a sum of products of integers.

    Args:
      graph: one part, of FP32, whose results of constants alone have been computed.
    """
    draft = Draft(graph)
    draft.nodes.extend(_canonical(draft, node) for node in graph.ordered_nodes())
    return draft.finished()


def _canonical(draft: Draft, node: Node) -> Node:
    tensors, (output,) = draft.tensors, node.outputs[:1] or ("",)
    if node.op not in ("MAXIMUM", "MINIMUM", "POW") or not tensors[output].dtype.is_float:
        return node
    for x, other in (node.inputs, reversed(node.inputs)):
        values = tensors[other].values
        if values is None or values.size != 1 or tensors[x].shape != tensors[output].shape:
            continue
        number = np.float32(values.reshape(()))
        if node.op == "POW" and number == 2 and x == node.inputs[0]:
            shift = draft.const(f"{output}/shift", np.zeros(1, np.int8), DType.INT8)
            return dataclasses.replace(node, op="MUL", inputs=(x, x, shift), attributes={})
        # MINIMUM gives the number in place of NaN where it ignores these, and CLAMP its least one.
        is_alike = node.op == "MAXIMUM" or _nan_mode(node) is NanMode.PROPAGATE
        if node.op != "POW" and np.isfinite(number) and is_alike:
            return _clamp(node, x, number)
    return node


def _clamp(node: Node, x: str, number: np.float32) -> Node:
    low, high = (number, _LARGEST) if node.op == "MAXIMUM" else (-_LARGEST, number)
    attributes = {"min_val": low, "max_val": high, "nan_mode": _nan_mode(node)}
    return dataclasses.replace(node, op="CLAMP", inputs=(x,), attributes=attributes)


def _nan_mode(node: Node) -> NanMode:
    return node.attributes.get("nan_mode", NanMode.PROPAGATE)
