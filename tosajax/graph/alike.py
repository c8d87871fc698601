"""Compares graphs, ignoring names, locations and the order of nodes.

Formats keep different names, so this is how one graph in two formats is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax import spec
from tosajax.graph.model import Graph, Node, Tensor, same_values


def difference(first: Graph, second: Graph) -> str | None:
    """The first difference between two graphs apart from names, in words; None if they agree.

    Inputs and outputs are matched by position, all other tensors by the nodes that compute them.
    Nodes without outputs (VARIABLE_WRITE) are compared in order, nodes that nothing depends on only
    by the number of each operator. Names of variables are compared. A missing attribute has its
    default.
    """
    return next(_differences(first, second), None)


def _differences(first: Graph, second: Graph) -> Iterator[str]:
    for side in ("inputs", "outputs"):
        counts = [len(getattr(graph, side)) for graph in (first, second)]
        if counts[0] != counts[1]:
            yield f"{counts[0]} {side}, and {counts[1]} in the second"
            return
    more, fewer = (_operators(a) - _operators(b) for a, b in ((first, second), (second, first)))
    if more or fewer:
        yield f"operators: {_listed(more)} more in the first, {_listed(fewer)} in the second"
        return
    yield from _Comparison(first, second).differences()


def _operators(graph: Graph) -> Counter[str]:
    """Counts of operators, without constants, as equal constants may be shared."""
    return Counter(n.op for n in graph.nodes if n.op not in spec.CONSTANT_OPERATORS)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(counts.items())) or "none"


class _Comparison:
    """Matches the tensors of two graphs in pairs, from the outputs back."""

    def __init__(self, first: Graph, second: Graph) -> None:
        self._graphs = first, second
        self._makers = [{n: node for node in g.nodes for n in node.outputs} for g in self._graphs]
        self._pairs: dict[str, str] = {}
        self._back: dict[str, str] = {}
        self._left: list[tuple[str, str]] = []

    def differences(self) -> Iterator[str]:
        first, second = self._graphs
        for side in ("inputs", "outputs"):
            pairs = zip(getattr(first, side), getattr(second, side), strict=True)
            for pair in pairs:
                yield from self._reached(*pair)
        ends = [[n for n in graph.nodes if not n.outputs] for graph in self._graphs]
        for pair in zip(*ends, strict=False):  # VARIABLE_WRITEs, in their order
            yield from self._nodes(*pair)
        while self._left:
            yield from self._made(*self._left.pop())

    def _reached(self, one: str, other: str) -> Iterator[str]:
        """Compares two tensors, and queues the nodes that compute them."""
        first, second = self._graphs[0].tensors.get(one), self._graphs[1].tensors.get(other)
        if first is None or second is None:
            if first is not second:
                yield f"only one of {one!r} and {other!r} is declared"
            return
        yield from _of_tensors(first, second)
        if first.values is not None and first.variable is None:
            return  # equal constants may be shared
        if one in self._pairs or other in self._back:
            if self._pairs.get(one) != other:
                partner = self._pairs.get(one, "another tensor")
                yield f"{one!r} is {partner!r} and {other!r} in the second"
            return
        self._pairs[one], self._back[other] = other, one
        if one not in self._graphs[0].inputs:
            self._left.append((one, other))

    def _made(self, one: str, other: str) -> Iterator[str]:
        """Compares the nodes that compute two tensors."""
        first, second = self._makers[0].get(one), self._makers[1].get(other)
        if first is None or second is None:
            if first is not second:
                yield f"a node makes only one of {one!r} and {other!r}"
            return
        places = first.outputs.index(one), second.outputs.index(other)
        if places[0] != places[1]:
            yield f"{one!r} is output {places[0]} of {first.title}, {other!r} is {places[1]}"
        yield from self._nodes(first, second)

    def _nodes(self, one: Node, other: Node) -> Iterator[str]:
        if one.op != other.op or len(one.inputs) != len(other.inputs):
            message = f"{one.title} of {len(one.inputs)} inputs"
            yield f"{message}, and {other.title} of {len(other.inputs)} in the second"
            return
        names = [*one.attributes, *(n for n in other.attributes if n not in one.attributes)]
        for name in names:
            yield from self._attributes(name, one, other)
        for pair in zip(one.inputs, other.inputs, strict=True):
            yield from self._reached(*pair)

    def _attributes(self, name: str, one: Node, other: Node) -> Iterator[str]:
        values = _attribute(one, name), _attribute(other, name)
        graphs = [graph.subgraphs for graph in self._graphs]
        if all(isinstance(v, str) and v in g for v, g in zip(values, graphs, strict=True)):
            parts = [g[str(v)] for v, g in zip(values, graphs, strict=True)]
            for text in _differences(*parts):
                yield f"{one.title}, {name}: {text}"
        elif _bits(values[0]) != _bits(values[1]):
            yield f"{one.title}: {name} is {values[0]}, and {values[1]} in the second"


def _attribute(node: Node, name: str) -> Any:
    """The value of an attribute, or its default in the operator table."""
    operator = spec.OPERATORS.get(node.op)
    defaults = {a.name: a.default for a in operator.attributes} if operator else {}
    return node.attributes.get(name, defaults.get(name))


def _of_tensors(one: Tensor, other: Tensor) -> Iterator[str]:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        yield f"{one.name!r} is {one}, and {other.name!r} is {other} in the second"
    elif one.variable != other.variable:
        yield f"{one.name!r} is of variable {one.variable!r}, in the second of {other.variable!r}"
    elif not same_values(one, other):
        yield f"the values of {one.name!r} and {other.name!r} differ"


def _bits(value: Any) -> Any:
    """A key that is equal for equal attributes or values; arrays compare by their bits (NaN)."""
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes()
    return value
