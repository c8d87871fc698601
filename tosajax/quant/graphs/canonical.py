"""One form of operators that exporters write in several ways, so that other passes know one."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft
from tosajax.spec import NanMode

_LARGEST = np.float32(np.finfo(np.float32).max)


def with_canonical_operators(graph: Graph) -> Graph:
    """Writes MAXIMUM and MINIMUM with one number as CLAMP, POW by 2 as MUL, PReLU as one product.

    And has a SLICE of one operand of a CONCAT read the operand, which has a scale of its own; and
    a convolution without bias, for which exporters let many read the same zeros, read its own.

    A CLAMP goes into the RESCALE before it, where MAXIMUM would need a TABLE; and a sum of squares
    is a sum of products of integers. SELECT(x >= 0, x, x * slopes) becomes x * SELECT(x >= 0, 1,
    slopes), which is rounded once, where a choice between rounded numbers rounds them again.

    Args:
      graph: one part, of FP32, whose results of constants alone have been computed.
    """
    draft = Draft(graph)
    producers = {name: node for node in graph.nodes for name in node.outputs}
    users = Counter(name for node in graph.nodes for name in node.inputs)
    for node in graph.ordered_nodes():
        product = _scaled_choice(graph, producers, node)
        if product is not None:
            draft.nodes.extend(_chosen_product(draft, node, product))
        elif node.op == "SLICE":
            draft.nodes.append(_slice_of_operand(draft, producers, node))
        elif spec.OPERATORS[node.op].chapter == "conv":
            draft.nodes.append(_with_own_bias(draft, users, node))
        else:
            draft.nodes.append(_canonical(draft, node))
    return draft.finished()


def _slice_of_operand(draft: Draft, producers: Mapping[str, Node], node: Node) -> Node:
    """The SLICE, of an operand of a CONCAT where it takes no element of another one."""
    x, *bounds = node.inputs
    concat = producers.get(x)
    starts, sizes = (draft.tensors[name].values for name in bounds)
    if concat is None or concat.op != "CONCAT" or starts is None or sizes is None:
        return node
    axis: int = concat.attributes["axis"]
    begin = 0
    for operand in concat.inputs:
        end = begin + (draft.tensors[operand].shape or ())[axis]
        if begin <= starts[axis] and starts[axis] + sizes[axis] <= end:
            own_starts = np.array(starts)
            own_starts[axis] -= begin
            start = draft.const(f"{node.outputs[0]}/start", own_starts, DType.SHAPE)
            own = dataclasses.replace(node, inputs=(operand, start, bounds[1]))
            return _slice_of_operand(draft, producers, own)  # which may be a CONCAT as well
        begin = end
    return node


def _with_own_bias(draft: Draft, users: Mapping[str, int], node: Node) -> Node:
    """The convolution with a zero of its own for each channel, to be trained and corrected."""
    x, weight, bias, *zero_points = node.inputs
    tensor, channels = draft.tensors[bias], (draft.tensors[node.outputs[0]].shape or ())[-1:]
    is_own = users[bias] == 1 and tensor.shape == channels
    if is_own or tensor.values is None or tensor.values.any():
        return node
    zeros = np.zeros(channels, tensor.values.dtype)
    own = draft.const(f"{node.outputs[0]}/zeros", zeros, tensor.dtype)
    return dataclasses.replace(node, inputs=(x, weight, own, *zero_points))


def _scaled_choice(graph: Graph, producers: Mapping[str, Node], node: Node) -> Node | None:
    """The MUL of x by constants, one of the choices of a SELECT whose other choice is x."""
    if node.op != "SELECT":
        return None
    for x, scaled in (node.inputs[1:], reversed(node.inputs[1:])):
        product = producers.get(scaled)
        if product is None or product.op != "MUL" or x not in product.inputs[:2]:
            continue
        (factor,) = [name for name in product.inputs[:2] if name != x] or (x,)
        shapes = {graph.tensors[name].shape for name in (x, node.outputs[0])}
        if graph.tensors[factor].values is not None and len(shapes) == 1:
            return product
    return None


def _chosen_product(draft: Draft, node: Node, product: Node) -> list[Node]:
    """The product by a choice of factors, in place of a choice of products."""
    condition, *choices = node.inputs
    (output,) = node.outputs
    scaled, shift = product.outputs[0], product.inputs[2]
    x = choices[1 - choices.index(scaled)]
    (factor,) = [name for name in product.inputs[:2] if name != x]
    ones = np.ones((1,) * len(draft.tensors[factor].shape or ()), np.float32)
    one = draft.const(f"{output}/one", ones, DType.FP32)
    shapes = [draft.tensors[name].shape or () for name in (condition, factor)]
    chosen = draft.tensor(f"{output}/factor", DType.FP32, np.broadcast_shapes(*shapes))
    inputs = condition, *(factor if name == scaled else one for name in choices)
    return [
        dataclasses.replace(node, inputs=inputs, outputs=(chosen,)),
        Node("MUL", (x, chosen, shift), (output,), location=node.location),
    ]


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
