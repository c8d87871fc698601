"""The state of a running graph, and the context in which the steps of its nodes are built."""

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
# By the output of a node: its traced attributes, each with its key in the parameters.
Traced = Mapping[str, Mapping[str, str]]
# From the name and the value of an input or of a node's output to replacing values, by name.
Amend = Callable[[str, Any], Any]
# From the state, and the name and the value of an input or of a node's output, to the next state.
Watch = Callable[[State, str, Any], State]
# A graph, ready to run:
# (params, state, *inputs, amend=None, watch=None) -> (state, flags, outputs).
GraphFunction = Callable[..., tuple[State, Flags, tuple[jax.Array, ...]]]


class Context(NamedTuple):
    """The options of lowering, and the parameters found so far.

    Args:
      turns: the numbers of turns of loops, if known, by the name of a loop's first output.
      native: whether native kernels compute nodes, several at once; None: the processor decides.
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
    """One run of a graph: its tensors, and the state and flags that it passes on."""

    params: Params
    state: State
    values: dict[str, Any]
    flags: Flags
    amend: Amend | None = None
    watch: Watch | None = None

    def read(self, names: Sequence[str]) -> list[Any]:
        return [self.values[name] for name in names]

    def report_tensors(self, names: Sequence[str], prefix: str) -> None:
        """Passes computed tensors of the graph with a path to `watch` and `amend`."""
        for name in names:
            full_name = name_in(prefix, name)
            if self.watch is not None:
                self.state = self.watch(self.state, full_name, self.values[name])
            if self.amend is not None:
                amended = self.amend(full_name, self.values[name])
                self.values.update({name if n == full_name else n: v for n, v in amended.items()})


def name_in(prefix: str, name: str) -> str:
    """The name of a subgraph's tensor outside of the subgraph: the path of its graph and its name.

    Args:
      prefix: the path, with a slash after each graph; empty for the main graph.
      name: the name of the tensor; a name that begins with the path is unchanged.
    """
    return name if name.startswith(prefix) else prefix + name


# A node, ready to run: reads and writes the tensors and variables of a run.
Step = Callable[[Run], None]


def store(run: Run, node: Node, result: Any) -> None:
    results = result if isinstance(result, tuple) else (result,)
    run.values.update(zip(node.outputs, results, strict=True))
