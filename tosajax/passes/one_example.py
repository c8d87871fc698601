"""Binds a graph with an open batch to one example, if examples are independent.

A converter leaves the batch open, and in a usual network every operator keeps it as the first
dimension. Where each node provably does, the graph computes each example by itself, so that
examples can run in micro-batches and on several devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from tosajax import spec
from tosajax.checks import Call
from tosajax.graph import DYNAMIC, Graph, Node, Tensor, arguments, declared_variables
from tosajax.passes.binding import bind_formed
from tosajax.report import TosaError
from tosajax.spec import Kind


def one_example(graph: Graph) -> Graph | None:
    """The graph for one example, if the examples of a batch are independent.

    Args:
      graph: a graph that passed `check_form`.

    Returns:
      The graph bound to a batch of 1, or None if examples may depend on each other.
    """
    if declared_variables(graph):
        return None
    for tensor in graph.input_tensors:
        if not tensor.shape or tensor.shape[0] == 1 or DYNAMIC in tensor.shape[1:]:
            return None
    try:
        one, two = (bind_formed(graph, size) for size in (1, 2))
    except (TosaError, ValueError):
        return None
    own = {t.name for t in graph.input_tensors if t.shape and t.shape[0] == DYNAMIC}
    for node in two.ordered_nodes():
        if own.isdisjoint(node.inputs):
            continue
        if not all(_grows(one.tensors[name], two.tensors[name]) for name in node.outputs):
            return None
        if not _keeps_examples(node, two, own):
            return None
        own.update(node.outputs)
    apart = all(t.name in own and t.shape and t.shape[0] == 1 for t in one.output_tensors)
    return one if apart else None


def _grows(one: Tensor, two: Tensor) -> bool:
    """Whether the first dimension, and only it, is proportional to the batch.

    Args:
      one: the tensor with a batch of 1.
      two: the tensor with a batch of 2.
    """
    small, large = one.shape or (0,), two.shape or (0,)
    return 2 * small[0] == large[0] > 0 and small[1:] == large[1:]


def _keeps_examples(node: Node, graph: Graph, own: set[str]) -> bool:
    """Whether example n of each output depends only on example n of the inputs."""
    call, operator = Call(node, graph.tensors), spec.OPERATORS[node.op]
    others = [graph.tensors[name] for name in node.inputs if name not in own]
    if node.op == "RESCALE":
        return len(call.output.shape) > 1 or not call.per_channel
    if node.op in ("TABLE", "MUL"):  # the last input is a table or a shift, without a batch
        return node.inputs[-1] not in own and _broadcasts(others[:-1], call.output)
    if operator.is_elementwise or node.op == "IDENTITY":
        return _broadcasts(others, call.output)
    if operator.chapter == "reduction":
        return call.axis != 0
    if batched := _batched(node, graph):
        return batched <= own and own.isdisjoint(set(node.inputs) - batched)
    match node.op:
        case "ARGMAX" | "REVERSE":
            return call.axis != 0
        case "CONCAT":
            return call.axis != 0 and own.issuperset(node.inputs)
        case "PAD":
            return tuple(call.padding[:2]) == (0, 0)
        case "RESHAPE":
            return True  # examples are the first dimension of input and output
        case "SLICE":
            return call.size[0] == call.input1.shape[0]
        case "TILE":
            return call.multiples[0] == 1
        case "TRANSPOSE":
            return call.perms[0] == 0
        case _:
            return False


def _batched(node: Node, graph: Graph) -> set[str]:
    """The inputs whose first dimension is a batch, by definition or as D that is N."""
    operator = spec.OPERATORS[node.op]
    operands = arguments(operator, node.inputs, Kind.INPUT)
    sizes = {name: (graph.tensors[name].shape or (1,))[0] for name in node.inputs}
    return {
        operands[a.name]
        for a in operator.inputs
        if a.shape.startswith("[N,") or (a.broadcasts and sizes[operands[a.name]] > 1)
    }


def _broadcasts(others: Sequence[Tensor], output: Tensor) -> bool:
    """Whether the operands without a batch are the same for each example."""
    rank = len(output.shape or ())
    return all(t.shape is not None and (*(1,) * rank, *t.shape)[-rank] == 1 for t in others)
