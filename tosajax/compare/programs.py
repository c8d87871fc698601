"""The programs a graph can be compared with, in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tosajax import reference_model
from tosajax.compare.matching import match
from tosajax.compare.measure import Side
from tosajax.compare.scales import Integers, Scales, scales_in
from tosajax.graph import Graph, Tensor
from tosajax.runtime.watch import Watch


class Program(Protocol):
    """What computes, or has stored, tensors of a graph."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """By their names in that graph, the tensors of the program."""
        ...

    @property
    def inputs(self) -> Sequence[Tensor]:
        """What it takes, in the graph's order."""
        ...

    @property
    def integers(self) -> Integers:
        """What is known of its integers."""
        ...

    @property
    def scales(self) -> Scales:
        """By the program's own names, what its integers stand for."""
        ...

    def side(self, name: str, scale: tuple[float, int] | None) -> Side:
        """How to compare a tensor, by the graph's name; see `Integers.side`."""
        ...

    def __call__(self, rows: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        """The tensors, (examples, *shape), of the next examples: arrays (examples, *shape)."""
        ...


class OfGraph:
    """Another graph, run here."""

    def __init__(self, graph: Graph, like: Graph, names: Sequence[str], batch: int) -> None:
        self._pairs = match(like, graph, names)
        self._watch = Watch(graph, tuple(self._pairs.values()), batch)
        self.tensors = {mine: graph.tensors[theirs] for mine, theirs in self._pairs.items()}
        self.inputs = graph.input_tensors
        self.integers = Integers(graph)
        self.scales = scales_in(graph.quantization)

    def side(self, name: str, scale: tuple[float, int] | None) -> Side:
        """How to compare the tensor; see `Program.side`."""
        return self.integers.side(self.tensors[name], self._pairs[name], scale)

    def __call__(self, rows: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        found = self._watch(rows)
        return {mine: found[theirs] for mine, theirs in self._pairs.items()}


class OfReference:
    """The same graph on Arm's reference model."""

    def __init__(self, graph: Graph, names: Sequence[str]) -> None:
        reference_model.check_installed()
        self._graph = graph
        self.tensors = {name: graph.tensors[name] for name in names}
        self.inputs = graph.input_tensors
        self.integers = Integers(graph)
        self.scales = scales_in(graph.quantization)

    def side(self, name: str, scale: tuple[float, int] | None) -> Side:
        """How to compare the tensor; see `Program.side`."""
        return self.integers.side(self.tensors[name], name, scale)

    def __call__(self, rows: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
        found = reference_model.run(self._graph, *rows, tensors=tuple(self.tensors))
        if rows:
            return found
        return {name: array[None] for name, array in found.items()}
