"""NaN in constants that SELECT may choose, as `jnp.nanmax` and `lax.top_k` do: integers have none.

It becomes 0, as in a TABLE, or the least integer, which an ARGMAX that ignores NaN never finds. A
comparison with NaN is a constant for a tensor that is never NaN, so that the choice it rules out is
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.report import UnsupportedError
from tosajax.spec import NanMode


def is_nan(values: np.ndarray | None) -> bool:
    """Whether a constant is NaN throughout."""
    if values is None or not values.size or values.dtype.kind != "f":
        return False
    return bool(np.isnan(values).all())


class Nans(NamedTuple):
    """NaN in a graph whose inputs are numbers.

    Args:
      truths: the booleans that are the same whatever the inputs are.
      possible: the float tensors into which a SELECT may have put NaN.
      sought: the choices of NaN or a number that only an ARGMAX reads.
    """

    truths: Mapping[str, bool]
    possible: frozenset[str]
    sought: frozenset[str]

    @classmethod
    def of(cls, graph: Graph) -> Nans:
        """Finds them in a graph, without those inside it."""
        truths, possible = dict[str, bool](), set[str]()
        for node in graph.ordered_nodes():
            truth = _truth(graph, node, truths, possible)
            if truth is not None:
                truths |= dict.fromkeys(node.outputs, truth)
            is_possible = not possible.isdisjoint(_nan_sources(node, truths))
            if node.op == "CONST":
                values = graph.tensors[node.outputs[0]].values
                is_possible = values is not None and bool(np.any(values != values))
            if is_possible:
                possible |= {name for name in node.outputs if graph.tensors[name].dtype.is_float}
        return cls(truths, frozenset(possible), frozenset(_nans_for_argmax(graph)))

    def check(self, node: Node) -> None:
        """Raises UnsupportedError where a node of floats treats NaN in a way of its own."""
        ignores = node.attributes.get("nan_mode") is NanMode.IGNORE
        tests = node.op == "EQUAL" and node.inputs[0] == node.inputs[1]
        for name in node.inputs if ignores or tests else ():
            if name in self.possible - self.sought:
                raise UnsupportedError(
                    f"{node.title}: {name!r} may be NaN by a SELECT of a constant, and integers "
                    "have no NaN to be told from numbers; choose by the condition itself"
                )


def _truth(graph: Graph, node: Node, truths: Mapping[str, bool], possible: set[str]) -> bool | None:
    """The boolean that a node gives for all elements; None where it depends on inputs."""
    inputs = [truths.get(name) for name in node.inputs]
    match node.op:
        case "CONST":
            values = graph.tensors[node.outputs[0]].values
            is_same = values is not None and values.dtype == bool and np.unique(values).size == 1
            return bool(values.flat[0]) if is_same and values is not None else None
        case "EQUAL":
            x, y = node.inputs
            is_number = x == y and graph.tensors[x].dtype.is_float and x not in possible
            return True if is_number else None
        case "LOGICAL_NOT":
            return None if inputs[0] is None else not inputs[0]
        case "LOGICAL_AND" | "LOGICAL_OR":
            decides = node.op == "LOGICAL_OR"
            return decides if decides in inputs else _common_truth(inputs)
        case "REDUCE_ANY" | "REDUCE_ALL":
            return inputs[0]
    return inputs[0] if spec.OPERATORS[node.op].rearranges else None


def _common_truth(truths: Sequence[bool | None]) -> bool | None:
    return truths[0] if len(set(truths)) == 1 else None


def _nan_sources(node: Node, truths: Mapping[str, bool]) -> tuple[str, ...]:
    """The inputs of which NaN may come to the output."""
    if node.op != "SELECT":
        return node.inputs
    condition, then, other = node.inputs
    truth = truths.get(condition)
    return (then, other) if truth is None else (then if truth else other,)


def _nans_for_argmax(graph: Graph) -> set[str]:
    """The choices of NaN or a number that only ARGMAX reads, maybe after more of it is NaN."""
    other, sought = set(graph.outputs), set[str]()
    for node in reversed(graph.ordered_nodes()):
        (output, *_) = node.outputs
        nan = nan_choice(graph, node)
        if nan is not None and output not in other:
            sought.add(output)
        is_finder = node.op == "ARGMAX" and node.attributes.get("nan_mode") is NanMode.IGNORE
        number = node.inputs[2 - nan] if nan is not None and output in sought else None
        other.update(name for name in node.inputs if name != number and not is_finder)
    return sought


def nan_choice(graph: Graph, node: Node) -> int | None:
    """The choice of a SELECT that is NaN, 0 or 1, where one is; else None."""
    if node.op != "SELECT":
        return None
    are_nan = [is_nan(graph.tensors[name].values) for name in node.inputs[1:]]
    return are_nan.index(True) if are_nan.count(True) == 1 else None
