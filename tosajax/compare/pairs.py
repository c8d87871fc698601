"""Measures the differences of the tensors that two programs share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tosajax.compare.comparison import Row
from tosajax.compare.measure import Measure, Side
from tosajax.compare.program import Program
from tosajax.compare.scales import (
    Integers,
    Pair,
    Scales,
    as_real,
    clipping_of,
    comparable,
    converted,
    scales_in,
)
from tosajax.compare.tolerance import EXACT, Tolerance, allowed, budgets
from tosajax.graph import Graph, Node, Tensor
from tosajax.graph.locations import described
from tosajax.graph.quantization import Clipping

Arrays = Mapping[str, np.ndarray]

_GIVE = (
    "give the scale and zero point of the integers (real=, Graph.quantization, --input-quant, "
    "--output-quant)"
)


class Pairs:
    """Collects the rows of a comparison.

    Args:
      graph: a, with known dimensions.
      other: b.
      names: tensors of a.
      real: scales of integers in either program, in addition to the scales in their graphs.
      tolerance: the largest accepted differences.
      clip: whether inputs that b takes as integers may saturate in any number.

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
        *,
        clip: bool = True,
    ) -> None:
        self._graph, self._other, self._tolerance = graph, other, tolerance
        self._scales = {**scales_in(graph), **real}, {**other.scales, **real}
        self._integers = Integers(graph), Integers(other.graph)
        self._check_inputs()
        shared = [name for name in names if name in other.tensors]
        self.names = [n for n in shared if self._can_compare(*self._tensors(n))]
        alone = [name for name in shared if name not in set(self.names)]
        # The reason why shared tensors are left out; "" if none is.
        self.without_scale = (
            f"no scale is known of {len(alone)}, such as {alone[0]!r}" if alone else ""
        )
        if not self.names:
            raise ValueError(self._why_none(shared))
        self._clippings = [] if clip else self._own_clippings()
        self._totals = {name: Measure(*self._sides(*self._tensors(name))) for name in self.names}
        self._locals: dict[str, Measure] = {}

    def inputs(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Converts inputs of the graph to inputs of the other program.

        Raises:
          ValueError: many are out of the range of the other program's scale.
        """
        clippings = self._clippings or [None] * len(rows)
        pairs = zip(rows, self._input_sides(), clippings, strict=True)
        arrays = [converted(x, mine, theirs, own) for x, (mine, theirs), own in pairs]
        for own in self._clippings:
            if own is not None:
                own.refuse()
        return arrays

    def inputs_as_mine(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Converts inputs of the other program to inputs of the graph."""
        pairs = zip(rows, self._input_sides(), strict=True)
        return [converted(x, theirs, mine) for x, (mine, theirs) in pairs]

    def as_mine(self, name: str, values: np.ndarray) -> np.ndarray:
        """Converts values of the other program's tensor to the type of the graph's tensor."""
        mine, theirs = self._sides(*self._tensors(name))
        return converted(values, theirs, mine)

    def add(self, mine: Arrays, theirs: Arrays) -> None:
        """Adds the tensors of the next examples, from both programs."""
        for name, measure in self._totals.items():
            measure.add(mine[name], theirs[name])

    def add_local(self, apart: Arrays, theirs: Arrays) -> None:
        """Adds the next examples of each layer, computed from the other program's tensors."""
        for name, values in apart.items():
            if name not in self._locals:
                self._locals[name] = Measure(*self._sides(*self._tensors(name)))
            self._locals[name].add(values, theirs[name])

    def rows(self) -> tuple[Row, ...]:
        """The rows of the comparison; warns if inputs were clipped."""
        for own in self._clippings:
            if own is not None:
                own.warn()
        nodes = {name: node for node in self._graph.nodes for name in node.outputs}
        judge = self._tolerance.floats
        total = budgets(self._graph) if judge else {}
        local = budgets(self._graph, self.names) if judge and self._locals else {}
        return tuple(
            self._row(name, nodes.get(name), total.get(name, 0.0), local.get(name, 0.0))
            for name in self.names
        )

    def _row(self, name: str, node: Node | None, total: float, local: float) -> Row:
        mine, theirs = self._tensors(name)
        sides, measured = self._sides(mine, theirs), self._totals[name].result()
        apart = self._locals[name].result() if name in self._locals else None
        return Row(
            tensor=name,
            other=self._other.called.get(name, theirs.name),
            operator=node.op if node else "",
            location=described(node.location if node else None),
            dtype=mine.dtype.name,
            is_output=name in self._graph.outputs,
            as_real=as_real(mine, theirs, self._known(mine, theirs)),
            total=measured,
            local=apart,
            allowed=allowed(self._tolerance, sides, total, measured),
            allowed_local=allowed(self._tolerance, sides, local, apart or measured),
        )

    def _tensors(self, name: str) -> tuple[Tensor, Tensor]:
        return self._graph.tensors[name], self._other.tensors[name]

    def _known(self, mine: Tensor, theirs: Tensor) -> Pair:
        return self._scales[0].get(mine.name), self._scales[1].get(theirs.name)

    def _can_compare(self, mine: Tensor, theirs: Tensor) -> bool:
        return comparable(mine, theirs, self._known(mine, theirs))

    def _sides(self, mine: Tensor, theirs: Tensor) -> tuple[Side, Side]:
        """The Sides for comparing two tensors: as real numbers, or as they are."""
        scales = self._known(mine, theirs)
        is_real = as_real(mine, theirs, scales)
        a, b = (
            integers.side(tensor, scale if is_real else None)
            for integers, tensor, scale in zip(self._integers, (mine, theirs), scales, strict=True)
        )
        if is_real:
            return a, b
        # One zero point for both sides: one graph may not state it, and if they differ, the
        # difference has to show as an error.
        zero_point = b.zero_point or a.zero_point
        a, b = (dataclasses.replace(side, zero_point=zero_point) for side in (a, b))
        return a, b

    def _inputs(self) -> list[tuple[Tensor, Tensor]]:
        graphs = self._graph, self._other.graph
        return list(zip(*(graph.input_tensors for graph in graphs), strict=True))

    def _input_sides(self) -> list[tuple[Side, Side]]:
        return [self._sides(*pair) for pair in self._inputs()]

    def _own_clippings(self) -> list[Clipping | None]:
        names = [tensor.name for tensor, _ in self._inputs()]
        return [
            clipping_of(name, *sides)
            for name, sides in zip(names, self._input_sides(), strict=True)
        ]

    def _check_inputs(self) -> None:
        mine, theirs = self._graph.input_tensors, self._other.graph.input_tensors
        if [t.shape for t in mine] != [t.shape for t in theirs]:
            a, b = (", ".join(f"{t.name}: {t}" for t in side) for side in (mine, theirs))
            raise ValueError(f"the inputs are {a} here and {b} in the other program")
        for a, b in self._inputs():
            if not self._can_compare(a, b):
                raise ValueError(
                    f"{a.name!r} is {a.dtype.name} in one program and {b.dtype.name} in "
                    f"the other: {_GIVE}"
                )

    def _why_none(self, shared: Sequence[str]) -> str:
        if not shared:
            return "there is no tensor to compare"
        mine, theirs = self._tensors(shared[0])
        return (
            f"{mine.name!r} is {mine.dtype.name} here and {theirs.dtype.name} in the other "
            f"program: {_GIVE}"
        )
