"""Program: another program with tensors of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tosajax.compare.scales import Scales
from tosajax.graph import Graph, Tensor


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that computes tensors of a graph, or has them stored.

    Args:
      graph: has its inputs, in the order of the graph to compare, and its zero points.
      tensors: of `graph`, by the names of their counterparts in the graph to compare.
      run: gives the tensors of the next examples by these names; it takes and gives arrays
        (examples, *shape).
      scales: of integers, by their names in `graph`.
      called: the program's own names of tensors, where they are not those in `graph`.
      unmatched: why it has no counterpart of other tensors; "" where there is nothing to say.
      remarks: about those that it has; "" where there is nothing to say.
    """

    graph: Graph
    tensors: Mapping[str, Tensor]
    run: Callable[[Sequence[np.ndarray]], Mapping[str, np.ndarray]]
    scales: Scales
    called: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unmatched: str = ""
    remarks: str = ""
