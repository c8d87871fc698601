"""ERROR_IF rules on zero points that are not constants, applied when their values are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from tosajax.checks import RULES, Call, ValueRule
from tosajax.graph import Graph, Node, Tensor
from tosajax.report import Finding, Report, Verdict


class OpenZeroPoint(NamedTuple):
    """A zero point that is not a constant, and a rule on it.

    Args:
      tensor: the zero point's name.
      node: the title of the node that reads it.
      label: the rule's label, such as "matmul.e1".
      rule: the rule on its value.
    """

    tensor: str
    node: str
    label: str
    rule: ValueRule


def open_zero_points(node: Node, tensors: Mapping[str, Tensor]) -> list[OpenZeroPoint]:
    """The zero points of a node that are not constants (EXT-DYNAMIC), one entry for each rule."""
    rules = RULES[node.op].zero_points
    if rules is None:
        return []
    call = Call(node, tensors)
    return [
        OpenZeroPoint(getattr(call, rule.name).name, node.title, call.label(rule.rule), rule)
        for rule in rules(call)
        if not call.known(rule.name)
    ]


def check_zero_points(
    zero_points: Iterable[OpenZeroPoint], values: Mapping[str, np.ndarray]
) -> None:
    """Raises TosaError if a value breaks a rule; zero points without a value are skipped."""
    judged = [(z, z.rule.message(values[z.tensor])) for z in zero_points if z.tensor in values]
    broken = [Finding(Verdict.ERROR, z.label, message, z.node) for z, message in judged if message]
    Report(tuple(broken)).raise_errors()


def input_zero_points(graph: Graph) -> list[OpenZeroPoint]:
    """The zero points that are inputs of a graph; the graph must have passed `check_form`."""
    zero_points = (z for node in graph.nodes for z in open_zero_points(node, graph.tensors))
    return [z for z in zero_points if z.tensor in graph.inputs]
