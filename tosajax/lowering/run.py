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
# A graph, ready to run: (params, state, *inputs, amend=None) -> (state, flags, outputs).
GraphFunction = Callable[..., tuple[State, Flags, tuple[jax.Array, ...]]]


class Context(NamedTuple):
    """The options of lowering, and the parameters found so far."""

    custom_ops: CustomOps
    report_unpredictable: bool
    prepare: bool
    kernels: Any
    traced: Traced
    variables: Mapping[str, Sequence[Tensor]]
    params: Params


@dataclasses.dataclass
class Run:
    """One graph as it runs: its tensors, and the state and flags that it passes on."""

    params: Params
    state: State
    values: dict[str, Any]
    flags: Flags

    def read(self, names: Sequence[str]) -> list[Any]:
        return [self.values[name] for name in names]


# A node, ready to run: reads and writes the tensors and variables of a run.
Step = Callable[[Run], None]


def store(run: Run, node: Node, result: Any) -> None:
    results = result if isinstance(result, tuple) else (result,)
    run.values.update(zip(node.outputs, results, strict=True))
