"""Trip counts of loops that do not depend on the graph's inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.lowering.build import build, to_device
from tosajax.lowering.run import name_in

_MOST = 2**16  # iterations that are tried


def turns(graph: Graph, prefix: str = "") -> dict[str, int]:
    """The trip count of each WHILE_LOOP whose condition depends on constants and counters only.

    Counts by running the loop without the rest of its body. Skips conditions on floats, as
    float sums depend on the program, and on int48.

    Args:
      graph: a legal graph, every dimension known, without variables.
      prefix: the path of the graph, with a slash after each graph's name.

    Returns:
      Iterations by the name of the loop's first output, which follows the path in subgraphs.
    """
    counts: dict[str, int] = {}
    for name, part in graph.subgraphs.items():
        counts |= turns(part, f"{prefix}{name}/")
    for node in graph.nodes:
        count = _turns(graph, node) if node.op == "WHILE_LOOP" else None
        if count is not None:
            counts[name_in(prefix, node.outputs[0])] = count
    return counts


def _turns(graph: Graph, node: Node) -> int | None:
    condition, body = (graph.subgraphs[node.attributes[k]] for k in ("cond_graph", "body_graph"))
    places = _deciding(condition, body)
    first = [graph.tensors[node.inputs[place]] for place in places]
    parts = [
        _part(condition, condition.outputs, places),
        _part(body, [body.outputs[place] for place in places], places),
    ]
    dtypes = {tensor.dtype for part in parts for tensor in part.tensors.values()}
    if any(dtype.is_float or dtype is DType.INT48 for dtype in dtypes):
        return None
    initial = [to_device(t.values, t.dtype) for t in first if t.values is not None]
    if len(initial) < len(first):
        return None
    go_on, advance = map(_function, parts)

    def more(loop: tuple[jax.Array, list[jax.Array]]) -> jax.Array:
        count, values = loop
        return go_on(values)[0].reshape(()) & (count < _MOST)

    def turn(loop: tuple[jax.Array, list[jax.Array]]) -> tuple[jax.Array, list[jax.Array]]:
        count, values = loop
        return count + 1, advance(values)

    count, _ = jax.jit(lambda values: lax.while_loop(more, turn, (jnp.int32(0), values)))(initial)
    return int(count) if np.asarray(count) < _MOST else None


def _deciding(condition: Graph, body: Graph) -> tuple[int, ...]:
    """The positions of the loop states that the condition depends on, over all iterations."""
    places = _places(condition, condition.outputs)
    while True:
        more = places | _places(body, [body.outputs[place] for place in places])
        if more == places:
            return tuple(sorted(places))
        places = more


def _places(graph: Graph, outputs: Sequence[str]) -> set[int]:
    """The positions of the inputs that `outputs` depend on."""
    needed = _needed(graph, outputs)
    return {place for place, name in enumerate(graph.inputs) if name in needed}


def _needed(graph: Graph, outputs: Collection[str]) -> set[str]:
    needed = set(outputs)
    for node in reversed(graph.ordered_nodes()):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
    return needed


def _part(graph: Graph, outputs: Sequence[str], places: Sequence[int]) -> Graph:
    """The part of the graph from the inputs at `places` to the tensors `outputs`."""
    needed = _needed(graph, outputs)
    return dataclasses.replace(
        graph,
        inputs=tuple(graph.inputs[place] for place in places),
        outputs=tuple(outputs),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in needed},
        nodes=tuple(node for node in graph.nodes if not needed.isdisjoint(node.outputs)),
    )


def _function(graph: Graph) -> Callable[[list[jax.Array]], list[jax.Array]]:
    program, params = build(graph)
    return lambda values: list(program(params, {}, *values)[2])
