"""Records: all values that tensors inside loops and branches have in one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tosajax.graph import Graph, Tensor
from tosajax.quant.graphs.blocks import graph_keys


class Record(NamedTuple):
    """The values of a tensor of floats, each time that it is computed.

    Args:
      values: float32 [most, *shape]; NaN where it has not been computed so often.
      times: int32 scalar, how often it was; values beyond `most` are lost.
    """

    values: jax.Array
    times: jax.Array


def no_records(tensors: Iterable[Tensor], most: Mapping[str, int]) -> dict[str, Record]:
    """Records of tensors before a run, by name, with room for so many values."""
    return {
        tensor.name: Record(
            jnp.full((most[tensor.name], *(tensor.shape or ())), jnp.nan, jnp.float32),
            jnp.zeros((), jnp.int32),
        )
        for tensor in tensors
    }


def recorded(records: Mapping[str, Any], name: str, value: jax.Array) -> Mapping[str, Any]:
    """The records with one more value of a tensor, if it has one. A `Watch` of `lowering`."""
    if name not in records:
        return records
    record = records[name]
    values = record.values.at[record.times].set(value, mode="drop")
    return {**records, name: Record(values, record.times + 1)}


def times_inside(graph: Graph, turns: Mapping[str, int], most: int | None) -> dict[str, int]:
    """How often the tensors of loops and branches are computed in one run, at most.

    Args:
      graph: the graph, from `simplify`.
      turns: the turns of loops, by their first output, where they are known.
      most: the turns of all other loops.
    """
    return dict(_times_inside(graph, turns, most, 1))


def _times_inside(
    graph: Graph, turns: Mapping[str, int], most: int | None, times: int
) -> Iterable[tuple[str, int]]:
    for node in graph.nodes:
        for key in graph_keys(node):
            part, inside = graph.subgraphs[node.attributes[key]], times
            if node.op == "WHILE_LOOP":
                count = turns.get(node.outputs[0], most)
                assert count is not None
                # The condition is computed once more, before all turns.
                inside *= count + (key == "cond_graph")
            yield from ((name, inside) for name in part.tensors)
            yield from _times_inside(part, turns, most, inside)
