"""Converts a graph of a module to a Graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Source, Tensor
from tosajax.io.spirv import grammar
from tosajax.io.spirv.attributes import integers, read_attribute
from tosajax.io.spirv.grammar import Op
from tosajax.io.spirv.module import Body, EntryPoint, Module
from tosajax.io.spirv.types import StructType, TensorType, Type, describe
from tosajax.io.spirv.words import Header, Instruction, quoted
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import Argument, Form, Operator


class Read(NamedTuple):
    """A graph read from a module.

    Args:
      graph: the graph, whose tensors have generated names such as "conv2d_12".
      wishes: the module's names of tensors, by generated name; they need not be unique.
      entry: the graph's entry point.
    """

    graph: Graph
    wishes: Mapping[str, str]
    entry: EntryPoint


class Results(NamedTuple):
    """The names of the tensors that an instruction returns in a struct."""

    names: tuple[str, ...]


def read_graph(module: Module, name: str | None) -> Read:
    """Reads the graph of an entry point; see `Module.entry_point` for `name`.

    Raises:
      FormatError: the graph is not well formed.
      UnsupportedError: the graph uses something that TOSA 1.0 does not have.
      ValueError: the entry point does not exist.
    """
    entry = module.entry_point(name)
    if entry.graph not in module.bodies:
        name = quoted(entry.name)
        raise FormatError(f"entry point {name} is of %{entry.graph}, which is not a graph")
    body = module.bodies[entry.graph]
    _check_interface(module, entry, body)
    reader = _Reader(module, entry, body)
    return Read(reader.graph(), reader.wishes, entry)


def _check_interface(module: Module, entry: EntryPoint, body: Body) -> None:
    """Checks that an entry point's variables match the inputs and outputs of its graph."""
    wanted = *body.type.inputs, *body.type.outputs
    if len(entry.interface) != len(wanted):
        message = f"entry point {quoted(entry.name)} has {len(entry.interface)} variables"
        raise FormatError(f"{message}, and its graph {len(wanted)} inputs and outputs")
    for variable, type_ in zip(entry.interface, wanted, strict=True):
        stated = module.variables.get(variable)
        if stated != type_:
            raise FormatError(
                f"variable %{variable} is {describe(stated)}, and the graph's {type_}"
            )


def _source(module: Module) -> Source:
    """The source of a module's graph: its version, and the program that wrote it."""
    major, minor = module.header.version
    version = f"{major}.{minor}"
    if grammar.INSTRUCTION_SET in module.sets.values():
        version += f", {grammar.INSTRUCTION_SET}"
    return Source("SPIR-V", version, _producer(module.header))


def _producer(header: Header) -> str:
    if not header.tool:
        return ""
    return f"{grammar.TOOLS.get(header.tool, f'tool {header.tool:#06x}')} {header.tool_version}"


class _Reader:
    """Reads the graph of one entry point."""

    def __init__(self, module: Module, entry: EntryPoint, body: Body) -> None:
        self.module, self.entry, self.body = module, entry, body
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.wishes: dict[str, str] = {}
        self.values: dict[int, str | Results] = {}  # tensor names or results, by id
        self.constants: dict[tuple[int, bool], str] = {}  # by id, and whether it is a shape
        self.inputs = tuple(
            self._declare(f"input_{index}", type_) for index, type_ in enumerate(body.type.inputs)
        )
        self.outputs: dict[int, str] = {}  # by index

    def graph(self) -> Graph:
        for instruction in self.body.instructions:
            try:
                self._read(instruction)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(f"{self._title(instruction)}: {error}") from None
        wanted = range(len(self.body.type.outputs))
        for index in wanted:
            if index not in self.outputs:
                raise FormatError(f"graph {quoted(self.entry.name)} does not set output {index}")
        ends = self.inputs, tuple(self.outputs[index] for index in wanted)
        for name, variable in zip((*ends[0], *ends[1]), self.entry.interface, strict=True):
            self._wish(name, variable)
        nodes, name = tuple(self.nodes), self.entry.name
        return Graph(*ends, self.tensors, nodes, name=name, source=_source(self.module))

    def _title(self, instruction: Instruction) -> str:
        """The name of an instruction in messages: for a node, its operator and result."""
        if instruction.opcode == Op.OpExtInst and len(instruction.operands) > 3:
            _, id, set_, number = instruction.operands[:4]
            ours = self.module.sets.get(set_) == grammar.INSTRUCTION_SET
            if ours and number in grammar.INSTRUCTIONS:
                name = self.module.names.get(id)
                return f"{grammar.INSTRUCTIONS[number]} {quoted(name) if name else f'%{id}'}"
        return str(instruction)

    def _read(self, instruction: Instruction) -> None:
        match instruction.opcode:
            case Op.OpGraphInputARM:
                self._input(instruction)
            case Op.OpGraphSetOutputARM:
                self._output(instruction)
            case Op.OpCompositeExtract:
                self._extract(instruction)
            case Op.OpExtInst:
                self._node(instruction)

    def _declare(self, name: str, type_: TensorType, values: np.ndarray | None = None) -> str:
        self.tensors[name] = Tensor(name, *type_, values)
        return name

    def _wish(self, name: str, id: int) -> None:
        """Records the module's name of an id, if it has one, unless one is already recorded."""
        if self.module.names.get(id):
            self.wishes.setdefault(name, self.module.names[id])

    def _input(self, instruction: Instruction) -> None:
        (kind, id, index), elements = instruction.first(3)
        _reject_arrays(elements)
        name = self.inputs[self._index(index, len(self.inputs))]
        self._check_type(name, self.module.types.get(kind))
        self.values[id] = name
        self._wish(name, id)

    def _output(self, instruction: Instruction) -> None:
        (id, index), elements = instruction.first(2)
        _reject_arrays(elements)
        types = self.body.type.outputs
        at = self._index(index, len(types))
        if at in self.outputs:
            raise FormatError(f"output {at} is set twice")
        self.outputs[at] = self._value(id)
        self._check_type(self.outputs[at], types[at])

    def _extract(self, instruction: Instruction) -> None:
        kind, id, composite, index = instruction.exactly(4)
        results = self.values.get(composite)
        if not isinstance(results, Results) or index >= len(results.names):
            raise FormatError(f"part {index} of %{composite}, which has no such tensor")
        self.values[id] = name = results.names[index]
        self._check_type(name, self.module.types.get(kind))
        self._wish(name, id)

    def _index(self, id: int, count: int) -> int:
        numbers = self.module.constants.numbers(id)
        if len(numbers) != 1 or numbers[0] >= count:
            raise FormatError(f"the index %{id} is not a number below {count}")
        return numbers[0]

    def _check_type(self, name: str, found: object) -> None:
        tensor = self.tensors[name]
        if found != TensorType(tensor.dtype, tensor.shape):
            raise FormatError(f"the type is {describe(found)}, expected {tensor} of {name!r}")

    # Nodes.

    def _node(self, instruction: Instruction) -> None:
        (kind, id, set_, number), operands = instruction.first(4)
        operator = self._operator(set_, number)
        count = len(operator.attributes)
        arguments = grammar.inputs(operator, len(operands) - count)
        if len(operands) != count + len(arguments):
            raise FormatError(f"{len(operands)} operands, expected {count + len(arguments)}")
        inputs = tuple(map(self._argument, arguments, operands[count:]))
        element = self.tensors[inputs[0]].dtype
        attributes = {
            argument.name: self._attribute(argument, operand, element)
            for argument, operand in zip(operator.attributes, operands, strict=False)
        }
        outputs = self._results(operator, id, self.module.types.get(kind))
        location = self.module.locations.get(id)
        self.nodes.append(Node(operator.name, inputs, outputs, attributes, location))

    def _operator(self, set_: int, number: int) -> Operator:
        name = self.module.sets.get(set_)
        if name is None:
            raise FormatError(f"%{set_} is not a set of instructions")
        if name != grammar.INSTRUCTION_SET:
            wanted = f"expected one of {grammar.INSTRUCTION_SET!r}"
            raise UnsupportedError(f"instruction {number} of the set {quoted(name)}, {wanted}")
        if number not in grammar.INSTRUCTIONS:
            raise FormatError(f"{name} has no instruction {number}")
        return spec.OPERATORS[grammar.INSTRUCTIONS[number]]

    def _argument(self, argument: Argument, id: int) -> str:
        """The name of an input's tensor."""
        try:
            return self._constant(id, True) if argument.form is Form.SHAPE else self._value(id)
        except FormatError as error:
            raise FormatError(f"{argument.name}: {error}") from None

    def _attribute(self, argument: Argument, id: int, element: DType) -> Any:
        try:
            return read_attribute(argument, self.module.constants[id], element)
        except FormatError as error:
            raise FormatError(f"{argument.name}: {error}") from None

    def _value(self, id: int) -> str:
        """The name of the tensor with an id: a result, a graph input, or a constant."""
        value = self.values.get(id)
        if isinstance(value, Results):
            raise FormatError(f"%{id} is a struct, expected a tensor")
        if value is None and id not in self.module.constants:
            raise FormatError(f"%{id} is neither a constant nor an earlier result")
        return self._constant(id, False) if value is None else value

    def _constant(self, id: int, is_shape: bool) -> str:
        """The name of a constant's tensor or shape; adds its node on first use."""
        if (id, is_shape) not in self.constants:
            type_, values = constant = self.module.constants[id]
            op, name = ("CONST_SHAPE", f"shape_{id}") if is_shape else ("CONST", f"const_{id}")
            if is_shape:
                values = integers(constant).astype(np.int64)
                type_ = TensorType(DType.SHAPE, values.shape)
            if not isinstance(type_, TensorType):
                raise FormatError(f"it is {describe(type_)}, expected a tensor")
            self.nodes.append(Node(op, (), (self._declare(name, type_, values),)))
            self._wish(name, id)
            self.constants[id, is_shape] = name
        return self.constants[id, is_shape]

    def _results(self, operator: Operator, id: int, found: Type | None) -> tuple[str, ...]:
        """Declares the output tensors of a node: one, or several in a struct."""
        types = found.members if isinstance(found, StructType) else (found,)
        tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
        several = len(operator.outputs) > 1
        if isinstance(found, StructType) is not several or len(tensors) != len(operator.outputs):
            wanted = f"a struct of {len(operator.outputs)} tensors" if several else "a tensor"
            raise FormatError(f"the result is {describe(found)}, expected {wanted}")
        name = f"{operator.name.lower()}_{id}"
        names = [f"{name}_{at}" for at in range(len(tensors))] if several else [name]
        declared = tuple(map(self._declare, names, tensors))
        self.values[id] = Results(declared) if several else name
        if not several:
            self._wish(name, id)
        return declared


def _reject_arrays(elements: tuple[int, ...]) -> None:
    if elements:
        raise UnsupportedError("it is of an array of tensors, expected a tensor")
