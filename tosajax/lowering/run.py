"""A graph as it runs, and the context in which the steps of its nodes are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from tosajax.graph import Node, Tensor
from tosajax.lowering.variables import State

Params = dict[str, jax.Array]
Flags = dict[tuple[str, str], jax.Array]
CustomOps = Mapping[tuple[str, str], Callable[..., Any]]
# By output of a node, its traced attributes, each with its key in the parameters.
Traced = Mapping[str, Mapping[str, str]]
# Given the name and the value of an input or of a node's output, what is read in its place.
Amend = Callable[[str, Any], Any]
# Given the state, and the name and the value of an input or of a node's output, the state after it.
Watch = Callable[[State, str, Any], State]
# A graph, ready to run:
# (params, state, *inputs, amend=None, watch=None) -> (state, flags, outputs).
GraphFunction = Callable[..., tuple[State, Flags, tuple[jax.Array, ...]]]


class Context(NamedTuple):
    """The options of lowering, and the parameters found so far.

    Args:
      turns: of loops, by the name of their first output, where they are known.
      native: whether native kernels compute nodes, several at once; None as suits the processor.
    """

    custom_ops: CustomOps
    report_unpredictable: bool
    prepare: bool
    kernels: Any
    traced: Traced
    variables: Mapping[str, Sequence[Tensor]]
    params: Params
    turns: Mapping[str, int]
    native: bool | None


@dataclasses.dataclass
class Run:
    """One graph as it runs: its tensors, and the state and flags that it passes on."""

    params: Params
    state: State
    values: dict[str, Any]
    flags: Flags
    amend: Amend | None = None
    watch: Watch | None = None

    def read(self, names: Sequence[str]) -> list[Any]:
        return [self.values[name] for name in names]

    def found(self, names: Sequence[str], prefix: str) -> None:
        """Shows tensors that have been computed, in the graph of a path, to `watch` and `amend`."""
        for name in names:
            known = name_in(prefix, name)
            if self.watch is not None:
                self.state = self.watch(self.state, known, self.values[name])
            if self.amend is not None:
                amended = self.amend(known, self.values[name])
                self.values.update({name if n == known else n: v for n, v in amended.items()})


def name_in(prefix: str, name: str) -> str:
    """How a tensor of a subgraph is known outside of it: by the path of its graph and its name.

    Args:
      prefix: the path, with a slash behind each graph; empty for the main graph.
      name: of the tensor; one that begins with the path stays as it is.
    """
    return name if name.startswith(prefix) else prefix + name


# A node, ready to run: reads and writes the tensors and variables of a run.
Step = Callable[[Run], None]


def store(run: Run, node: Node, result: Any) -> None:
    results = result if isinstance(result, tuple) else (result,)
    run.values.update(zip(node.outputs, results, strict=True))
