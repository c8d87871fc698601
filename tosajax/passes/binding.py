"""Binds a graph: replaces every -1 dimension by its size.

Converters leave the batch open: -1 in the shapes of tensors, and in the constant shapes that
RESHAPE and SLICE read. All sizes follow from the input shapes, node by node.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax import spec
from tosajax.arguments.types import check_type, count
from tosajax.checks import RULES, Call, Surroundings
from tosajax.dtypes import DType
from tosajax.graph import DYNAMIC, Graph, Node, Tensor, arguments, declared_variables, shape_fits
from tosajax.graph.edit import unused
from tosajax.report import Finding, Report, TosaError, Verdict
from tosajax.spec import Form, Kind
from tosajax.validation import check_form, refuse


def bind(
    graph: Graph, *, batch: int | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """Returns the graph with every dimension known.

    Args:
      graph: a graph with dimensions of -1; a graph without any is returned unchanged.
      batch: the size of each input's first dimension, where it is -1.
      shapes: complete shapes of inputs, by name, for inputs with other open dimensions.

    Raises:
      ValueError: an input's shape stays open, or contradicts the graph, or is of no input.
      TosaError: a shape does not follow from the inputs.

    Example:
      >>> import tosajax
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (-1, 4))
      >>> tosajax.bind(b.graph([b.op("REVERSE", x, axis=1)]), batch=8)
      Graph('main', (x: INT8[8,4]) -> (reverse_1: INT8[8,4]), 1 node)
    """
    check_type("graph", graph, Graph, "a Graph, as from tosajax.load")
    batch = None if batch is None else count("batch", batch)
    _check_shapes(graph, shapes or {})
    if not graph.is_dynamic:
        return graph
    check_form(graph)
    return bind_formed(graph, batch, shapes)


def bind_formed(
    graph: Graph,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """Does the work of `bind` for a graph with open dimensions that passed `check_form`."""
    inputs = [_bound_input(tensor, batch, shapes or {}) for tensor in graph.input_tensors]
    return _bound(graph, inputs, declared_variables(graph))


def _bound(
    graph: Graph, inputs: Sequence[Tensor], variables: Mapping[str, tuple[Tensor, ...]]
) -> Graph:
    """The graph with `inputs` as its input tensors, and the sizes that follow from them."""
    tensors = dict(graph.tensors) | {tensor.name: tensor for tensor in inputs}
    nodes: list[Node] = []
    subgraphs: dict[str, Graph] = {}
    for node in graph.ordered_nodes():
        try:
            node = _with_bound_graphs(node, graph, tensors, subgraphs, variables)
            nodes += _bound_node(node, tensors, Surroundings(subgraphs, variables))
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            if isinstance(error, TosaError):
                raise
            # An earlier node may be at fault: a meaningless shape may follow from it.
            so_far = dataclasses.replace(
                graph, tensors=tensors, subgraphs={**graph.subgraphs, **subgraphs}
            )
            for suspect in (*nodes, node):
                refuse(suspect, so_far, Surroundings(so_far.subgraphs, variables))
            raise _cannot(node, str(error)) from None
    return dataclasses.replace(
        graph, tensors=tensors, nodes=tuple(nodes), subgraphs=subgraphs or graph.subgraphs
    )


def _with_bound_graphs(
    node: Node,
    graph: Graph,
    tensors: Mapping[str, Tensor],
    subgraphs: dict[str, Graph],
    variables: Mapping[str, tuple[Tensor, ...]],
) -> Node:
    """The node with its subgraphs bound to the sizes of its inputs."""
    operator = spec.OPERATORS[node.op]
    attributes = dict(node.attributes)
    for argument in operator.attributes:
        if argument.form is not Form.GRAPH:
            continue
        part = graph.subgraphs[attributes[argument.name]]
        if part.is_dynamic:
            names = arguments(operator, node.inputs, Kind.INPUT)["input_list"]
            if len(names) != len(part.inputs):
                wanted = f"expected {len(part.inputs)} as in {argument.name} {part.name!r}"
                raise ValueError(f"input_list has {len(names)} tensors, {wanted}")
            inputs = [
                dataclasses.replace(theirs, shape=tensors[name].shape)
                for theirs, name in zip(part.input_tensors, names, strict=True)
            ]
            name = f"{part.name}.{len(subgraphs)}"
            part = dataclasses.replace(_bound(part, inputs, variables), name=name)
        subgraphs[part.name] = part
        attributes[argument.name] = part.name
    return dataclasses.replace(node, attributes=attributes)


def _check_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> None:
    for name, shape in shapes.items():
        if name not in graph.inputs:
            listed = ", ".join(map(repr, graph.inputs)) or "none"
            raise ValueError(f"shapes names {name!r}; inputs of the graph: {listed}")
        tensor = graph.tensors[name]
        if not shape_fits(tuple(shape), tensor.shape):
            raise ValueError(f"input {name!r} is {tensor}, it cannot have shape {tuple(shape)}")


def _bound_input(tensor: Tensor, batch: int | None, shapes: Mapping[str, Sequence[int]]) -> Tensor:
    declared = tensor.shape
    shape = tuple(shapes[tensor.name]) if tensor.name in shapes else declared
    if shape and shape[0] == DYNAMIC and batch is not None:
        shape = (batch, *shape[1:])
    if shape is None or DYNAMIC in shape:
        raise ValueError(f"input {tensor.name!r} is {tensor}: give batch= or shapes=")
    return dataclasses.replace(tensor, shape=shape)


def _bound_node(node: Node, tensors: dict[str, Tensor], around: Surroundings) -> list[Node]:
    """The node, preceded by its own constant shape if it needs one; sets its outputs' sizes."""
    nodes = _settled(node, tensors)
    for tensor in _output_tensors(nodes[-1], tensors, around):
        tensors[tensor.name] = tensor
    return nodes


def _settled(node: Node, tensors: dict[str, Tensor]) -> list[Node]:
    """The node with a constant shape that has -1 replaced by one of known sizes.

    Nodes that share a constant may need different sizes, so each gets its own.
    """
    if node.op not in ("RESHAPE", "SLICE"):
        return [node]
    call = Call(node, tensors)
    wanted = _reshape_shape(call) if node.op == "RESHAPE" else _slice_size(call)
    position = 1 if node.op == "RESHAPE" else 2
    old = tensors[node.inputs[position]]
    if old.values is None or wanted == tuple(old.values):
        return [node]
    name = unused(f"{old.name}.{node.outputs[0]}", tensors)
    tensors[name] = Tensor(name, DType.SHAPE, old.shape, np.asarray(wanted, np.int64))
    inputs = list(node.inputs)
    inputs[position] = name
    constant = Node("CONST_SHAPE", outputs=(name,))
    return [constant, dataclasses.replace(node, inputs=tuple(inputs))]


def _reshape_shape(call: Call) -> tuple[int, ...]:
    shape = call.shape
    if shape.count(DYNAMIC) != 1:
        return shape
    rest = -math.prod(shape)
    size = math.prod(call.input1.shape)
    return tuple(size // rest if d == DYNAMIC and rest > 0 else d for d in shape)


def _slice_size(call: Call) -> tuple[int, ...]:
    sizes = zip(call.size, call.start, call.input1.shape, strict=True)
    return tuple(f - s if size == DYNAMIC else size for size, s, f in sizes)


def _output_tensors(
    node: Node, tensors: Mapping[str, Tensor], around: Surroundings
) -> list[Tensor]:
    outputs = [tensors[name] for name in node.outputs]
    if all(t.shape is not None and DYNAMIC not in t.shape for t in outputs):
        return []
    rule = RULES[node.op].shape
    if rule is None:
        raise _cannot(node, "it does not follow from the inputs")
    shapes = rule(Call(node, tensors, around))
    return [_filled(node, t, s) for t, s in zip(outputs, shapes, strict=True)]


def _filled(node: Node, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor with its open sizes set; stated sizes stay, and validation checks them."""
    declared = tensor.shape if tensor.shape is not None else (DYNAMIC,) * len(shape)
    if len(declared) != len(shape):
        raise _cannot(node, f"{tensor.name!r} is {tensor}, its inputs make it {shape}")
    sizes = (s if d == DYNAMIC else d for d, s in zip(declared, shape, strict=True))
    return dataclasses.replace(tensor, shape=tuple(sizes))


def _cannot(node: Node, why: str) -> TosaError:
    finding = Finding(
        Verdict.ERROR, "graph.dynamic", f"cannot tell the output shape: {why}", node.title
    )
    return TosaError(Report((finding,)))
