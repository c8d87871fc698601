"""A work: a graph and its inputs, which each contender prepares and runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import tosajax
from benchmarks.layers import Network
from tosajax import Graph, Node
from tosajax.graph.summary import summarize

# Does the work once on inputs in place; returns the finished outputs.
Run = Callable[[], tuple[Any, ...]]


class DoesNotApply(Exception):
    """A contender has no form of this work."""


class Disagreement(Exception):
    """Contenders that must agree to the last bit do not."""


@dataclasses.dataclass(frozen=True, eq=False)
class Work:
    """A graph and its inputs.

    Args:
      name: "resnet8-b32".
      group: the table it belongs to, "operators".
      graph: for contenders, every dimension known except those of a batch.
      inputs: for all examples of the batch.
      batch: examples in a call; None where the graph has no batch.
      network: the layers that the graph was written from, if any.
      is_float: whether the graph is the float32 form of the layers.
      without: contenders that are left out, as they would take minutes.
    """

    name: str
    group: str
    graph: Graph
    inputs: tuple[np.ndarray, ...]
    batch: int | None = None
    network: Network | None = None
    is_float: bool = False
    without: frozenset[str] = frozenset()

    @property
    def is_side_by_side(self) -> bool:
        """Whether the graph is of one example, of which `batch` run in a call."""
        return self.batch is not None and not self.graph.is_dynamic

    @property
    def operator(self) -> Node | None:
        """The one node of a graph of one operator."""
        nodes = [n for n in self.graph.nodes if n.op not in ("CONST", "CONST_SHAPE")]
        return nodes[0] if len(nodes) == 1 else None

    @property
    def whole_graph(self) -> Graph:
        """The graph for all examples at once, for contenders without open dimensions.

        Raises:
          NotImplementedError: the graph is of one example, and there are several.
        """
        if self.is_side_by_side and self.batch != 1:
            raise NotImplementedError("the graph is of one example")
        return tosajax.bind(self.graph, batch=self.batch) if self.batch else self.graph

    @property
    def is_exact(self) -> bool:
        """Whether all outputs are integers, so that exact contenders must agree bit for bit."""
        return all(t.dtype.is_integer for t in self.graph.output_tensors)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a call."""
        graph = self.graph if self.is_side_by_side else self.whole_graph
        return summarize(graph).macs * (self.batch or 1 if self.is_side_by_side else 1)

    @property
    def bytes(self) -> int:
        """Bytes of the inputs and outputs of a call, int48 as 8 bytes."""
        shapes = zip(self.graph.output_tensors, output_shapes(self), strict=True)
        written = sum(int(np.prod(s)) * t.dtype.storage.itemsize for t, s in shapes)
        return written + sum(a.nbytes for a in self.inputs)

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """The values of all constants of the graph, by tensor name."""
        tensors = self.graph.tensors.values()
        return {t.name: t.values for t in tensors if t.values is not None}


def output_shapes(work: Work) -> list[tuple[int, ...]]:
    """The shapes of the outputs of a call."""
    if work.is_side_by_side:
        return [(work.batch or 1, *(t.shape or ())) for t in work.graph.output_tensors]
    return [t.shape or () for t in work.whole_graph.output_tensors]
