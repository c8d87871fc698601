"""Merges a CLAMP of a CLAMP into one CLAMP."""

from __future__ import annotations

import dataclasses
from typing import Any

from tosajax.from_jax.written import Written
from tosajax.graph import Node
from tosajax.graph.edit import Draft
from tosajax.spec import NanMode


def with_single_clamps(written: Written) -> Written:
    """The graph in which a CLAMP of a CLAMP reads the first one's input, with joint bounds."""
    graph = written.graph
    clamps: dict[str, Node] = {}
    draft = Draft(graph)
    for node in graph.ordered_nodes():
        if node.op == "CLAMP":
            before = clamps.get(node.inputs[0])
            node = (joined(before, node) if before else None) or node
            clamps[node.outputs[0]] = node
        draft.nodes.append(node)
    return Written(draft.finished(), written.origins)


def joined(first: Node, second: Node) -> Node | None:
    """The CLAMP that equals two successive ones: the second limits the bounds of the first.

    None if the first propagates NaN and the second ignores it, which no single CLAMP does.
    """
    modes = [node.attributes.get("nan_mode", NanMode.PROPAGATE) for node in (first, second)]
    if modes == [NanMode.PROPAGATE, NanMode.IGNORE]:
        return None
    low, high = (second.attributes[name] for name in ("min_val", "max_val"))

    def limited(bound: Any) -> Any:
        return min(max(bound, low), high)

    bounds = {name: limited(first.attributes[name]) for name in ("min_val", "max_val")}
    attributes = {**first.attributes, **bounds}
    return dataclasses.replace(second, inputs=first.inputs, attributes=attributes)
