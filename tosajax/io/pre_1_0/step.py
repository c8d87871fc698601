"""The upgrade of one node: access to the old node, and the graph of 1.0.1 under construction."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tosajax import spec
from tosajax.dtypes import DType, to_storage
from tosajax.graph import Graph, Node, Rewrite, Tensor
from tosajax.graph.edit import Draft, unused
from tosajax.io.pre_1_0.model import OldGraph, OldNode, OldTensor
from tosajax.report import FormatError, UnsupportedError
from tosajax.spec import REQUIRED, Argument, Form

SIGNLESS = {"UINT8": "INT8", "UINT16": "INT16"}
_SMALL = 256  # bytes; equal constants up to this size are shared


class Work:
    """A graph of 1.0.1 under construction.

    Args:
      old: the graph before 1.0.
      variables: all variables of the program, by name, as tensors of 1.0.1.
      rewrites: the report, to which rules append.
    """

    def __init__(
        self, old: OldGraph, variables: Mapping[str, Tensor], rewrites: list[Rewrite]
    ) -> None:
        self.old = old
        self.variables = variables
        self.rewrites = rewrites
        tensors = {name: new_tensor(t) for name, t in old.tensors.items() if t.dtype != "SHAPE"}
        self.draft = Draft(Graph(old.inputs, old.outputs, tensors, (), name=old.name))
        self.known = {n: t.values for n, t in old.tensors.items() if t.values is not None}
        # The 4-D tensors that replace INT48 tensors of rank 2, which no operator of 1.0 produces.
        self.unfolded: dict[str, str] = {}
        self.stand_ins: dict[str, str] = {}  # tensors of variables, by the variables' names
        self._constants: dict[tuple, str] = {}
        self._taken = {*old.tensors, *(n for o in old.nodes for n in (*o.inputs, *o.outputs))}

    def const(self, name: str, values: np.ndarray, dtype: DType) -> str:
        """Adds a CONST or CONST_SHAPE, or reuses an equal small one; returns its tensor's name."""
        key = dtype, values.shape, values.tobytes() if values.nbytes <= _SMALL else name
        if key not in self._constants:
            name = self._constants[key] = self.add(name, dtype, values.shape, values)
            op = "CONST_SHAPE" if dtype is DType.SHAPE else "CONST"
            self.draft.nodes.append(Node(op, (), (name,)))
        return self._constants[key]

    def add(
        self,
        name: str,
        dtype: DType,
        shape: tuple[int, ...] | None,
        values: np.ndarray | None = None,
    ) -> str:
        """Declares a tensor, with a suffix if the name is taken; returns its name."""
        name = unused(name, self._taken)
        self._taken.add(name)
        self.draft.tensors[name] = Tensor(name, dtype, shape, values)
        return name

    def finished(self) -> Graph:
        """The finished graph.

        Raises:
          UnsupportedError: an input or output of the graph is a tensor that 1.0 cannot have.
        """
        for name in (*self.old.inputs, *self.old.outputs):
            self.check_here(name, "an input or output of the graph")
        return self.draft.finished()

    def check_here(self, name: str, reader: str) -> None:
        """Checks that a tensor of the old graph still exists.

        Raises:
          UnsupportedError: the upgrade removed it.
        """
        if name in self.unfolded:
            message = f"{name!r} is INT48 of rank 2, and TOSA 1.0 has no RESHAPE of INT48"
            raise UnsupportedError(f"{message}: only RESCALE can read it, not {reader}")
        if name in self.old.tensors and name not in self.draft.tensors:
            message = f"{name!r} is a shape, which operators take as a constant"
            raise UnsupportedError(f"{message}: it cannot go to {reader}")


def new_tensor(old: OldTensor) -> Tensor:
    """Converts a tensor to 1.0.1, with a signless type.

    Raises:
      FormatError: its values do not fit its type.
      UnsupportedError: TOSA 1.0 does not have the type.
    """
    name = SIGNLESS.get(old.dtype, old.dtype)
    if name not in DType.__members__:
        raise UnsupportedError(f"tensor {old.name!r}: TOSA 1.0 has no element type {old.dtype}")
    values = old.values
    if values is not None and old.dtype in SIGNLESS:
        values = values.view(DType[name].storage)
    try:
        return Tensor(old.name, DType[name], old.shape, values)
    except ValueError as error:
        raise FormatError(f"tensor {old.name!r}: {error}") from None


class Step:
    """One old node, and the graph under construction.

    Rules read the node with `input`, `get` and similar methods, and add nodes of 1.0.1 with `emit`.
    """

    def __init__(self, node: OldNode, work: Work) -> None:
        self.node = node
        self.work = work

    # Access to the old node.

    def input(self, position: int) -> str:
        """The name of an input.

        Raises:
          FormatError: the node has fewer inputs.
        """
        if position >= len(self.node.inputs):
            message = f"{len(self.node.inputs)} inputs"
            raise FormatError(f"{message}, expected at least {position + 1}")
        return self.node.inputs[position]

    @property
    def output(self) -> str:
        """The name of the first output."""
        if not self.node.outputs:
            raise FormatError("no outputs, expected one")
        return self.node.outputs[0]

    def old(self, name: str) -> OldTensor:
        """A tensor of the old graph."""
        if name not in self.work.old.tensors:
            raise FormatError(f"tensor {name!r} is not declared")
        return self.work.old.tensors[name]

    def dtype(self, name: str) -> DType:
        """The element type of a tensor."""
        return self._tensor(name).dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, with -1 for an unknown dimension."""
        shape = self._tensor(name).shape
        if shape is None:
            raise UnsupportedError(f"{name!r} has no rank, which the upgrade needs")
        return shape

    def _tensor(self, name: str) -> Tensor:
        if name not in self.work.draft.tensors:
            self.work.check_here(name, self.node.op)
            raise FormatError(f"tensor {name!r} is not declared")
        return self.work.draft.tensors[name]

    def get(self, name: str, default: Any = REQUIRED) -> Any:
        """The value of an attribute.

        Raises:
          FormatError: the attribute is missing and has no default.
        """
        value = self.node.attributes.get(name, default)
        if value is REQUIRED:
            raise FormatError(f"attribute {name} is missing")
        return value.item() if isinstance(value, np.generic) else value

    def known(self, name: str) -> np.ndarray:
        """The values of a constant, or of a shape computed from constants.

        Raises:
          UnsupportedError: the values are known only when the graph runs.
        """
        if name not in self.work.known:
            raise UnsupportedError(f"{name!r} is not a constant, which TOSA 1.0 wants here")
        return self.work.known[name]

    def integers(self, name: str, position: int | None = None) -> tuple[int, ...]:
        """A flat list of integers: the constant input at `position` if it exists, or an attribute.

        Raises:
          FormatError: the attribute is missing, or has elements that are not integers.
          UnsupportedError: the input is not constant.
        """
        if position is not None and position < len(self.node.inputs):
            value: Any = self.known(self.node.inputs[position])
        else:
            value = self.get(name)
        array = np.ravel(np.asarray(value))
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise FormatError(f"{name} is {value!r}, expected integers")
        return tuple(int(n) for n in array)

    # Construction of the new nodes.

    def const(self, name: str, values: ArrayLike, dtype: DType) -> str:
        """Adds a constant for the argument `name`; returns its tensor's name.

        Raises:
          FormatError: the values do not fit the type.
        """
        try:
            array = to_storage(values, dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise FormatError(f"{name}: {error}") from None
        return self.work.const(f"{self.output}/{name}", array, dtype)

    def const_shape(self, name: str, values: Sequence[int]) -> str:
        """Adds a CONST_SHAPE for the argument `name`; returns its tensor's name."""
        return self.const(name, np.asarray(values, np.int64), DType.SHAPE)

    def list_input(self, name: str, position: int) -> str:
        """Adds a CONST_SHAPE with the attribute `name` or the constant input at `position`."""
        return self.const_shape(name, self.integers(name, position))

    def zero_point(self, name: str, tensor: str) -> str:
        """Adds a constant of `tensor`'s type with the value of attribute `name`, by default 0."""
        return self.const(name, [self.get(name, 0)], self.dtype(tensor))

    def operand(self, name: str, position: int, dtype: DType) -> str:
        """A 1-D tensor: the input at `position` if it exists, else a `dtype` constant."""
        if position >= len(self.node.inputs):
            return self.const(name, np.atleast_1d(np.asarray(self.get(name))), dtype)
        operand = self.node.inputs[position]
        return operand if self.shape(operand) else self.reshaped(operand, (1,))

    def tensor(self, suffix: str, dtype: DType, shape: tuple[int, ...] | None) -> str:
        """Declares an intermediate tensor between the new nodes."""
        return self.work.add(f"{self.output}/{suffix}", dtype, shape)

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """Reshapes a tensor: a constant to another constant, other tensors with a RESHAPE."""
        if name in self.work.known:
            values = np.asarray(self._tensor(name).values).reshape(shape)
            return self.const(f"{name}/reshaped", values, self.dtype(name))
        result = self.tensor("reshaped", self.dtype(name), shape)
        self.reshape(name, result)
        return result

    def reshape(self, name: str, result: str) -> None:
        """Adds a RESHAPE of a tensor to `result`."""
        shape = self.const_shape("shape", self.shape(result))
        self.emit("RESHAPE", (name, shape), (result,))

    def emit(
        self,
        op: str,
        inputs: Iterable[str],
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> None:
        """Adds a node, by default with the outputs of the old node."""
        inputs = tuple(inputs)
        for name in inputs:
            self.work.check_here(name, self.node.op)
        outputs = self.node.outputs if outputs is None else tuple(outputs)
        node = Node(op, inputs, outputs, attributes, self.node.location)
        self.work.draft.nodes.append(node)

    def keep(self) -> None:
        """Adds the node unchanged, with the operator's attributes in 1.0.1."""
        attributes = spec.OPERATORS[self.node.op].attributes
        values = {a.name: _value(a, self.get(a.name, a.default)) for a in attributes}
        self.emit(self.node.op, self.node.inputs, **values)

    def note(self, done: str, differs: str = "") -> None:
        """Adds a rewrite of this node to the report."""
        self.work.rewrites.append(Rewrite(self.node.title, done, differs))


def _value(argument: Argument, found: Any) -> Any:
    """Converts an attribute to the value that nodes of 1.0.1 have."""
    kind = argument.dtype
    if argument.form is Form.LIST:
        return tuple(int(n) for n in found)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return found if isinstance(found, kind) else member(argument.name, kind, found)
    return found


def member(name: str, kind: type[enum.Enum], found: Any) -> Any:
    """The member of an enumeration with a name.

    Raises:
      FormatError: the enumeration does not have the name.
    """
    if found not in kind.__members__:
        raise FormatError(f"{name} is {found!r}, expected one of {', '.join(kind.__members__)}")
    return kind[found]
