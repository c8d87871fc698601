"""The tensors that two programs share, and what is known of how they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax.compare.comparison import Row
from tosajax.compare.measure import Measure, Side
from tosajax.compare.programs import Program
from tosajax.compare.scales import Integers, Pair, Scales, as_real, comparable, converted, scales_in
from tosajax.compare.tolerance import EXACT, Tolerance, allowed, budgets
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.locations import described

Arrays = Mapping[str, np.ndarray]

_GIVE = (
    "give the scale and zero point of the integers (real=, Graph.quantization, --input-quant, "
    "--output-quant)"
)


class Pairs:
    """Collects the rows of a comparison.

    Args:
      graph: a; of known dimensions.
      other: b.
      names: tensors of a.
      real: scales of integers in either, beside those that the two know.
      tolerance: how far tensors may be off.

    Raises:
      ValueError: nothing can be compared.
    """

    def __init__(
        self,
        graph: Graph,
        other: Program,
        names: Sequence[str],
        real: Scales,
        tolerance: Tolerance = EXACT,
    ) -> None:
        self._graph, self._other, self._tolerance = graph, other, tolerance
        self._scales = {**scales_in(graph.quantization), **real}, {**other.scales, **real}
        self._check_inputs()
        self._mine = Integers(graph)
        shared = [name for name in names if name in other.tensors]
        self.names = [n for n in shared if self._can_compare(*self._tensors(n))]
        if not self.names:
            raise ValueError(self._why_none(shared))
        self._totals = {name: Measure(*self._sides(name)) for name in self.names}
        self._locals: dict[str, Measure] = {}

    def inputs(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Inputs of the graph as the other program takes them."""
        pairs = zip(rows, self._input_sides(), strict=True)
        return [converted(x, mine, theirs) for x, (mine, theirs) in pairs]

    def inputs_as_mine(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Inputs of the other program as the graph takes them."""
        pairs = zip(rows, self._input_sides(), strict=True)
        return [converted(x, theirs, mine) for x, (mine, theirs) in pairs]

    def as_mine(self, name: str, values: np.ndarray) -> np.ndarray:
        """A tensor of the other program in the type that the graph has there."""
        mine, theirs = self._sides(name)
        return converted(values, theirs, mine)

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
        judge = self._tolerance.floats
        total = budgets(self._graph) if judge else {}
        local = budgets(self._graph, self.names) if judge and self._locals else {}
        return tuple(
            self._row(name, nodes.get(name), total.get(name, 0.0), local.get(name, 0.0))
            for name in self.names
        )

    def _row(self, name: str, node: Node | None, total: float, local: float) -> Row:
        sides, found = self._sides(name), self._totals[name].result()
        apart = self._locals[name].result() if name in self._locals else None
        return Row(
            tensor=name,
            other=self._other.tensors[name].name,
            operator=node.op if node else "",
            location=described(node.location if node else None),
            dtype=self._graph.tensors[name].dtype.name,
            is_output=name in self._graph.outputs,
            as_real=self._as_real(*self._tensors(name)),
            total=found,
            local=apart,
            allowed=allowed(self._tolerance, sides, total, found),
            allowed_local=allowed(self._tolerance, sides, local, apart or found),
        )

    def _tensors(self, name: str) -> tuple[Tensor, Tensor]:
        return self._graph.tensors[name], self._other.tensors[name]

    def _known(self, mine: Tensor, theirs: Tensor) -> Pair:
        return self._scales[0].get(mine.name), self._scales[1].get(theirs.name)

    def _can_compare(self, mine: Tensor, theirs: Tensor) -> bool:
        return comparable(mine, theirs, self._known(mine, theirs))

    def _as_real(self, mine: Tensor, theirs: Tensor) -> bool:
        return as_real(mine, theirs, self._known(mine, theirs))

    def _sides(self, name: str) -> tuple[Side, Side]:
        mine, theirs = self._tensors(name)
        if self._as_real(mine, theirs):
            scales = self._known(mine, theirs)
            return self._mine.side(mine, name, scales[0]), self._other.side(name, scales[1])
        a, b = self._mine.side(mine, name), self._other.side(name, None)
        # One of the graphs may not say it; and a wrong one is to be seen as an error.
        zero_point = b.zero_point or a.zero_point
        a, b = (dataclasses.replace(side, zero_point=zero_point) for side in (a, b))
        return a, b

    def _input_sides(self) -> list[tuple[Side, Side]]:
        found = []
        for mine, theirs in zip(self._graph.input_tensors, self._other.inputs, strict=True):
            scales = self._known(mine, theirs) if self._as_real(mine, theirs) else (None, None)
            a = self._mine.side(mine, mine.name, scales[0])
            found.append((a, self._other.integers.side(theirs, theirs.name, scales[1])))
        return found

    def _check_inputs(self) -> None:
        found = [[t.shape for t in p] for p in (self._graph.input_tensors, self._other.inputs)]
        if found[0] != found[1]:
            mine, theirs = (
                ", ".join(f"{t.name}: {t}" for t in p)
                for p in (self._graph.input_tensors, self._other.inputs)
            )
            raise ValueError(f"the inputs are {mine} here and {theirs} in what to compare with")
        for mine, theirs in zip(self._graph.input_tensors, self._other.inputs, strict=True):
            if not self._can_compare(mine, theirs):
                raise ValueError(
                    f"{mine.name!r} is {mine.dtype.name} in one program and {theirs.dtype.name} in "
                    f"the other: {_GIVE}"
                )

    def _why_none(self, shared: Sequence[str]) -> str:
        for name in shared:
            mine, theirs = self._tensors(name)
            return (
                f"{name!r} is {mine.dtype.name}, and {theirs.dtype.name} in what it is compared "
                f"with: {_GIVE}"
            )
        return "there is no tensor to compare"
