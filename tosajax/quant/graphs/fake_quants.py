"""Fake quantization in a float graph: rounding to the real values of integers, as QAT tools write.

Nodes that only do so go, and the tensor that they round gets their scale and zero point.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.spec import NanMode

_ENDS = ("min_val", "max_val")
_NEAR = 2.0**-16  # relative; products and quotients in float32 are nearer


class FakeQuant(NamedTuple):
    """The integers whose real values a tensor is rounded to.

    Args:
      scale: the real value of 1.
      low: the least, of a zero point of 0.
      high: the largest.
    """

    scale: float
    low: int
    high: int

    @property
    def bits(self) -> int | None:
        """The bits of these integers; None where they are not all of so many bits."""
        count = self.high - self.low + 1 + self.is_narrow
        return count.bit_length() - 1 if count.bit_count() == 1 else None

    @property
    def is_narrow(self) -> bool:
        """Whether 0 is the middle, so that the lowest integer of so many bits is left out."""
        return self.low == -self.high

    @property
    def zero_point(self) -> int:
        """The integer of 0, where the lowest of so many bits stands for the least."""
        return 0 if self.is_narrow else -(1 << ((self.bits or 0) - 1)) - self.low

    @property
    def is_known(self) -> bool:
        """Whether INT8 or INT16 has it: a range of whole bits, that holds 0."""
        bits = self.bits
        if bits is None or not 2 <= bits <= 16 or not self.low <= 0 <= self.high:
            return False
        return bits <= 8 or self.zero_point == 0


def without_fake_quants(graph: Graph) -> tuple[Graph, dict[str, FakeQuant]]:
    """The graph without fake quantization of computed tensors and inputs, and what it was.

    s * clamp(round(x / s)), with a zero point that is added before the clamp and subtracted after
    it, with the clamp before the rounding, and with floor(x / s + 1/2), or the nearer of
    floor(x / s) and ceil(x / s); also where x + (y - x), as straight-through code has it, is the
    rounded y. A CLAMP at the ends of the integers is left of it. A tensor that is rounded in two
    ways keeps the nodes of the second.

    Args:
      graph: one part, of FP32, whose results of constants alone have been computed.

    Returns:
      The graph, whose nodes may include some that nothing reads, and the tensors that were rounded,
      by name, with the tensors that they are made of by what keeps scales.
    """
    matcher = _Matcher(graph)
    rounded, equal = dict[str, FakeQuant](), dict[str, str]()
    nodes = []
    for node in graph.ordered_nodes():
        match = matcher.match(node)
        source = "" if match is None else matcher.source(match.x)
        if match is not None and rounded.setdefault(source, match.own) == match.own:
            node = matcher.limit(match, node)
            rounded[node.outputs[0]] = match.own
            equal[node.outputs[0]] = node.inputs[0]
        elif (y := matcher.straight_through(node)) in equal:
            node = Node("IDENTITY", (equal[str(y)],), node.outputs, location=node.location)
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes)), rounded


def source_of(graph: Graph, name: str) -> str:
    """The tensor that another is made of by operators that keep its scale."""
    producers = {output: node for node in graph.nodes for output in node.outputs}
    return _source(producers, name)


def _integers(scale: float, low: float, high: float) -> FakeQuant | None:
    """The integers from `low` to `high`, where INT8 or INT16 has them."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    own = FakeQuant(scale, round(low), round(high))
    distance = max(abs(low - own.low), abs(high - own.high))
    is_whole = distance < _NEAR * max(abs(own.low), abs(own.high))
    return own if is_whole and own.is_known else None


def _is_within(clamp: Node, ends: Sequence[np.float32]) -> bool:
    """Whether a CLAMP leaves nothing beyond the ends of integers, but for the rounding of reals."""
    low, high = (float(clamp.attributes[end]) for end in _ENDS)
    least, most = (float(end) for end in ends)
    room = _NEAR * (most - least)
    return low >= least - room and high <= most + room


def _source(producers: Mapping[str, Node], name: str) -> str:
    while (node := producers.get(name)) is not None:
        if not spec.OPERATORS[node.op].keeps_scale or node.op == "CONCAT":
            break
        name = node.inputs[0]
    return name


class _Step(NamedTuple):
    """A node of a chain: limits, then an integer that is added, of x or of what x is rounded to.

    One that truncates changes nothing, but only if x is rounded already.
    """

    x: str
    low: float = -math.inf
    high: float = math.inf
    moved: float = 0.0
    rounds: bool = False
    truncates: bool = False


class _Chain(NamedTuple):
    """The nodes of a chain from its end on: limits of its result, and what is added before it."""

    low: float = -math.inf
    high: float = math.inf
    moved: float = 0.0
    rounds: bool = False

    def after(self, step: _Step) -> _Chain:
        """The chain with the node before its first one."""
        low, high = max(self.low, step.low + self.moved), min(self.high, step.high + self.moved)
        rounds = step.rounds or (self.rounds and not step.truncates)
        return _Chain(low, high, self.moved + step.moved, rounds)

    @property
    def is_whole(self) -> bool:
        """Whether it rounds, and adds nothing in all, and no fraction in between."""
        return self.rounds and self.moved == 0


class _Match(NamedTuple):
    """The tensor that a chain rounds, and how."""

    x: str
    own: FakeQuant


class _Matcher:
    """Finds chains of nodes that are fake quantization."""

    def __init__(self, graph: Graph) -> None:
        self._tensors = graph.tensors
        self._producers = {name: node for node in graph.nodes for name in node.outputs}

    def match(self, node: Node) -> _Match | None:
        """The tensor that is rounded, where a node ends such a chain."""
        scaled = self._by_number(node, "MUL")
        if scaled is None or scaled[1] <= 0:
            return None
        name, scale = scaled
        chain = _Chain()
        while (before := self._producers.get(name)) is not None:
            if (factor := self._by_number(before, "MUL")) is not None:
                x, inverse = factor
                is_whole = chain.is_whole and abs(inverse * scale - 1) < _NEAR
                return self._of(x, scale, chain) if is_whole else None
            step = self._step(before)
            if step is None or step.moved % 1:
                return None
            name = step.x
            chain = chain.after(step)
        return None

    def straight_through(self, node: Node) -> str | None:
        """The rounded tensor y of a node that is x + (y - x), or (x + y) - x."""
        pairs = (node.inputs[:2], node.inputs[1::-1]) if node.op in ("ADD", "SUB") else ()
        for x, other in pairs:
            inner = self._producers.get(other)
            if inner is None or {node.op, inner.op} != {"ADD", "SUB"}:
                continue
            if node.op == "ADD" and inner.inputs[1] == x:
                return inner.inputs[0]
            if node.op == "SUB" and node.inputs[1] == x and x in inner.inputs:
                return inner.inputs[inner.inputs[0] == x]
        return None

    def limit(self, match: _Match, node: Node) -> Node:
        """What is left of fake quantization: the ends of its integers, which may be a function.

        A converter leaves out the ReLU before integers whose least is 0. An input has these ends as
        its type.
        """
        x, own = match
        before = self._producers.get(x)
        ends = tuple(np.float32(end * own.scale) for end in (own.low, own.high))
        if before is None or (before.op == "CLAMP" and _is_within(before, ends)):
            return Node("IDENTITY", (x,), node.outputs, location=node.location)
        attributes = dict(zip(_ENDS, ends, strict=True)) | {"nan_mode": NanMode.PROPAGATE}
        return Node("CLAMP", (x,), node.outputs, attributes, node.location)

    def source(self, name: str) -> str:
        """See `source_of`."""
        return _source(self._producers, name)

    def _of(self, x: str, scale: float, chain: _Chain) -> _Match | None:
        """What a chain makes of a tensor, where INT8 or INT16 has it."""
        own = _integers(scale, chain.low, chain.high)
        before = self._producers.get(x)
        if own is None and before is not None and before.op == "CLAMP":  # of real values
            least, most = (float(before.attributes[end]) / scale for end in _ENDS)
            own = _integers(scale, max(chain.low, least), min(chain.high, most))
        return None if own is None else _Match(x, own)

    def _step(self, node: Node) -> _Step | None:
        """What a node of a chain does to numbers; None of other nodes."""
        if node.op == "CLAMP":
            low, high = (float(node.attributes[end]) for end in _ENDS)
            return _Step(node.inputs[0], low=low, high=high)
        if (limit := self._by_number(node, "MAXIMUM")) is not None:
            return _Step(limit[0], low=limit[1])
        if (limit := self._by_number(node, "MINIMUM")) is not None:
            return _Step(limit[0], high=limit[1])
        if (offset := self._offset(node)) is not None:
            return _Step(offset[0], moved=offset[1])
        if (rounded := self.straight_through(node)) is not None:
            return _Step(rounded)
        if (whole := self._truncated(node)) is not None:
            return _Step(whole, truncates=True)
        return self._rounding(node)

    def _number(self, name: str) -> float | None:
        """The value of a constant of one element, or of equal ones."""
        values = self._tensors[name].values
        if values is None or not values.size or values.dtype.kind not in "if":
            return None
        first = values.reshape(-1)[0]
        return float(first) if np.all(values == first) else None

    def _by_number(self, node: Node, op: str) -> tuple[str, float] | None:
        """The other operand of a product with a number, and the number."""
        if node.op != op:
            return None
        for x, other in (node.inputs[:2], node.inputs[1::-1]):
            if (number := self._number(other)) is not None and self._tensors[x].values is None:
                return x, number
        return None

    def _offset(self, node: Node) -> tuple[str, float] | None:
        """What a node adds a number to, and the number."""
        if node.op == "ADD":
            return self._by_number(node, "ADD")
        number = self._number(node.inputs[1]) if node.op == "SUB" else None
        return None if number is None else (node.inputs[0], -number)

    def _rounding(self, node: Node) -> _Step | None:
        """A node that rounds to integers, or that makes floats of them."""
        if node.op == "FLOOR":
            before = self._producers.get(node.inputs[0])
            offset = None if before is None else self._offset(before)
            is_half = offset is not None and offset[1] % 1 == 0.5
            return (
                _Step(offset[0], moved=offset[1] - 0.5, rounds=True) if offset and is_half else None
            )
        if node.op == "CAST":
            types = [self._tensors[name].dtype for name in (*node.inputs, *node.outputs)]
            if types[1] is DType.FP32 and types[0].is_integer:
                return _Step(node.inputs[0])
            if types[0] is DType.FP32 and types[1].is_integer:
                low, high = float(types[1].minimum), float(types[1].maximum)
                return _Step(node.inputs[0], low=low, high=high, rounds=True)
            if all(own.is_integer for own in types) and types[0].bits <= types[1].bits:
                return _Step(node.inputs[0])
        if node.op == "SELECT" and self._is_rounded_below_limit(node):
            return _Step(node.inputs[2], rounds=True)
        if node.op == "SELECT" and (x := self._nearest(node)) is not None:
            return _Step(x, rounds=True)
        return None

    def _nearest(self, node: Node) -> str | None:
        """The x of a SELECT of floor(x) or ceil(x), whichever is nearer; ties may go to either."""
        condition, *arms = [self._producers.get(name) for name in node.inputs]
        if [arm and arm.op for arm in arms] != ["FLOOR", "CEIL"] or condition is None:
            return None
        floor, ceil = (arm for arm in arms if arm)
        x = floor.inputs[0]
        fraction = ("SUB", (x, floor.outputs[0]))
        is_nearer = self._is_below_half(condition, fraction) or (
            condition.op == "LOGICAL_OR"
            and any(
                self._is_below_half(below, fraction) and self._is_tie(tie, fraction)
                for below, tie in self._both_orders(condition)
            )
        )
        return x if is_nearer and ceil.inputs[0] == x else None

    def _both_orders(self, node: Node) -> list[tuple[Node | None, Node | None]]:
        a, b = (self._producers.get(name) for name in node.inputs[:2])
        return [(a, b), (b, a)]

    def _is_below_half(self, node: Node | None, fraction: tuple[str, tuple[str, ...]]) -> bool:
        """Whether a node tells that a fraction is less than 1/2, or at most."""
        if node is None or node.op not in ("GREATER", "GREATER_EQUAL"):
            return False
        return self._number(node.inputs[0]) == 0.5 and self._is(node.inputs[1], fraction)

    def _is_tie(self, node: Node | None, fraction: tuple[str, tuple[str, ...]]) -> bool:
        """Whether a node tells that a fraction is 1/2, and maybe more."""
        if node is None:
            return False
        if node.op == "LOGICAL_AND":
            return any(self._is_tie(part, fraction) for part, _ in self._both_orders(node))
        pairs = (node.inputs[:2], node.inputs[1::-1]) if node.op == "EQUAL" else ()
        return any(self._number(half) == 0.5 and self._is(x, fraction) for x, half in pairs)

    def _is(self, name: str, wanted: tuple[str, tuple[str, ...]]) -> bool:
        """Whether a tensor is the result of an operator of some tensors."""
        node = self._producers.get(name)
        return node is not None and (node.op, tuple(node.inputs[:2])) == wanted

    def _is_rounded_below_limit(self, node: Node) -> bool:
        """Whether a SELECT takes a rounded number, or the number where CAST would saturate."""
        name = node.inputs[1]
        for op in ("CAST", "CAST", "CLAMP"):
            before = self._producers.get(name)
            if before is None or before.op != op:
                return False
            name = before.inputs[0]
        return name == node.inputs[2]

    def _truncated(self, node: Node) -> str | None:
        """What floor(max(x, 0)) + ceil(min(x, 0)) truncates, which integers are not changed by."""
        parts = [self._producers.get(name) for name in node.inputs[:2]] if node.op == "ADD" else []
        if [part and part.op for part in parts] != ["FLOOR", "CEIL"]:
            return None
        limits = [self._producers.get(part.inputs[0]) for part in parts if part]
        steps = [self._step(limit) if limit else None for limit in limits]
        if any(step is None or step.rounds or step.moved for step in steps):
            return None
        above, below = (step for step in steps if step)
        is_split = above.x == below.x and above.low == 0 and below.high == 0
        return above.x if is_split else None
