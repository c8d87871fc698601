"""Moves RESHAPE and TRANSPOSE behind elementwise operators, so that they cancel.

A layer with channels first is exported as TRANSPOSE, CONV2D, TRANSPOSE, and a linear layer as
RESHAPE, CONV2D, RESHAPE. Most operators between two such layers accept elements in any order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.values import Reshaped, Transposed
from tosajax.from_jax.written import Written
from tosajax.graph import Node, Tensor
from tosajax.graph.edit import Draft

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """A tensor that is the result of a move (TRANSPOSE or RESHAPE) of a base tensor.

    Args:
      base: the name of the base tensor in the new graph.
      perms: the permutation of a TRANSPOSE, the identity if nothing moves; None for a RESHAPE.
      shape: the shape of the result.
    """

    base: str
    perms: Shape | None
    shape: Shape

    @property
    def is_plain(self) -> bool:
        """Whether the tensor is the base itself."""
        return self.perms == tuple(range(len(self.shape)))


def with_few_moves(written: Written) -> Written:
    """The graph with moves as late as possible."""
    return _Late(written).finished()


class _Late:
    """Rewrites a graph so that a move becomes a node only if its result is read as it is."""

    def __init__(self, written: Written) -> None:
        self._graph = graph = written.graph
        self._origins = written.origins
        # Origins of constants in subgraphs stay.
        self._origins_now = {n: o for n, o in written.origins.items() if n not in graph.tensors}
        self._draft = Draft(graph)
        self._draft.tensors = {name: graph.tensors[name] for name in graph.inputs}
        self._views = {name: self._plain(name) for name in graph.inputs}
        self._moved: dict[View, str] = {}
        self._constants: dict[tuple[str, Reshaped | Transposed | None], str] = {}
        self._locations = {name: node.location for node in graph.nodes for name in node.outputs}

    def finished(self) -> Written:
        for node in self._graph.ordered_nodes():
            if not self._is_moved(node):
                self._keep(node)
        outputs: list[str] = []
        for name in self._graph.outputs:
            whole = self._materialized(name)
            taken = whole in outputs or whole in self._graph.inputs
            outputs.append(self._copy(whole) if taken else whole)
        self._draft.graph = dataclasses.replace(self._graph, outputs=tuple(outputs))
        return Written(self._draft.finished(), self._origins_now)

    def _is_moved(self, node: Node) -> bool:
        """Handles a node that is a move, or that can run on the bases; returns whether it did.

        Constants are added when they are read, as they may have to be moved.
        """
        if node.op in spec.CONSTANT_OPERATORS:
            return True
        if node.op == "RESHAPE":
            self._reshape(node)
            return True
        if node.op == "TRANSPOSE":
            self._transpose(node)
            return True
        if spec.OPERATORS[node.op].is_elementwise:
            return not node.attributes.get("per_channel") and self._elementwise(node)
        return node.op in _ALONG and self._along(node)

    # Moves.

    def _reshape(self, node: Node) -> None:
        view, shape = self._views[node.inputs[0]], self._shape(node.outputs[0])
        if view.perms is not None and not view.is_plain:
            view = self._plain(self._materialized(node.inputs[0]))
        self._views[node.outputs[0]] = self._reshaped(view.base, shape)

    def _transpose(self, node: Node) -> None:
        perms, shape = node.attributes["perms"], self._shape(node.outputs[0])
        view = self._views[node.inputs[0]]
        if _keeps_order(perms, view.shape) and view.perms is None:
            self._views[node.outputs[0]] = self._reshaped(view.base, shape)
            return
        if view.perms is None:
            view = self._plain(self._materialized(node.inputs[0]))
        assert view.perms is not None
        both = tuple(view.perms[axis] for axis in perms)
        if _keeps_order(both, self._base_shape(view)):
            self._views[node.outputs[0]] = self._reshaped(view.base, shape)
        else:
            self._views[node.outputs[0]] = View(view.base, both, shape)

    def _reshaped(self, base: str, shape: Shape) -> View:
        plain = self._plain(base)
        return plain if plain.shape == shape else View(base, None, shape)

    # Operators of moved operands.

    def _elementwise(self, node: Node) -> bool:
        """Writes an elementwise node on the bases if all operands have the same move."""
        operator = spec.OPERATORS[node.op]
        spread = [
            name
            for argument, name in zip(operator.inputs, node.inputs, strict=True)
            if argument.dims is None
        ]
        views = [self._views[name] for name in spread if self._values(name) is None]
        if not views or not self._are_alike(views):
            return False
        first, bases = views[0], dict[str, str]()
        for name in spread:
            if (values := self._values(name)) is None:
                bases[name] = self._views[name].base
                continue
            moved = _moved_back(values, first, self._base_shape(first))
            if moved is None:
                return False
            bases[name] = self._const(name, moved, first.perms)
        inputs = [bases.get(name) or self._materialized(name) for name in node.inputs]
        shape = self._base_shape(first)
        if first.perms is not None:
            shape = _permuted_back(self._shape(node.outputs[0]), first.perms)
        self._emit(dataclasses.replace(node, inputs=inputs), first.perms, shape)
        return True

    def _are_alike(self, views: Sequence[View]) -> bool:
        """Whether all views have the same move and it is not the identity."""
        first = views[0]
        if first.is_plain or any(view.perms != first.perms for view in views):
            return False
        if first.perms is not None:
            return True
        shapes = {(view.shape, self._base_shape(view)) for view in views}
        return len(shapes) == 1

    def _along(self, node: Node) -> bool:
        """Writes a node on the bases, its axes permuted, if all operands are transposed alike."""
        names = [name for name in node.inputs if self._graph.tensors[name].dtype is not DType.SHAPE]
        if node.op == "PAD":
            names = names[:1]
        views = [self._views[name] for name in names if self._values(name) is None]
        if not views or views[0].perms is None or not self._are_alike(views):
            return False
        perms = views[0].perms
        inputs = [
            self._base(name, perms) if name in names else self._materialized(name)
            for name in node.inputs
        ]
        attributes = dict(node.attributes)
        if "axis" in attributes:
            attributes["axis"] = perms[attributes["axis"]]
        for at, name in enumerate(node.inputs):
            if self._graph.tensors[name].dtype is DType.SHAPE:
                numbers = np.asarray(self._values(name)).reshape(len(perms), -1)
                inputs[at] = self._const_shape([*numbers[np.argsort(perms)].reshape(-1)])
        shape = _permuted_back(self._shape(node.outputs[0]), perms)
        self._emit(dataclasses.replace(node, inputs=inputs, attributes=attributes), perms, shape)
        return True

    def _base(self, name: str, perms: Shape) -> str:
        """The base of a transposed operand, or a constant transposed back."""
        values = self._values(name)
        if values is None:
            return self._views[name].base
        return self._const(name, np.transpose(values, np.argsort(perms)), perms)

    def _emit(self, node: Node, perms: Shape | None, shape: Shape) -> None:
        """Adds a node on the bases; its old output becomes a view of the new one."""
        (name,) = node.outputs
        dtype = self._graph.tensors[name].dtype
        base = self._draft.tensor(name, dtype, shape)
        self._draft.nodes.append(dataclasses.replace(node, outputs=(base,)))
        self._views[name] = View(base, perms, self._shape(name))

    # Nodes that stay as they are.

    def _keep(self, node: Node) -> None:
        inputs = tuple(map(self._materialized, node.inputs))
        outputs = []
        for name in node.outputs:
            tensor = self._graph.tensors[name]
            outputs.append(self._draft.tensor(name, tensor.dtype, tensor.shape))
            held = dataclasses.replace(tensor, name=outputs[-1])
            self._draft.tensors[outputs[-1]] = held
            self._views[name] = self._plain(outputs[-1])
        self._draft.nodes.append(dataclasses.replace(node, inputs=inputs, outputs=tuple(outputs)))

    def _materialized(self, name: str) -> str:
        """The tensor in the new graph; adds its constant or its move if that is not there yet."""
        values = self._values(name)
        if values is not None:
            return self._const(name, values, None)
        view = self._views[name]
        if view.is_plain:
            return view.base
        if view not in self._moved:
            tensor = self._draft.tensor(name, self._draft.tensors[view.base].dtype, view.shape)
            if view.perms is None:
                node = Node("RESHAPE", (view.base, self._const_shape(view.shape)), (tensor,))
            else:
                node = Node("TRANSPOSE", (view.base,), (tensor,), {"perms": view.perms})
            self._draft.nodes.append(dataclasses.replace(node, location=self._locations.get(name)))
            self._moved[view] = tensor
        return self._moved[view]

    def _copy(self, name: str) -> str:
        tensor = self._draft.tensors[name]
        copy = self._draft.tensor(name, tensor.dtype, tensor.shape)
        self._draft.nodes.append(Node("IDENTITY", (name,), (copy,)))
        return copy

    # Look-ups and constants.

    def _plain(self, name: str) -> View:
        shape = self._draft.tensors[name].shape or ()
        return View(name, tuple(range(len(shape))), shape)

    def _base_shape(self, view: View) -> Shape:
        return self._draft.tensors[view.base].shape or ()

    def _shape(self, name: str) -> Shape:
        return self._graph.tensors[name].shape or ()

    def _values(self, name: str) -> np.ndarray | None:
        return self._graph.tensors[name].values

    def _const(self, name: str, values: np.ndarray, perms: Shape | None) -> str:
        """Adds a constant, which may be moved, unless it is there; returns its name.

        Args:
          name: the name of the constant in the old graph.
          values: its elements after the move.
          perms: the permutation of the view that it was transposed back from; None for a RESHAPE
            or no move.
        """
        tensor = self._graph.tensors[name]
        is_long = sum(n > 1 for n in values.shape) > 1
        move = None
        if perms is not None and is_long:
            move = Transposed(tuple(int(axis) for axis in np.argsort(perms)))
        elif values.shape != tensor.shape:
            move = Reshaped(tensor.shape or (), values.shape)
        key = name, move
        if key not in self._constants:
            new_name = self._draft.tensor(name, tensor.dtype, values.shape)
            self._draft.tensors[new_name] = Tensor(new_name, tensor.dtype, values.shape, values)
            op = "CONST_SHAPE" if tensor.dtype is DType.SHAPE else "CONST"
            self._draft.nodes.append(Node(op, (), (new_name,)))
            self._constants[key] = new_name
            if name in self._origins:
                origin = self._origins[name]
                self._origins_now[new_name] = origin if move is None else origin.moved(move)
        return self._constants[key]

    def _const_shape(self, numbers: Sequence[int]) -> str:
        values = np.asarray(numbers, np.int64)
        key = "", Reshaped((), tuple(int(n) for n in numbers))
        if key not in self._constants:
            name = "shape_" + ("x".join(map(str, values)) or "scalar")
            self._constants[key] = self._draft.const(name, values, DType.SHAPE)
        return self._constants[key]


# Operators with axes that can be permuted to run on a base instead of its transposition.
_ALONG = frozenset(
    name
    for name, operator in spec.OPERATORS.items()
    if operator.chapter == "reduction" or name in ("CONCAT", "PAD", "REVERSE", "SLICE", "TILE")
)


def _keeps_order(perms: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a TRANSPOSE only moves axes of size 1, and keeps the order of elements."""
    long = [axis for axis in perms if shape[axis] > 1]
    return long == sorted(long)


def _moved_back(values: np.ndarray, view: View, base: Shape) -> np.ndarray | None:
    """A constant operand with the view's move undone; None if a RESHAPE would expand it."""
    if view.perms is not None:
        return np.transpose(values, np.argsort(view.perms))
    if values.size == 1:
        return values.reshape((1,) * len(base))
    if values.shape == view.shape:
        return values.reshape(base)
    if base[-1:] == view.shape[-1:] == values.shape[-1:] == (values.size,):
        return values.reshape((1,) * (len(base) - 1) + (values.size,))
    return None


def _permuted_back(shape: Shape, perms: Shape) -> Shape:
    """The shape before a TRANSPOSE, from the shape after it."""
    return tuple(shape[axis] for axis in np.argsort(perms))
