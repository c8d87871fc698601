"""One node of a graph before 1.0 as its rule sees it, and the graph of 1.0.1 in the making."""

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
_SMALL = 256  # bytes


class Work:
    """A graph in the making.

    Args:
      old: the graph before 1.0.
      variables: all of the program, by name, as tensors of 1.0.1.
      rewrites: the report, which rules add to.
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
        # 4-D tensors in the place of INT48 ones of rank 2, which no operator of 1.0 makes.
        self.unfolded: dict[str, str] = {}
        self.stand_ins: dict[str, str] = {}  # tensors for variables, by the variables' names
        self._constants: dict[tuple, str] = {}
        self._taken = {*old.tensors, *(n for o in old.nodes for n in (*o.inputs, *o.outputs))}

    def const(self, name: str, values: np.ndarray, dtype: DType) -> str:
        """A CONST, or CONST_SHAPE, of these values; equal small ones are one."""
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
        """Declares a tensor, by this name or one like it."""
        name = unused(name, self._taken)
        self._taken.add(name)
        self.draft.tensors[name] = Tensor(name, dtype, shape, values)
        return name

    def finished(self) -> Graph:
        """The graph.

        Raises:
          UnsupportedError: an output of the graph is a tensor that 1.0 cannot have.
        """
        for name in (*self.old.inputs, *self.old.outputs):
            self.check_here(name, "an input or output of the graph")
        return self.draft.finished()

    def check_here(self, name: str, reader: str) -> None:
        """Checks that a tensor of the old graph has not gone.

        Raises:
          UnsupportedError: it has.
        """
        if name in self.unfolded:
            found = f"{name!r} is INT48 of rank 2, and TOSA 1.0 has no RESHAPE of INT48"
            raise UnsupportedError(f"{found}: only RESCALE can read it, not {reader}")
        if name in self.old.tensors and name not in self.draft.tensors:
            found = f"{name!r} is a shape, which operators take as a constant"
            raise UnsupportedError(f"{found}: it cannot go to {reader}")


def new_tensor(old: OldTensor) -> Tensor:
    """The tensor in 1.0.1: types are signless.

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
    """One node, with the graph in the making.

    Rules read the node by `input`, `get` and their like, and add nodes of 1.0.1 by `emit`.
    """

    def __init__(self, node: OldNode, work: Work) -> None:
        self.node = node
        self.work = work

    # What the node has.

    def input(self, position: int) -> str:
        """The name of an input.

        Raises:
          FormatError: the node has fewer.
        """
        if position >= len(self.node.inputs):
            found = f"{len(self.node.inputs)} inputs"
            raise FormatError(f"{found}, expected at least {position + 1}")
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
        """The shape of a tensor, -1 for a dimension that is not known."""
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
          FormatError: it is missing and has no default.
        """
        value = self.node.attributes.get(name, default)
        if value is REQUIRED:
            raise FormatError(f"attribute {name} is missing")
        return value.item() if isinstance(value, np.generic) else value

    def known(self, name: str) -> np.ndarray:
        """The values of a constant, or of a shape that is computed of constants.

        Raises:
          UnsupportedError: they are known only when the graph runs.
        """
        if name not in self.work.known:
            raise UnsupportedError(f"{name!r} is not a constant, which TOSA 1.0 wants here")
        return self.work.known[name]

    def integers(self, name: str, position: int | None = None) -> tuple[int, ...]:
        """A list of integers, flat: an attribute, or a constant input at `position` if there is.

        Raises:
          FormatError: it is missing, or has something else than integers.
          UnsupportedError: the input is not constant.
        """
        if position is not None and position < len(self.node.inputs):
            found: Any = self.known(self.node.inputs[position])
        else:
            found = self.get(name)
        array = np.ravel(np.asarray(found))
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise FormatError(f"{name} is {found!r}, expected integers")
        return tuple(int(n) for n in array)

    # What stands in its place.

    def const(self, name: str, values: ArrayLike, dtype: DType) -> str:
        """A constant for the argument `name`.

        Raises:
          FormatError: the values do not fit the type.
        """
        try:
            array = to_storage(values, dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise FormatError(f"{name}: {error}") from None
        return self.work.const(f"{self.output}/{name}", array, dtype)

    def const_shape(self, name: str, values: Sequence[int]) -> str:
        """A constant list for the argument `name`."""
        return self.const(name, np.asarray(values, np.int64), DType.SHAPE)

    def list_input(self, name: str, position: int) -> str:
        """A constant list, of the attribute `name` or a constant input at `position`."""
        return self.const_shape(name, self.integers(name, position))

    def zero_point(self, name: str, tensor: str) -> str:
        """A constant of the type of `tensor`, of the attribute `name`, 0 by default."""
        return self.const(name, [self.get(name, 0)], self.dtype(tensor))

    def operand(self, name: str, position: int, dtype: DType) -> str:
        """A list of `dtype`: the attribute `name`, or the input at `position` if there is one."""
        if position >= len(self.node.inputs):
            return self.const(name, np.atleast_1d(np.asarray(self.get(name))), dtype)
        given = self.node.inputs[position]
        return given if self.shape(given) else self.reshaped(given, (1,))

    def tensor(self, suffix: str, dtype: DType, shape: tuple[int, ...] | None) -> str:
        """A tensor between the nodes that stand for this one."""
        return self.work.add(f"{self.output}/{suffix}", dtype, shape)

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        """A tensor in another shape: a constant where it is one, else the output of a RESHAPE."""
        if name in self.work.known:
            values = np.asarray(self._tensor(name).values).reshape(shape)
            return self.const(f"{name}/reshaped", values, self.dtype(name))
        result = self.tensor("reshaped", self.dtype(name), shape)
        self.reshape(name, result)
        return result

    def reshape(self, name: str, result: str) -> None:
        """A RESHAPE of a tensor to the shape of `result`."""
        shape = self.const_shape("shape", self.shape(result))
        self.emit("RESHAPE", (name, shape), (result,))

    def emit(
        self,
        op: str,
        inputs: Iterable[str],
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> None:
        """Adds a node, by default with the outputs of the old one."""
        inputs = tuple(inputs)
        for name in inputs:
            self.work.check_here(name, self.node.op)
        outputs = self.node.outputs if outputs is None else tuple(outputs)
        node = Node(op, inputs, outputs, attributes, self.node.location)
        self.work.draft.nodes.append(node)

    def keep(self) -> None:
        """Adds the node as it is, with the attributes that the operator has in 1.0.1."""
        attributes = spec.OPERATORS[self.node.op].attributes
        values = {a.name: _value(a, self.get(a.name, a.default)) for a in attributes}
        self.emit(self.node.op, self.node.inputs, **values)

    def note(self, done: str, differs: str = "") -> None:
        """Adds a line to the report."""
        self.work.rewrites.append(Rewrite(self.node.title, done, differs))


def _value(argument: Argument, found: Any) -> Any:
    """The value of an attribute as nodes of 1.0.1 have it."""
    kind = argument.dtype
    if argument.form is Form.LIST:
        return tuple(int(n) for n in found)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return found if isinstance(found, kind) else member(argument.name, kind, found)
    return found


def member(name: str, kind: type[enum.Enum], found: Any) -> Any:
    """The member of an enumeration by its name.

    Raises:
      FormatError: there is none.
    """
    if found not in kind.__members__:
        raise FormatError(f"{name} is {found!r}, expected one of {', '.join(kind.__members__)}")
    return kind[found]
