"""Cuts a graph between layers, so that each layer is computed from given values."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from tosajax.graph import Graph
from tosajax.graph.edit import unused


def cut(
    graph: Graph, names: Collection[str], given: Collection[str]
) -> tuple[Graph, dict[str, str]]:
    """The graph with inner tensors as inputs, so that errors do not pass from layer to layer.

    Args:
      graph: a legal graph.
      names: tensors that nodes of the main graph compute.
      given: the members of `names` that become inputs, if a node reads them.

    Returns:
      The graph: its inputs are its own, then the tensors in `given`; its outputs are the tensors
      in `names` as its nodes compute them. Second, the names of these outputs, by the names in
      `names`.

    Example:
      >>> import tosajax
      >>> from tosajax import rewrite
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 3))
      >>> y = b.op("REVERSE", x, axis=0, name="y")
      >>> graph = b.graph([b.op("REVERSE", y, axis=1, name="z")])
      >>> apart, outputs = rewrite.cut(graph, ["y", "z"], given=["y"])
      >>> apart.inputs, apart.outputs
      (('x', 'y'), ('y/local', 'z/local'))
      >>> outputs
      {'y': 'y/local', 'z': 'z/local'}
    """
    tensors, renamed = dict(graph.tensors), {}
    for name in dict.fromkeys(names):
        if name in graph.inputs:
            continue
        renamed[name] = unused(f"{name}/local", tensors)
        tensors[renamed[name]] = dataclasses.replace(tensors[name], name=renamed[name])
    read = {name: new for name, new in renamed.items() if name not in given}
    nodes = [
        dataclasses.replace(
            node,
            inputs=tuple(read.get(name, name) for name in node.inputs),
            outputs=tuple(renamed.get(name, name) for name in node.outputs),
        )
        for node in graph.nodes
    ]
    readers = {name for node in nodes for name in node.inputs}
    added = [name for name in renamed if name in given and name in readers]
    kept = {n: t for n, t in tensors.items() if n not in renamed or n in added}
    apart = dataclasses.replace(
        graph,
        inputs=(*graph.inputs, *added),
        outputs=tuple(renamed.values()),
        tensors=kept,
        nodes=tuple(nodes),
    )
    return apart, renamed
