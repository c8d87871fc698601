"""Nearest RESIZE that takes the element below, as ONNX's asymmetric and floor do.

torch-mlir leaves the offset 0, and TOSA rounds to the nearer element. It writes scales as 2n / 2d,
so that positions are even: half an element less, but for 1, makes a floor of the rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Rewrite
from tosajax.graph.edit import Draft


def with_floors(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with the offsets that take the element below.

    Args:
      graph: a graph of torch-mlir.
      names: the locations of the nodes to correct.
    """
    draft, rewrites = Draft(graph), []
    for node in graph.nodes:
        parameters = _parameters(graph, node) if _is_one(node, names) else None
        if parameters is not None:
            node = _corrected(draft, node, *parameters)
            rewrites.append(Rewrite(node.title, "offset of the element below, as in the file"))
        draft.nodes.append(node)
    if not rewrites:
        return graph
    source = dataclasses.replace(graph.source, rewrites=(*graph.source.rewrites, *rewrites))
    return dataclasses.replace(draft.finished(), source=source)


def _is_one(node: Node, names: Collection[str]) -> bool:
    is_nearest = node.op == "RESIZE" and node.attributes["mode"] == spec.ResizeMode.NEAREST_NEIGHBOR
    return is_nearest and node.location in names


def _parameters(graph: Graph, node: Node) -> tuple[list[int], list[int], list[int]] | None:
    """The scales, offsets and borders of a RESIZE; None where they are not those to correct."""
    values = [graph.tensors[name].values for name in node.inputs[1:4]]
    if any(each is None for each in values):
        return None
    scale, offset, border = ([int(n) for n in each] for each in values)
    return None if any(offset) else (scale, offset, border)


def _corrected(
    draft: Draft, node: Node, scale: list[int], offset: list[int], border: list[int]
) -> Node:
    for axis in range(2):
        offset[axis] = -(scale[2 * axis] // 2 - 1)
        border[axis] += offset[axis]
    names = [
        draft.const(f"{node.outputs[0]}.{part}", values, DType.SHAPE)
        for part, values in (("offset", offset), ("border", border))
    ]
    return dataclasses.replace(node, inputs=(*node.inputs[:2], *names))
