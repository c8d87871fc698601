"""Random edits of a legal graph, most of which make it illegal.

Each edit takes a source of randomness and a graph, and returns another graph, or None where it
does not apply.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from reference import values as elements
from reference.growth import Case, Random
from tosajax import DType, Graph, Node, Tensor, spec

Edit = Callable[[Random, Graph], Graph | None]

_DTYPES = [d for d in DType if d is not DType.SHAPE]
_OPERATORS = [o for o in spec.OPERATORS.values() if o.inputs and o.chapter != "custom"]


def apply(random: Random, case: Case) -> tuple[str, Case]:
    """A random edit of the graph: its name, and the case with inputs that fit the edited graph."""
    while True:
        edit = random.choice(EDITS)
        try:
            graph = edit(random, case.graph)
        except IndexError:  # earlier edits left it no choice
            continue
        if graph is not None and graph != case.graph:
            rng = np.random.default_rng(random.getrandbits(32))
            inputs = {n: _input(rng, graph.tensors[n], case) for n in graph.inputs}
            return edit.__name__, Case(graph, inputs)


def _input(rng: np.random.Generator, tensor: Tensor, case: Case) -> np.ndarray:
    """Elements for an input: the former ones, of an input or a constant, if they still fit."""
    shape = tensor.shape or ()
    old = case.inputs.get(tensor.name, case.graph.tensors[tensor.name].values)
    if old is not None and old.shape == shape and old.dtype == tensor.dtype.storage:
        return old
    return elements.draw(rng, tensor.dtype, shape)


# Tensors.


def change_type(random: Random, graph: Graph) -> Graph | None:
    tensor = _any_tensor(random, graph)
    return _retyped(graph, tensor, dtype=random.choice(_DTYPES)) if tensor else None


def change_dimension(random: Random, graph: Graph) -> Graph | None:
    tensor = _any_tensor(random, graph)
    if tensor is None or not tensor.shape:
        return None
    dims = list(tensor.shape)
    axis = random.randrange(len(dims))
    dims[axis] = random.choice([dims[axis] + 1, dims[axis] - 1, 2 * dims[axis], 0, 1])
    return _retyped(graph, tensor, shape=tuple(dims))


def change_rank(random: Random, graph: Graph) -> Graph | None:
    tensor = _any_tensor(random, graph)
    if tensor is None:
        return None
    dims = list(tensor.shape or ())
    axis = random.randint(0, len(dims))
    dims[axis : axis + random.randint(0, 1)] = random.choice([[], [1], [1, 1, 1, 1]])
    return _retyped(graph, tensor, shape=tuple(dims))


def change_constant(random: Random, graph: Graph) -> Graph | None:
    """Other elements of a constant: a zero point, a shape, a multiplier."""
    found = [t for t in graph.tensors.values() if t.values is not None and t.values.size]
    if not found:
        return None
    tensor = random.choice(found)
    values = np.array(tensor.values)
    at = random.randrange(values.size)
    with np.errstate(all="ignore"):
        near = values.flat[at] + random.choice([-1, 1])
        number = random.choice([0, 1, 2, 3, 5, -1, 7, near])
        values.flat[at] = np.asarray(number).astype(values.dtype)
    return _with_tensor(graph, dataclasses.replace(tensor, values=values))


def change_constant_length(random: Random, graph: Graph) -> Graph | None:
    """One element more or less in a list: a shape, a multiplier, a table."""
    found = [t for t in graph.tensors.values() if t.values is not None and len(t.shape or ()) == 1]
    if not found:
        return None
    tensor = random.choice(found)
    (length,) = tensor.shape or (0,)
    return _retyped(graph, tensor, shape=(length + random.choice([-1, 1]),))


def make_input(random: Random, graph: Graph) -> Graph | None:
    """A constant becomes an input of the graph: EXT-DYNAMIC allows that, except for shapes."""
    found = [n for n in graph.nodes if n.op in spec.CONSTANT_OPERATORS]
    if not found:
        return None
    node = random.choice(found)
    (name,) = node.outputs
    graph = _with_tensor(graph, dataclasses.replace(graph.tensors[name], values=None))
    nodes = tuple(n for n in graph.nodes if n is not node)
    return dataclasses.replace(graph, nodes=nodes, inputs=(*graph.inputs, name))


# Nodes.


def change_attribute(random: Random, graph: Graph) -> Graph | None:
    node = _any_node(random, graph)
    if not node.attributes:
        return None
    name = random.choice(sorted(node.attributes))
    attributes = {**node.attributes, name: _other(random, node.attributes[name])}
    return _with_node(graph, node, dataclasses.replace(node, attributes=attributes))


def _other(random: Random, value: Any) -> Any:
    if isinstance(value, tuple):
        values = list(value)
        at = random.randrange(len(values) or 1)
        if values and random.random() < 0.8:
            values[at] = _other(random, values[at])
        else:
            values[at : at + 1] = random.choice([[], [1, 1]])
        return tuple(values)
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, enum.Enum):
        return random.choice(list(type(value)))
    if isinstance(value, int):
        return random.choice([value + 1, value - 1, 2 * value, -value, 0, 9000])
    number = random.choice([value + value.dtype.type(1), -value, value.dtype.type(0)])
    return value.dtype.type(number)


def change_operator(random: Random, graph: Graph) -> Graph | None:
    """Another operator of as many arguments and the same attributes."""
    node = _any_node(random, graph)
    alike = [
        o.name
        for o in _OPERATORS
        if len(o.inputs) == len(node.inputs)
        and len(o.outputs) == len(node.outputs)
        and {a.name for a in o.attributes} == node.attributes.keys()
    ]
    op = random.choice(alike or [node.op])
    return _with_node(graph, node, dataclasses.replace(node, op=op))


def drop_operand(random: Random, graph: Graph) -> Graph | None:
    return _with_operands(random, graph, lambda names, at: [*names[:at], *names[at + 1 :]])


def repeat_operand(random: Random, graph: Graph) -> Graph | None:
    return _with_operands(random, graph, lambda names, at: [*names, names[at]])


def swap_operands(random: Random, graph: Graph) -> Graph | None:
    return _with_operands(random, graph, lambda names, at: [*names[at:], *names[:at]])


def replace_operand(random: Random, graph: Graph) -> Graph | None:
    """The node reads another tensor, perhaps a later one or its own output."""
    other = random.choice(sorted(graph.tensors))
    return _with_operands(random, graph, lambda names, at: [*names[:at], other, *names[at + 1 :]])


def drop_result(random: Random, graph: Graph) -> Graph | None:
    node = _any_node(random, graph)
    return _with_node(graph, node, dataclasses.replace(node, outputs=node.outputs[1:]))


def repeat_result(random: Random, graph: Graph) -> Graph | None:
    node, other = _any_node(random, graph), _any_node(random, graph)
    outputs = (*node.outputs, *other.outputs[:1])
    return _with_node(graph, node, dataclasses.replace(node, outputs=outputs))


def drop_node(random: Random, graph: Graph) -> Graph | None:
    node = random.choice(graph.nodes)
    return dataclasses.replace(graph, nodes=tuple(n for n in graph.nodes if n is not node))


def repeat_node(random: Random, graph: Graph) -> Graph | None:
    return dataclasses.replace(graph, nodes=(*graph.nodes, random.choice(graph.nodes)))


def reorder_nodes(random: Random, graph: Graph) -> Graph | None:
    return dataclasses.replace(graph, nodes=tuple(random.sample(graph.nodes, len(graph.nodes))))


# The graph's ends.


def repeat_output(random: Random, graph: Graph) -> Graph | None:
    return dataclasses.replace(graph, outputs=(*graph.outputs, random.choice(graph.outputs)))


def add_output(random: Random, graph: Graph) -> Graph | None:
    """Any tensor becomes an output: a constant, a shape, an input."""
    return dataclasses.replace(
        graph, outputs=(*graph.outputs, random.choice(sorted(graph.tensors)))
    )


def drop_input(random: Random, graph: Graph) -> Graph | None:
    return dataclasses.replace(graph, inputs=graph.inputs[1:]) if graph.inputs else None


def repeat_input(random: Random, graph: Graph) -> Graph | None:
    if not graph.inputs:
        return None
    return dataclasses.replace(graph, inputs=(*graph.inputs, random.choice(graph.inputs)))


def add_input(random: Random, graph: Graph) -> Graph | None:
    """A tensor that a node writes becomes an input."""
    name = random.choice(graph.outputs)
    return dataclasses.replace(graph, inputs=(*graph.inputs, name))


EDITS: tuple[Edit, ...] = (
    *(change_type, change_dimension, change_rank, change_constant, change_constant_length) * 3,
    *(change_attribute,) * 5,
    make_input,
    change_operator,
    drop_operand,
    repeat_operand,
    swap_operands,
    replace_operand,
    drop_result,
    repeat_result,
    drop_node,
    repeat_node,
    reorder_nodes,
    repeat_output,
    add_output,
    drop_input,
    repeat_input,
    add_input,
)


def _any_tensor(random: Random, graph: Graph) -> Tensor | None:
    found = [t for t in graph.tensors.values() if t.dtype is not DType.SHAPE]
    return random.choice(found) if found else None


def _any_node(random: Random, graph: Graph) -> Node:
    return random.choice([n for n in graph.nodes if n.op not in spec.CONSTANT_OPERATORS])


def _retyped(graph: Graph, tensor: Tensor, **changes: Any) -> Graph | None:
    """The tensor with another type or shape; a constant's elements are cut or repeated to fit."""
    changed = dataclasses.replace(tensor, values=None, **changes)
    if min(changed.shape or (1,)) < 0:
        return None
    if tensor.values is not None:
        dtype = changed.dtype
        with np.errstate(all="ignore"):
            values = np.resize(tensor.values, changed.shape or ()).astype(dtype.storage)
        if dtype.is_integer:
            values = np.clip(values, dtype.minimum, dtype.maximum)
        changed = dataclasses.replace(changed, values=values)
    return _with_tensor(graph, changed)


def _with_tensor(graph: Graph, tensor: Tensor) -> Graph:
    return dataclasses.replace(graph, tensors={**graph.tensors, tensor.name: tensor})


def _with_node(graph: Graph, old: Node, new: Node) -> Graph:
    return dataclasses.replace(graph, nodes=tuple(new if n is old else n for n in graph.nodes))


def _with_operands(
    random: Random, graph: Graph, change: Callable[[tuple[str, ...], int], list[str]]
) -> Graph | None:
    node = _any_node(random, graph)
    if not node.inputs:
        return None
    names = change(node.inputs, random.randrange(len(node.inputs)))
    return _with_node(graph, node, dataclasses.replace(node, inputs=tuple(names)))
