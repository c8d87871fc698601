"""Parses a module: types, constants, names, and the instructions of its graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tosajax.io.spirv import grammar
from tosajax.io.spirv.constants import Constants, Fetch
from tosajax.io.spirv.grammar import Decoration, Op
from tosajax.io.spirv.types import GraphType, PointerType, TensorType, Type, describe, read_type
from tosajax.io.spirv.words import Header, Instruction, instructions, quoted, read_text, read_words
from tosajax.report import FormatError, UnsupportedError

_MOST_NAMED = 8  # entry points in a message


class EntryPoint(NamedTuple):
    """An entry point: a graph's id, its name, and the ids of its interface variables."""

    graph: int
    name: str
    interface: tuple[int, ...]


class Body(NamedTuple):
    """The type and the instructions of a graph."""

    type: GraphType
    instructions: list[Instruction]


class Binding(NamedTuple):
    """The descriptor set and binding of an interface variable."""

    set: int
    binding: int


class Module:
    """A parsed module.

    Args:
      data: the module's bytes.
      fetch: function that returns the data of external constants.

    Raises:
      FormatError: the module is not well formed.
      UnsupportedError: the module has something that graphs of TOSA 1.0 do not need.
    """

    def __init__(self, data: memoryview | bytes, fetch: Fetch) -> None:
        self.header: Header
        self.header, words = read_words(data)
        self.types: dict[int, Type] = {}
        self.constants = Constants(self.types, fetch)
        self.names: dict[int, str] = {}
        self.texts: dict[int, str] = {}
        self.sets: dict[int, str] = {}  # instruction sets
        self.variables: dict[int, TensorType] = {}
        self.decorations: dict[tuple[int, int], int] = {}
        self.entry_points: list[EntryPoint] = []
        self.bodies: dict[int, Body] = {}
        self.locations: dict[int, str] = {}  # locations of instructions in graphs, by result id
        self._defined: set[int] = set()
        self._body: Body | None = None
        self._line: str | None = None
        for instruction in instructions(words):
            try:
                self._add(instruction)
            except (FormatError, UnsupportedError) as error:
                raise type(error)(f"{instruction}: {error}") from None
        if self._body is not None:
            raise FormatError("a graph has no end")

    def entry_point(self, name: str | None) -> EntryPoint:
        """The entry point with a name; if `name` is None, the only one, or `main`.

        Raises:
          FormatError: the module has no entry points, or two with the same name.
          UnsupportedError: `name` is None, and of several entry points none is named `main`.
          ValueError: no entry point has the name.
        """
        entries = {entry.name: entry for entry in self.entry_points}
        if not entries:
            raise FormatError("the module has no entry point of a graph")
        if len(entries) < len(self.entry_points):
            raise FormatError("two entry points have the same name")
        listed = ", ".join(map(quoted, list(entries)[:_MOST_NAMED]))
        if name is None and len(entries) == 1:
            (name,) = entries
        elif name is None:
            name = "main"
            if name not in entries:
                raise UnsupportedError(
                    f"the module has graphs {listed}, expected one, or 'main': choose one by "
                    "function= in Python, --function at the command line"
                )
        if name not in entries:
            raise ValueError(f"the module has no graph {quoted(name)}, but {listed}")
        return entries[name]

    def binding(self, variable: int) -> Binding:
        """The descriptor set and binding of an interface variable.

        Raises:
          FormatError: the module does not state them.
        """
        wanted = Decoration.DescriptorSet, Decoration.Binding
        set_, binding = (self.decorations.get((variable, decoration)) for decoration in wanted)
        if set_ is None or binding is None:
            raise FormatError(f"variable %{variable} has no descriptor set or no binding")
        return Binding(set_, binding)

    def _add(self, instruction: Instruction) -> None:
        opcode = instruction.opcode
        if opcode in grammar.SHADERS:
            raise UnsupportedError("the module has shaders, expected graphs alone")
        if opcode in grammar.REMARKS:
            return
        if opcode in (Op.OpLine, Op.OpNoLine):
            self._set_line(instruction)
        elif opcode == Op.OpExtInst and self._is_remark(instruction):
            self._remark(instruction)
        elif self._body is not None:
            self._add_to_body(self._body, instruction)
        elif opcode in _READERS:
            _READERS[opcode](self, instruction)
        else:
            raise UnsupportedError("no graph of TOSA 1.0 needs such an instruction there")

    def _set_line(self, instruction: Instruction) -> None:
        if instruction.opcode == Op.OpNoLine:
            self._line = None
            return
        file, line, column = instruction.exactly(3)
        self._line = f"{self._text(file)}:{line}:{column}"

    def _add_to_body(self, body: Body, instruction: Instruction) -> None:
        if instruction.opcode not in _IN_GRAPHS:
            raise UnsupportedError("no graph of TOSA 1.0 has such an instruction in it")
        if instruction.opcode == Op.OpGraphEndARM:
            self._body = self._line = None
            return
        if instruction.opcode != Op.OpGraphSetOutputARM:
            (_, id), _ = instruction.first(2)
            self._define(id)
            if self._line is not None:
                self.locations[id] = self._line
        body.instructions.append(instruction)

    def _text(self, id: int) -> str:
        if id not in self.texts:
            raise FormatError(f"%{id} is not a text")
        return self.texts[id]

    def _define(self, id: int) -> None:
        if not 0 < id < self.header.bound:
            raise FormatError(
                f"%{id} is beyond the ids of the module, 1 to {self.header.bound - 1}"
            )
        if id in self._defined:
            raise FormatError(f"%{id} is defined twice")
        self._defined.add(id)

    # Readers of instructions outside graphs.

    def _capability(self, instruction: Instruction) -> None:
        (number,) = instruction.exactly(1)
        if number not in grammar.Capability._value2member_map_:
            names = ", ".join(c.name for c in grammar.Capability)
            raise UnsupportedError(f"capability {number}, expected some of {names}")

    def _extension(self, instruction: Instruction) -> None:
        name, _ = read_text(instruction.operands)
        if name not in grammar.EXTENSIONS:
            names = ", ".join(sorted(grammar.EXTENSIONS))
            raise UnsupportedError(f"extension {quoted(name)}, expected some of {names}")

    def _import(self, instruction: Instruction) -> None:
        (id,), text = instruction.first(1)
        self._define(id)
        self.sets[id], _ = read_text(text)
        name = self.sets[id]
        if name.startswith("TOSA.") and name != grammar.INSTRUCTION_SET:
            raise UnsupportedError(f"the set {quoted(name)}, expected {grammar.INSTRUCTION_SET!r}")

    def _memory_model(self, instruction: Instruction) -> None:
        addressing, _ = instruction.exactly(2)
        if addressing != grammar.LOGICAL:
            raise UnsupportedError(f"addressing model {addressing}, expected Logical")

    def _name(self, instruction: Instruction) -> None:
        (id,), text = instruction.first(1)
        self.names[id], _ = read_text(text)

    def _string(self, instruction: Instruction) -> None:
        (id,), text = instruction.first(1)
        self._define(id)
        self.texts[id], _ = read_text(text)

    def _decoration(self, instruction: Instruction) -> None:
        (id, decoration), operands = instruction.first(2)
        if decoration not in Decoration._value2member_map_:
            names = ", ".join(d.name for d in Decoration)
            raise UnsupportedError(f"decoration {decoration}, expected one of {names}")
        if operands:
            self.decorations[id, decoration] = operands[0]

    def _type(self, instruction: Instruction) -> None:
        (id,), _ = instruction.first(1)
        self._define(id)
        self.types[id] = read_type(instruction, self.types, self.constants.numbers)

    def _constant(self, instruction: Instruction) -> None:
        (_, id), _ = instruction.first(2)
        self._define(id)
        self.constants.read(instruction)

    def _variable(self, instruction: Instruction) -> None:
        (kind, id, storage), initial = instruction.first(3)
        self._define(id)
        pointer = self.types.get(kind)
        if not isinstance(pointer, PointerType) or storage != grammar.UNIFORM_CONSTANT or initial:
            raise UnsupportedError(f"a variable is {describe(pointer)}, expected one to a tensor")
        self.variables[id] = pointer.pointee

    def _entry_point(self, instruction: Instruction) -> None:
        (graph,), rest = instruction.first(1)
        name, interface = read_text(rest)
        self.entry_points.append(EntryPoint(graph, name, tuple(interface)))

    def _graph(self, instruction: Instruction) -> None:
        kind, id = instruction.exactly(2)
        self._define(id)
        type_ = self.types.get(kind)
        if not isinstance(type_, GraphType):
            raise FormatError(f"a graph is {describe(type_)}")
        self._body = self.bodies[id] = Body(type_, [])
        self._line = None

    def _is_remark(self, instruction: Instruction) -> bool:
        """Whether an instruction is of a non-semantic instruction set."""
        (_, _, set_), _ = instruction.first(3)
        return self.sets.get(set_, "").startswith(grammar.WITHOUT_MEANING)

    def _remark(self, instruction: Instruction) -> None:
        (_, id, set_, number), operands = instruction.first(4)
        self._define(id)
        operation = self.sets[set_] == grammar.DEBUG_SET and number == grammar.DEBUG_OPERATION
        if operation and len(operands) > 1:
            _, text, *results = operands
            self.locations |= dict.fromkeys(results, self._text(text))


_TYPES = (
    *(Op.OpTypeVoid, Op.OpTypeBool, Op.OpTypeInt, Op.OpTypeFloat, Op.OpTypeArray),
    *(Op.OpTypeStruct, Op.OpTypePointer, Op.OpTypeTensorARM, Op.OpTypeGraphARM),
)
_CONSTANTS = (
    *(Op.OpConstantTrue, Op.OpConstantFalse, Op.OpConstant, Op.OpConstantComposite),
    *(Op.OpConstantNull, Op.OpConstantCompositeReplicateEXT, Op.OpGraphConstantARM),
    *(Op.OpSpecConstantTrue, Op.OpSpecConstantFalse, Op.OpSpecConstant),
    *(Op.OpSpecConstantComposite, Op.OpSpecConstantCompositeReplicateEXT),
)
_IN_GRAPHS = (
    *(Op.OpGraphInputARM, Op.OpExtInst, Op.OpCompositeExtract),
    *(Op.OpGraphSetOutputARM, Op.OpGraphEndARM),
)
_READERS: dict[int, Callable[[Module, Instruction], None]] = {
    Op.OpCapability: Module._capability,
    Op.OpExtension: Module._extension,
    Op.OpExtInstImport: Module._import,
    Op.OpMemoryModel: Module._memory_model,
    Op.OpString: Module._string,
    Op.OpName: Module._name,
    Op.OpDecorate: Module._decoration,
    Op.OpVariable: Module._variable,
    Op.OpGraphEntryPointARM: Module._entry_point,
    Op.OpGraphARM: Module._graph,
    **dict.fromkeys(_TYPES, Module._type),
    **dict.fromkeys(_CONSTANTS, Module._constant),
}
