"""Bits of single layers of a graph, and costs: bytes of weights, multiply-accumulates.

A layer is a node whose weights or output `rewrite.bits` rounds, named by its output.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

from tosajax import rewrite
from tosajax.arguments.names import near
from tosajax.graph import Graph
from tosajax.graph.locations import matches
from tosajax.graph.summary import macs_of
from tosajax.rewrite.output_bits import rounded_by_bits
from tosajax.runtime.batching import with_batch
from tosajax.spec.target import Target

Tensors = Literal["activations", "weights"]
# A number of bits for all layers, or numbers by layer name or regular expression.
Bits = int | Mapping[str, int]

COSTS = ("weight_bytes", "macs")  # the costs of a setting


def layers(graph: Graph, tensors: Tensors) -> list[str]:
    """The names of the layers whose weights or activations are integers that can be rounded."""
    return [node.outputs[0] for node, _ in rounded_by_bits(graph, tensors)]


def bits_by_layer(graph: Graph, tensors: Tensors, bits: Bits) -> dict[str, int]:
    """The bits of each layer that a setting names; later entries override earlier ones.

    Args:
      graph: legal.
      tensors: "activations" or "weights".
      bits: a number for all layers; or numbers by the name of a layer, or else by a regular
        expression that is searched for in outputs and locations of layers.

    Raises:
      ValueError: no layer matches, or a regular expression is malformed.
    """
    nodes = {node.outputs[0]: node for node, _ in rounded_by_bits(graph, tensors)}
    if not isinstance(bits, Mapping):
        return dict.fromkeys(nodes, bits)
    result: dict[str, int] = {}
    for pattern, count in bits.items():
        try:
            named = [n for n, node in nodes.items() if matches(node, pattern)]
        except (TypeError, re.error) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        if not named:
            raise ValueError(f"no layer of {tensors} matches {pattern!r}{near(pattern, nodes)}")
        result |= dict.fromkeys([pattern] if pattern in nodes else named, count)
    return result


def with_bits(graph: Graph, tensors: Tensors, bits: Bits) -> Graph:
    """The graph with fewer bits in all layers, or in the layers that a setting names."""
    if not isinstance(bits, Mapping):
        return rewrite.bits(graph, bits, tensors=tensors)
    alike: dict[int, list[str]] = defaultdict(list)
    for name, count in bits_by_layer(graph, tensors, bits).items():
        alike[count].append(re.escape(name))
    for count, names in alike.items():
        graph = rewrite.bits(graph, count, rf"\A(?:{'|'.join(names)})\Z", tensors)
    return graph


def weight_bytes(graph: Graph, bits: Bits | None = None) -> float:
    """The size of a graph's weights in bytes, with each weight stored in exactly its bits."""
    chosen = {} if bits is None else bits_by_layer(graph, "weights", bits)
    sizes = {}
    for node, weights in rounded_by_bits(graph, "weights"):
        for tensor in weights:
            least = min(tensor.dtype.bits, chosen.get(node.outputs[0], tensor.dtype.bits))
            sizes[tensor.name] = math.prod(tensor.shape or ()) * least / 8
    return sum(sizes.values())


def macs(graph: Graph) -> int:
    """The multiply-accumulates of one example."""
    graph_of_one, _ = with_batch(graph, Target.everything(), 1)
    return sum(macs_of(node, part) for part in graph_of_one.walk() for node in part.nodes)


def costs(graph: Graph, setting: Mapping[str, Any]) -> dict[str, float]:
    """The COSTS of a graph that was rewritten by a setting."""
    return {"weight_bytes": weight_bytes(graph, setting.get("weight_bits")), "macs": macs(graph)}
