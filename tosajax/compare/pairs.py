"""The tensors that two programs share, and what is known of how they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax.compare.comparison import Row
from tosajax.compare.measure import Measure, Side
from tosajax.compare.programs import Program
from tosajax.compare.scales import Integers, Scales, comparable, converted
from tosajax.graph import Graph, Tensor
from tosajax.locations import described

Arrays = Mapping[str, np.ndarray]


class Pairs:
    """Collects the rows of a comparison.

    Args:
      graph: a; of known dimensions.
      other: b.
      names: tensors of a.
      scales: of integers that are compared as real numbers.

    Raises:
      ValueError: nothing can be compared.
    """

    def __init__(self, graph: Graph, other: Program, names: Sequence[str], scales: Scales) -> None:
        self._graph, self._other, self._scales = graph, other, scales
        self._check_inputs()
        self._mine = Integers(graph)
        shared = [name for name in names if name in other.tensors]
        self.names = [n for n in shared if comparable(*self._tensors(n), scales)]
        if not self.names:
            raise ValueError(self._why_none(shared))
        self._totals = {name: Measure(*self._sides(name)) for name in self.names}
        self._locals: dict[str, Measure] = {}

    def inputs(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Inputs of the graph as the other program takes them."""
        pairs = zip(rows, self._graph.input_tensors, self._other.inputs, strict=True)
        return [converted(x, mine, theirs, self._scales) for x, mine, theirs in pairs]

    def inputs_as_mine(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Inputs of the other program as the graph takes them."""
        pairs = zip(rows, self._other.inputs, self._graph.input_tensors, strict=True)
        return [converted(x, theirs, mine, self._scales) for x, theirs, mine in pairs]

    def as_mine(self, name: str, values: np.ndarray) -> np.ndarray:
        """A tensor of the other program in the type that the graph has there."""
        mine, theirs = self._tensors(name)
        return converted(values, theirs, mine, self._scales)

    def add(self, mine: Arrays, theirs: Arrays) -> None:
        """Takes the tensors of the next examples."""
        for name, measure in self._totals.items():
            measure.add(mine[name], theirs[name])

    def add_local(self, apart: Arrays, theirs: Arrays) -> None:
        """Takes what each layer makes, in the next examples, of what the other program has."""
        for name, values in apart.items():
            if name not in self._locals:
                self._locals[name] = Measure(*self._sides(name))
            self._locals[name].add(values, theirs[name])

    def rows(self) -> tuple[Row, ...]:
        """The result."""
        nodes = {name: node for node in self._graph.nodes for name in node.outputs}
        return tuple(
            Row(
                tensor=name,
                other=self._other.tensors[name].name,
                operator=nodes[name].op if name in nodes else "",
                location=described(nodes[name].location if name in nodes else None),
                dtype=self._graph.tensors[name].dtype.name,
                is_output=name in self._graph.outputs,
                as_real=len({t.dtype for t in self._tensors(name)}) > 1,
                total=self._totals[name].result(),
                local=self._locals[name].result() if name in self._locals else None,
            )
            for name in self.names
        )

    def _tensors(self, name: str) -> tuple[Tensor, Tensor]:
        return self._graph.tensors[name], self._other.tensors[name]

    def _sides(self, name: str) -> tuple[Side, Side]:
        mine, theirs = self._tensors(name)
        scales = self._scales if mine.dtype is not theirs.dtype else {}
        a = self._mine.side(mine, name, scales.get(name))
        b = self._other.side(name, scales.get(theirs.name))
        if mine.dtype is not theirs.dtype:
            return a, b
        # One of the graphs may not say it; and a wrong one is to be seen as an error.
        zero_point = b.zero_point or a.zero_point
        a, b = (dataclasses.replace(side, zero_point=zero_point) for side in (a, b))
        return a, b

    def _check_inputs(self) -> None:
        found = [[t.shape for t in p] for p in (self._graph.input_tensors, self._other.inputs)]
        if found[0] != found[1]:
            mine, theirs = (
                ", ".join(f"{t.name}: {t}" for t in p)
                for p in (self._graph.input_tensors, self._other.inputs)
            )
            raise ValueError(f"the inputs are {mine} here and {theirs} in what to compare with")

    def _why_none(self, shared: Sequence[str]) -> str:
        for name in shared:
            mine, theirs = self._tensors(name)
            return (
                f"{name!r} is {mine.dtype.name}, and {theirs.dtype.name} in what it is compared "
                "with: give the scale and zero point of the integers in real="
            )
        return "there is no tensor to compare"
