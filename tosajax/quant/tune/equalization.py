"""equalize: balances the ranges of channels across layers, before calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.quant.arguments import Numbers
from tosajax.quant.calibration import known_values
from tosajax.quant.channels import along
from tosajax.quant.model import QModel


class Pair(NamedTuple):
    """Two convolutions with only homogeneous operators between them."""

    first: Node
    second: Node


def equalize(
    model: QModel, *, values: Mapping[str, Numbers] | None = None, passes: int = 20
) -> dict[str, jax.Array]:
    """Cross-layer equalization: the same float function, with weights that round better.

    Each channel between two convolutions is scaled by the root of the ratio of its largest
    weights before and after ("Data-Free Quantization Through Weight Equalization and Bias
    Correction", Nagel et al., 2019).

    Args:
      model: from `prepare`.
      values: constants of the float graph by name; by default its own.
      passes: over all pairs of layers.

    Returns:
      Values for `calibrate`.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model has no float graph; or a value has no tensor, another shape, or is NaN.
    """
    known = known_values(model, values)
    assert model.float_graph is not None
    pairs = [pair for part in model.float_graph.walk() for pair in find_pairs(part)]
    for _ in range(passes):
        for pair in pairs:
            known |= _scaled(pair, known)
    return known


def find_pairs(graph: Graph) -> Iterator[Pair]:
    """The pairs of a graph in which no other node reads the tensors between."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    for node in graph.ordered_nodes():
        if not _convolves(node) or not _constant(graph, node):
            continue
        name = node.outputs[0]
        while (reader := _sole(graph, readers, name)) and _passes(reader, graph):
            name = reader.outputs[0]
        if reader and _convolves(reader) and reader.inputs[0] == name and _constant(graph, reader):
            yield Pair(node, reader)


def _sole(graph: Graph, readers: Mapping[str, list[Node]], name: str) -> Node | None:
    found = readers.get(name, [])
    return found[0] if len(found) == 1 and name not in graph.outputs else None


def _convolves(node: Node) -> bool:
    return spec.OPERATORS[node.op].chapter == "conv"


def _constant(graph: Graph, node: Node) -> bool:
    return all(graph.tensors[name].values is not None for name in node.inputs[1:3])


def _passes(node: Node, graph: Graph) -> bool:
    if node.op == "CLAMP":
        return float(node.attributes["min_val"]) in (0.0, -np.inf) and _no_limit(node)
    if node.op == "PAD":
        constant = graph.tensors[node.inputs[2]].values
        return constant is not None and not constant.any()
    return spec.OPERATORS[node.op].is_homogeneous


def _no_limit(node: Node) -> bool:
    return float(node.attributes["max_val"]) >= float(np.finfo(np.float32).max)


def _scaled(pair: Pair, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    (_, weight, bias), (_, after, _) = (node.inputs[:3] for node in pair)
    outputs = spec.OPERATORS[pair.first.op].channel_axes.outputs
    inputs = spec.OPERATORS[pair.second.op].channel_axes.inputs
    before = _largest(values[weight], outputs).reshape(-1)
    behind = _largest(values[after], inputs).reshape(-1)
    used = (before > 0) & (behind > 0)
    scale = jnp.where(used, jnp.sqrt(before / jnp.where(used, behind, 1.0)), 1.0)
    scale = jnp.where(used, scale, 1.0)
    return {
        weight: values[weight] / scale.reshape(along(outputs, values[weight].shape)),
        bias: values[bias] / scale,
        after: values[after] * scale.reshape(along(inputs, values[after].shape)),
    }


def _largest(values: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    others = tuple(axis for axis in range(values.ndim) if axis not in axes)
    return jnp.abs(values).max(others)
