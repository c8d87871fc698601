"""The interface of a program that a graph is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tosajax.compare.scales import Scales
from tosajax.graph import Graph, Tensor


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that computes tensors of a graph, or holds them stored.

    Args:
      graph: the graph that defines the program's inputs, in the order of the graph to compare, and
        its zero points.
      tensors: tensors of `graph`, by the names of their counterparts in the graph to compare.
      run: computes the tensors of the next examples by these names; takes and returns arrays
        (examples, *shape).
      scales: the scales of integer tensors, by their names in `graph`.
      called: the program's own names of tensors, if they differ from the names in `graph`.
      unmatched: the reason why tensors have no counterpart; "" for none.
      remarks: a remark on the matched tensors; "" for none.
    """

    graph: Graph
    tensors: Mapping[str, Tensor]
    run: Callable[[Sequence[np.ndarray]], Mapping[str, np.ndarray]]
    scales: Scales
    called: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unmatched: str = ""
    remarks: str = ""
