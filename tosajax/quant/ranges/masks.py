"""Masks: numbers that stand for "never", as in the logits of an attention that sees no future.

A constant of SELECT or ADD with elements of magnitude 1e9 or more (-inf, the lowest float, -1e10)
is a mask. These elements have no scale: their integers are an end of the range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft

# From this magnitude on, an element of a constant stands for "never".
NEVER = 1e9
# In the tensors that such elements reach: sums and products with others are a little smaller.
REACHED = NEVER / 1000

_LARGEST = float(np.finfo(np.float32).max)
# Operators that masked elements go through; so do they through those of data layout.
_PASSING = frozenset(
    ("ADD", "CLAMP", "IDENTITY", "MAXIMUM", "MINIMUM", "MUL", "NEGATE", "SELECT", "SUB")
)
_EXTREMES = frozenset(name for name, op in spec.OPERATORS.items() if op.is_extreme)
_SUMS = _EXTREMES | {"REDUCE_SUM"}


def mask_sign(values: np.ndarray | None) -> int:
    """The end of the range that all elements of a constant stand for: 1, -1; 0 for none."""
    if values is None or not values.size or values.dtype.kind != "f":
        return 0
    if np.all(values >= NEVER):
        return 1
    return -1 if np.all(values <= -NEVER) else 0


# Which tensors masks reach.


def masked_axes(graph: Graph) -> dict[str, int]:
    """The tensors that masks reach, and the axis over which each is summed up, -1 for the last.

    Args:
      graph: the graph, from `simplify`, or inside such a graph.
    """
    reached = set[str]()
    for node in graph.ordered_nodes():
        operator = spec.OPERATORS[node.op]
        is_passing = node.op in _PASSING | _EXTREMES or operator.chapter == "data_layout"
        values = [graph.tensors[name].values for name in node.inputs]
        is_mask = node.op == "SELECT" and any(map(mask_sign, values))
        if is_mask or (is_passing and not reached.isdisjoint(node.inputs)):
            reached.update(node.outputs)
    axes = _axes(graph) if reached else {}
    return {name: axes.get(name, -1) for name in sorted(reached)}


def from_last(graph: Graph, node: Node) -> int:
    """The axis of a reduction, -1 for the last: examples may have an axis in front."""
    return node.attributes["axis"] - len(graph.tensors[node.inputs[0]].shape or ())


def _axes(graph: Graph) -> dict[str, int]:
    """The axis over which tensors, or elementwise functions of them, are first summed up."""
    axes = dict[str, int]()
    for node in reversed(graph.ordered_nodes()):
        if node.op in _SUMS:
            axes[node.inputs[0]] = from_last(graph, node)
        elif spec.OPERATORS[node.op].is_elementwise and node.outputs[0] in axes:
            axes |= {name: axes[node.outputs[0]] for name in node.inputs if name not in axes}
    return axes


# Masks as SELECT.


def with_selects(graph: Graph) -> Graph:
    """Has SELECT alone put masks in: x + where(m, y, -inf) becomes where(m, x + y, -inf).

    A constant of ADD, SUB and SELECT that has other elements beside a mask becomes a SELECT of
    both; and SELECT goes after RESHAPE, TRANSPOSE and others that move a mask of zeros. Unmasked
    elements keep their value; masked elements have the value of the mask.

    Args:
      graph: one part, of FP32, whose results of constants alone have been computed.
    """
    writer = _Writer(graph)
    for node in graph.ordered_nodes():
        writer.write(node)
    return writer.draft.finished() if writer.is_changed else graph


class _Choice(NamedTuple):
    """The inputs of a SELECT: `never` is a mask, in second place or, as `is_else`, in third."""

    condition: str
    kept: str
    never: str
    is_else: bool

    def inputs(self, number: str, never: str) -> tuple[str, str, str]:
        return (self.condition, *((number, never) if self.is_else else (never, number)))


class _Writer:
    """Writes a graph again, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.draft = Draft(graph)
        self.is_changed = False
        self._choices = dict[str, _Choice | None]()

    def write(self, node: Node) -> None:
        replacement = (
            self._without_neutral(node)
            or self._with_moved_condition(node)
            or self._with_select(node)
        )
        if replacement is None:
            self._put(node)
        else:
            self.is_changed = True
            for each in replacement:
                self.write(each)

    def _put(self, node: Node) -> None:
        self.draft.nodes.append(node)
        if node.op == "SELECT":
            condition, *choices = node.inputs
            ends = [mask_sign(self._values(name)) for name in choices]
            if any(ends):
                is_else = bool(ends[1])
                number, never = choices if is_else else reversed(choices)
                self._choices[node.outputs[0]] = _Choice(condition, number, never, is_else)

    def _with_select(self, node: Node) -> Sequence[Node] | None:
        """A sum of a mask, or a SELECT of a constant that is a mask in part; None for others."""
        for place in {"SELECT": (1, 2), "ADD": (0, 1), "SUB": (0, 1)}.get(node.op, ()):
            choice = self._choice(node.inputs[place])
            # What SELECT gives stays masked: in another choice, and where less is left than before.
            is_done = node.op == "SELECT" or (node.op, place) == ("SUB", 0)
            if choice is None or (is_done and self._values(node.inputs[place]) is None):
                continue
            if node.op == "SELECT":
                return self._select_before(node, place, choice)
            if (replacement := self._select_after(node, place, choice)) is not None:
                return replacement
        return None

    def _select_before(self, node: Node, place: int, choice: _Choice) -> Sequence[Node]:
        """A SELECT of a constant that is a mask in part, after a SELECT that makes the constant."""
        inputs = choice.inputs(choice.kept, choice.never)
        name = f"{node.inputs[place]}/masked"
        name = self.draft.tensor(name, DType.FP32, self._broadcast(inputs))
        inner = Node("SELECT", inputs, (name,), location=node.location)
        return inner, dataclasses.replace(node, inputs=_with_name_at(node.inputs, place, name))

    def _select_after(self, node: Node, place: int, choice: _Choice) -> Sequence[Node] | None:
        """The sum of the unmasked elements, and the SELECT after it; None where shapes differ."""
        (output,) = node.outputs
        never = choice.never
        if node.op == "SUB" and place == 1:
            values = self._values(never)
            assert values is not None
            never = self.draft.const(f"{never}/negative", -values, DType.FP32)
        inputs = _with_name_at(node.inputs, place, choice.kept)
        other, shape = node.inputs[1 - place], self.draft.tensors[output].shape
        if self._broadcast((choice.condition, never, *inputs)) != shape:
            return None
        select = dataclasses.replace(node, op="SELECT", attributes={})
        values = self._values(choice.kept)
        is_zero = values is not None and not values.any() and (node.op, place) != ("SUB", 0)
        if is_zero and self._broadcast((choice.condition, never, other)) == shape:
            return (dataclasses.replace(select, inputs=choice.inputs(other, never)),)
        name = self.draft.tensor(f"{output}/unmasked", DType.FP32, self._broadcast(inputs))
        inner = dataclasses.replace(node, inputs=inputs, outputs=(name,))
        return inner, dataclasses.replace(select, inputs=choice.inputs(name, never))

    def _with_moved_condition(self, node: Node) -> Sequence[Node] | None:
        """RESHAPE and others of a mask of one number and another, as a SELECT of moved booleans."""
        choice = self._choices.get(node.inputs[0]) if spec.OPERATORS[node.op].rearranges else None
        if choice is None:
            return None
        tensors, (output,) = self.draft.tensors, node.outputs
        numbers = [self._values(name) for name in (choice.kept, choice.never)]
        is_whole = tensors[choice.condition].shape == tensors[node.inputs[0]].shape
        if not is_whole or any(values is None or values.size != 1 for values in numbers):
            return None
        shape = tensors[output].shape or ()
        ones = [
            self.draft.const(f"{output}/{label}", values.reshape((1,) * len(shape)), DType.FP32)
            for label, values in zip(("kept", "never"), numbers, strict=True)
            if values is not None
        ]
        condition = self.draft.tensor(f"{output}/mask", DType.BOOL, shape)
        inputs = _with_name_at(node.inputs, 0, choice.condition)
        moved = choice._replace(condition=condition)
        return (
            dataclasses.replace(node, inputs=inputs, outputs=(condition,)),
            Node("SELECT", moved.inputs(*ones), (output,), location=node.location),
        )

    def _without_neutral(self, node: Node) -> Sequence[Node] | None:
        """The larger of x and the lowest float is x, and so on."""
        sign = {"MAXIMUM": -1, "MINIMUM": 1}.get(node.op)
        for place, name in enumerate(node.inputs if sign else ()):
            values, other = self._values(name), node.inputs[1 - place]
            is_like = self.draft.tensors[other].shape == self.draft.tensors[node.outputs[0]].shape
            if values is not None and is_like and np.all(values * np.float32(sign) >= _LARGEST):
                return (Node("IDENTITY", (other,), node.outputs, location=node.location),)
        return None

    def _choice(self, name: str) -> _Choice | None:
        """A mask as a choice: the result of a SELECT, or a constant that is a mask in part."""
        if name not in self._choices:
            self._choices[name] = self._split(name)
        return self._choices[name]

    def _split(self, name: str) -> _Choice | None:
        """A constant that is a mask in part, by the sign of its first element of the mask."""
        values = self._values(name)
        if values is None or values.dtype != np.float32 or mask_sign(values):
            return None
        is_never = np.abs(values) >= NEVER
        if not is_never.any():
            return None
        first = values[is_never][0]
        is_never &= (values > 0) == (first > 0)
        same = np.full((1,) * values.ndim, first)
        never = same if np.all(values[is_never] == first) else np.where(is_never, values, first)
        numbers = np.where(is_never, np.float32(0), values)
        const = self.draft.const
        return _Choice(
            const(f"{name}/mask", ~is_never, DType.BOOL),
            const(f"{name}/kept", numbers, DType.FP32),
            const(f"{name}/never", never, DType.FP32),
            is_else=True,
        )

    def _values(self, name: str) -> np.ndarray | None:
        return self.draft.tensors[name].values

    def _broadcast(self, names: Sequence[str]) -> tuple[int, ...]:
        return np.broadcast_shapes(*(self.draft.tensors[name].shape or () for name in names))


def _with_name_at(names: Sequence[str], place: int, name: str) -> tuple[str, ...]:
    return (*names[:place], name, *names[place + 1 :])
