"""Float graphs whose products are of rounded operands, each with a scale; all else stays FP32.

The storage of an operand rounds it: an activation by nodes before its product, a constant in the
file, from which nodes read its real values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.graph.edit import Draft
from tosajax.quant.model.plan import Plan, Scaled
from tosajax.quant.model.recipes import Factor, Recipe, Value, Weight
from tosajax.quant.ranges.channels import along
from tosajax.quant.spec import Asked, QSpec, Rule
from tosajax.quant.storages import OperandStorage
from tosajax.report import UnsupportedError
from tosajax.spec import Kind


class Operand(NamedTuple):
    """A tensor that a node multiplies."""

    name: str
    spec: QSpec
    channel_axes: tuple[int, ...]  # of scales per channel; empty where it has none

    @property
    def storage(self) -> OperandStorage:
        """The storage, which is not of integers.

        Raises:
          UnsupportedError: it has no nodes that round an operand.
        """
        storage = self.spec.storage
        if not isinstance(storage, OperandStorage):
            raise UnsupportedError(f"{self.name!r}: {storage.name} is not for operands of products")
        return storage


# Operands by the rules.


def rounded_operands(graph: Graph, rules: Sequence[Rule]) -> dict[str, Operand]:
    """The operands of convolutions and MATMUL that rules give another type than integers.

    Returns:
      All operands by name, with scales per channel where all nodes want the same; or nothing.

    Raises:
      UnsupportedError: rules give these types to some of the operands, or to other tensors in a
        graph of integers; or one operand has two of them.
    """
    specs = [s for rule in rules for s in (rule.weight, rule.act) if s is not None]
    if all(s.storage.is_integer for s in specs):
        return {}
    asked = Asked(graph, rules)
    operands = [o for node in graph.ordered_nodes() for o in _operands(graph, node, asked)]
    kinds = {operand.spec.storage.is_integer: operand for operand in operands}
    if len(kinds) == 2:
        integers, rounded = kinds[True], kinds[False]
        name = rounded.spec.storage.name
        raise UnsupportedError(
            f"{integers.name!r}: {integers.spec.storage.name}, while {rounded.name!r} is {name}: "
            f"{name} is for all operands of convolutions and MATMUL, or for none; give it to "
            "weights and activations by rules"
        )
    if False in kinds:
        return _operands_by_name(operands)
    for tensor in graph.tensors.values():
        storage = asked.act(tensor.name).storage
        if not storage.is_integer and tensor.dtype.is_float and tensor.values is None:
            raise UnsupportedError(
                f"{tensor.name!r}: {storage.name}, which is for operands of convolutions and "
                "MATMUL, for all of them"
            )
    return {}


def _operands_by_name(operands: Sequence[Operand]) -> dict[str, Operand]:
    """The operands by name, each once."""
    joined: dict[str, Operand] = {}
    for operand in operands:
        first = joined.setdefault(operand.name, operand)
        if first.spec.storage != operand.spec.storage:
            raise UnsupportedError(
                f"{first.name!r}: {first.spec.storage.name} and {operand.spec.storage.name} for "
                "one tensor, expected one type: give it by rules"
            )
        if first.channel_axes != operand.channel_axes:
            joined[operand.name] = first._replace(channel_axes=())
    return joined


def _operands(graph: Graph, node: Node, asked: Asked) -> list[Operand]:
    """The operands of the products of a node."""
    operands = []
    for position, name in enumerate(_products(graph, node)):
        if position == 1 and graph.tensors[name].values is not None:
            wanted = asked.weight(node.outputs[0], name)
            channels = spec.OPERATORS[node.op].channel_axes.outputs
            operands.append(Operand(name, wanted, channels if wanted.per_channel else ()))
        else:
            operands.append(Operand(name, asked.act(name), ()))
    return operands


def _products(graph: Graph, node: Node) -> tuple[str, ...]:
    """The operands that a convolution of floats, or a MATMUL, multiplies; none of other nodes."""
    is_float = spec.OPERATORS[node.op].is_product and graph.tensors[node.inputs[0]].dtype.is_float
    return node.inputs[:2] if is_float else ()


# The graph.


def with_rounded_operands(graph: Graph, operands: Mapping[str, Operand]) -> tuple[Graph, Plan]:
    """Rounds the operands of all products of a graph.

    Args:
      graph: the graph, from `simplify`.
      operands: the operands from `rounded_operands`.

    Returns:
      The graph with placeholders for constants that have a recipe, and its plan. Tensors keep
      their names: activations are FP32 as before, "x/float8" is an activation x in its storage,
      and a constant w that only convolutions and MATMUL read is stored under its own name.
    """
    writer = Writer(graph, operands)
    for node in graph.ordered_nodes():
        writer.write(node)
    return writer.finished()


class Writer:
    """Writes a graph again, node by node, and the nodes that round operands between them."""

    def __init__(self, graph: Graph, operands: Mapping[str, Operand]) -> None:
        self._graph = graph
        self._operands = operands
        self._draft = Draft(graph)
        self._scaled: dict[str, Scaled] = {}
        self._owners: dict[str, str] = {}
        self._recipes: dict[str, Recipe] = {}
        self._rounded: dict[str, str] = {}  # for each operand, the tensor in its place
        self._shift: str | None = None
        self._read_as_float = _read_as_float(graph)

    def write(self, node: Node) -> None:
        """Writes a node of the graph, after the nodes that round its operands."""
        if node.op == "CONST" and node.outputs[0] in self._operands:
            if node.outputs[0] in self._read_as_float:
                self._draft.nodes.append(node)
            return
        for name in _trained_constants(self._graph, node):
            self._recipes[name] = Value(name)
        count = len(_products(self._graph, node))
        inputs = (*map(self._operand, node.inputs[:count]), *node.inputs[count:])
        self._draft.nodes.append(dataclasses.replace(node, inputs=inputs))

    def finished(self) -> tuple[Graph, Plan]:
        """The graph and its plan."""
        draft = self._draft
        graph = dataclasses.replace(self._graph, tensors=draft.tensors, nodes=tuple(draft.nodes))
        return graph, Plan(self._scaled, self._owners, self._recipes)

    # For storages.

    def add(self, op: str, *inputs: str, name: str, dtype: DType, **attributes: Any) -> str:
        """Adds a node whose output has the shape of its first input; the name of the output."""
        shape = self._draft.tensors[inputs[0]].shape
        output = self._draft.tensor(name, dtype, shape)
        self._draft.nodes.append(Node(op, inputs, (output,), attributes))
        return output

    def times(self, operand: Operand, x: str, name: str, *, is_reciprocal: bool = False) -> str:
        """The product of x and the scale of an operand, or its reciprocal, in FP32."""
        shape = self._graph.tensors[operand.name].shape or ()
        ones = along(operand.channel_axes, shape)
        label = f"{operand.name}/{'reciprocal' if is_reciprocal else 'scale'}"
        factor = self._draft.const(label, np.zeros(ones, np.float32), DType.FP32)
        self._recipes[factor] = Factor(operand.name, ones, is_reciprocal)
        if self._shift is None:
            label = f"{operand.storage.label}/shift"
            self._shift = self._draft.const(label, np.zeros(1, np.int8), DType.INT8)
        return self.add("MUL", x, factor, self._shift, name=name, dtype=DType.FP32)

    def _operand(self, name: str) -> str:
        """The FP32 tensor of the real values that an operand is rounded to."""
        if name not in self._rounded:
            operand = self._operands[name]
            is_constant = self._graph.tensors[name].values is not None
            stored = self._weight(operand) if is_constant else operand.storage.store(self, operand)
            axes = operand.channel_axes
            wanted = dataclasses.replace(operand.spec, per_channel=bool(axes))
            self._scaled[name], self._owners[stored] = Scaled(wanted, axes), name
            self._rounded[name] = operand.storage.widen(self, operand, stored)
        return self._rounded[name]

    def _weight(self, operand: Operand) -> str:
        """A constant, rounded in the file."""
        name, dtype = operand.name, operand.storage.dtype
        values = dtype.zeros(self._graph.tensors[name].shape or ())
        if name in self._read_as_float:
            stored = self._draft.const(f"{name}/{operand.storage.label}", values, dtype)
        else:
            stored = name
            self._draft.tensors[name] = Tensor(name, dtype, values.shape, values)
            self._draft.nodes.append(Node("CONST", (), (name,)))
        self._recipes[stored] = Weight(name, operand.spec.estimator)
        return stored


def _read_as_float(graph: Graph) -> set[str]:
    """The outputs, and the tensors that nodes do more with than multiply."""
    names = {name for node in graph.nodes for name in node.inputs[len(_products(graph, node)) :]}
    return {*names, *graph.outputs}


def _trained_constants(graph: Graph, node: Node) -> list[str]:
    """The FP32 constants of a node that are parameters: biases, and others of several elements.

    A constant of a single element is part of the function (an epsilon, a half), or a zero point.
    """
    products, trained = _products(graph, node), []
    for argument, names in arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT).items():
        for name in names if isinstance(names, tuple) else (names,):
            tensor = graph.tensors[name]
            if tensor.values is None or not tensor.dtype.is_float or name in products:
                continue
            if argument == "bias" or tensor.values.size > 1:
                trained.append(name)
    return trained
