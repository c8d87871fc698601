"""Writes a graph as a module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.io.spirv import grammar
from tosajax.io.spirv.attributes import attribute_constant, list_constant
from tosajax.io.spirv.constants import Constant
from tosajax.io.spirv.declaring import Declarations
from tosajax.io.spirv.expressible import check
from tosajax.io.spirv.grammar import Capability, Decoration, Op
from tosajax.io.spirv.types import GraphType, StructType, TensorType, VoidType
from tosajax.io.spirv.words import encoded, module_bytes, text_words
from tosajax.report import UnsupportedError
from tosajax.spec import Argument, Form

_ALWAYS = (
    *(Capability.Shader, Capability.VulkanMemoryModel),
    *(Capability.TensorsARM, Capability.GraphARM),
)


def write_graph(graph: Graph) -> tuple[bytes, dict[int, np.ndarray]]:
    """Writes a graph as a module; returns its bytes, and the data of external constants, by id.

    Raises:
      UnsupportedError: the instruction set cannot express the graph.
      ValueError: the graph is not well formed.
    """
    check(graph)
    return _Writer(graph).module()


class _Origins(NamedTuple):
    """The words of debug information: the import of the instruction set, strings, instructions."""

    imported: list[int]
    texts: list[int]
    remarks: list[int]


class _Writer:
    """Writes one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.declared = Declarations()
        self.set = self.declared.new_id()
        self.body: list[int] = []
        self.names: dict[int, str] = {}
        self.locations: dict[int, str] = {}
        self.values: dict[str, int] = {}  # ids of results and graph inputs, by tensor
        self.constants: dict[str, Tensor] = {}

    def module(self) -> tuple[bytes, dict[int, np.ndarray]]:
        ends = self._ends(self.graph.inputs), self._ends(self.graph.outputs)
        kind, id = self.declared.type(GraphType(*ends)), self._named(self.graph.name)
        variables = [self.declared.variable(type_) for type_ in (*ends[0], *ends[1])]
        self._name_variables(variables)
        self._inputs()
        for node in self.graph.ordered_nodes():
            self._node(node)
        self._outputs()
        entry = encoded(Op.OpGraphEntryPointARM, id, *text_words(self.graph.name), *variables)
        origins = self._origins(id)
        words = [
            *self._preamble(origins.imported),
            *origins.texts,
            *(w for id, name in self.names.items() for w in _name(id, name)),
            *(w for at, variable in enumerate(variables) for w in _binding(variable, at)),
            *self.declared.words,
            *entry,
            *encoded(Op.OpGraphARM, kind, id),
            *self.body,
            *encoded(Op.OpGraphEndARM),
            *origins.remarks,
        ]
        bound = self.declared.new_id()
        return module_bytes(grammar.WRITTEN_VERSION, bound, words), self.declared.outside

    def _ends(self, names: Iterable[str]) -> tuple[TensorType, ...]:
        return tuple(map(self._type, names))

    def _type(self, name: str) -> TensorType:
        tensor = self.graph.tensors[name]
        return TensorType(tensor.dtype, tensor.shape)

    def _named(self, name: str) -> int:
        """Returns a new id with this name."""
        id = self.declared.new_id()
        self.names[id] = name
        return id

    def _name_variables(self, variables: Iterable[int]) -> None:
        """Names variables after their tensors; names are unique, as they are symbols in MLIR."""
        taken = {self.graph.name}
        names = (*self.graph.inputs, *self.graph.outputs)
        for variable, name in zip(variables, names, strict=True):
            if name not in taken:
                self.names[variable] = name
            taken.add(name)

    def _inputs(self) -> None:
        for index, name in enumerate(self.graph.inputs):
            kind, at = self.declared.type(self._type(name)), self.declared.number(index)
            self.values[name] = self._named(name)
            self.body += encoded(Op.OpGraphInputARM, kind, self.values[name], at)

    def _outputs(self) -> None:
        for index, name in enumerate(self.graph.outputs):
            value, at = self._value(name), self.declared.number(index)
            self.body += encoded(Op.OpGraphSetOutputARM, value, at)

    def _node(self, node: Node) -> None:
        if node.op in spec.CONSTANT_OPERATORS:
            self.constants |= {name: self.graph.tensors[name] for name in node.outputs}
        elif node.op == "IDENTITY":
            self._fold(node)
        else:
            self._instruction(node)

    def _fold(self, node: Node) -> None:
        """Removes an IDENTITY: its result gets the id of its input."""
        if len(node.inputs) != 1 or len(node.outputs) != 1:
            raise ValueError(f"{node.title}: expected one input and one output")
        (source,), (result,) = node.inputs, node.outputs
        if self._type(source) != self._type(result):
            raise ValueError(f"{node.title}: {self._type(source)} becomes {self._type(result)}")
        if source in self.constants:
            self.constants[result] = self.constants[source]
        else:
            self.values[result] = self._value(source)

    def _instruction(self, node: Node) -> None:
        operator = spec.OPERATORS[node.op]
        arguments = grammar.inputs(operator, len(node.inputs))
        counts, wanted = (
            (len(node.inputs), len(node.outputs)),
            (len(arguments), len(operator.outputs)),
        )
        if counts != wanted:
            raise ValueError(f"{node.title}: inputs and outputs are {counts}, expected {wanted}")
        attributes = [self._attribute(argument, node) for argument in operator.attributes]
        inputs = [self._argument(*pair, node) for pair in zip(arguments, node.inputs, strict=True)]
        id = self._result(node, [*attributes, *inputs])
        if node.location:
            self.locations[id] = node.location

    def _attribute(self, argument: Argument, node: Node) -> int:
        value = node.attributes.get(argument.name, argument.default)
        if value is spec.REQUIRED:
            raise ValueError(f"{node.title}: attribute {argument.name} is missing")
        element = self.graph.tensors[node.inputs[0]].dtype
        try:
            constant = attribute_constant(argument, value, element)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            message = f"{node.title}: {argument.name} cannot be {value!r}"
            raise ValueError(message) from error
        return self.declared.constant(constant, listed=True)

    def _argument(self, argument: Argument, name: str, node: Node) -> int:
        if argument.constant_in and name not in self.constants:
            message = f"{argument.name} is {name!r}, which is not a constant"
            raise UnsupportedError(f"{node.title}: {message}: SPIR-V has no EXT-DYNAMIC")
        if argument.form is not Form.SHAPE:
            return self._value(name)
        elements = self._elements(self.constants[name])
        try:
            constant = list_constant(elements)
        except ValueError as error:
            message = f"{node.title}: {argument.name}: {error}: SPIR-V has shapes of int32"
            raise UnsupportedError(message) from None
        return self.declared.constant(constant, listed=True)

    def _elements(self, tensor: Tensor) -> np.ndarray:
        """The elements of a constant.

        Raises:
          ValueError: the constant has no values, or values of the wrong shape.
        """
        if tensor.values is None or tensor.values.shape != tensor.shape:
            values = "no values" if tensor.values is None else f"values of {tensor.values.shape}"
            raise ValueError(f"constant {tensor.name!r} is {tensor}, and has {values}")
        return tensor.values

    def _value(self, name: str) -> int:
        """The id of a tensor; declares a constant on first use."""
        if name in self.constants:
            tensor = self.constants[name]
            constant = Constant(self._type(tensor.name), self._elements(tensor))
            id = self.declared.constant(constant)
            self.names.setdefault(id, tensor.name)
            return id
        if name not in self.values:
            raise ValueError(f"nothing makes tensor {name!r}")
        return self.values[name]

    def _result(self, node: Node, operands: list[int]) -> int:
        """Adds a node's instruction, and the extraction of several results; returns its id."""
        number = grammar.NUMBERS[node.op]
        types = self._ends(node.outputs)
        if len(types) == 1:
            kind, id = self.declared.type(types[0]), self._named(node.outputs[0])
            self.values[node.outputs[0]] = id
            self.body += encoded(Op.OpExtInst, kind, id, self.set, number, *operands)
            return id
        kind, id = self.declared.type(StructType(types)), self.declared.new_id()
        self.body += encoded(Op.OpExtInst, kind, id, self.set, number, *operands)
        for index, (name, type_) in enumerate(zip(node.outputs, types, strict=True)):
            self.values[name] = self._named(name)
            part = self.declared.type(type_), self.values[name], id, index
            self.body += encoded(Op.OpCompositeExtract, *part)
        return id

    def _origins(self, graph: int) -> _Origins:
        if not self.locations:
            return _Origins([], [], [])
        new_id = self.declared.new_id
        set_, debug, void = new_id(), new_id(), self.declared.type(VoidType())
        texts = {text: new_id() for text in (self.graph.name, *self.locations.values())}
        name = texts[self.graph.name]
        remarks = encoded(Op.OpExtInst, void, debug, set_, grammar.DEBUG_GRAPH, graph, name)
        for id, location in self.locations.items():
            operands = set_, grammar.DEBUG_OPERATION, debug, texts[location], id
            remarks += encoded(Op.OpExtInst, void, new_id(), *operands)
        return _Origins(
            encoded(Op.OpExtInstImport, set_, *text_words(grammar.DEBUG_SET)),
            [w for text, id in texts.items() for w in encoded(Op.OpString, id, *text_words(text))],
            remarks,
        )

    def _preamble(self, imported: list[int]) -> list[int]:
        """The words before names: capabilities, extensions, instruction sets, memory model."""
        capabilities = sorted({*_ALWAYS, *self.declared.capabilities})
        extensions = (grammar.EXTENSION_OF.get(capability) for capability in capabilities)
        return [
            *(w for c in capabilities for w in encoded(Op.OpCapability, c)),
            *(w for e in extensions if e for w in encoded(Op.OpExtension, *text_words(e))),
            *encoded(Op.OpExtInstImport, self.set, *text_words(grammar.INSTRUCTION_SET)),
            *imported,
            *encoded(Op.OpMemoryModel, grammar.LOGICAL, grammar.VULKAN),
        ]


def _name(id: int, name: str) -> list[int]:
    return encoded(Op.OpName, id, *text_words(name))


def _binding(variable: int, at: int) -> list[int]:
    """The decorations with the descriptor set and binding of an interface variable."""
    return [
        *encoded(Op.OpDecorate, variable, Decoration.DescriptorSet, 0),
        *encoded(Op.OpDecorate, variable, Decoration.Binding, at),
    ]
