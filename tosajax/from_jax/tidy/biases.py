"""Turns an ADD after a convolution into its bias."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.values import Reshaped
from tosajax.from_jax.written import Written
from tosajax.graph import Node, Tensor
from tosajax.graph.edit import Draft


def with_biases(written: Written) -> Written:
    """The graph with each ADD of a constant per channel turned into a convolution's bias.

    Only if the convolution's bias is 0, nothing else reads its output, and nothing is rounded
    between the two (FP32 or INT32), so that the results are the same.
    """
    graph = written.graph
    readers = Counter(name for node in graph.nodes for name in node.inputs) + Counter(graph.outputs)
    producers = {name: node for node in graph.nodes for name in node.outputs}
    draft, origins = Draft(graph), dict(written.origins)
    for node in graph.ordered_nodes():
        pair = _conv_and_bias(node, graph.tensors, producers)
        if pair is None or readers[pair[0].outputs[0]] > 1:
            draft.nodes.append(node)
            continue
        conv, name = pair
        shape = (graph.tensors[node.outputs[0]].shape or ())[-1:]
        bias = _bias(draft, name, shape, is_shared=readers[name] > 1)
        if name in origins:
            move = Reshaped(graph.tensors[name].shape or (), shape)
            origins[bias] = origins[name].moved(move)
        inputs = (*conv.inputs[:2], bias, *conv.inputs[3:])
        draft.nodes.append(dataclasses.replace(conv, inputs=inputs, outputs=node.outputs))
    return Written(draft.finished(), origins)


def _conv_and_bias(
    node: Node, tensors: Mapping[str, Tensor], producers: Mapping[str, Node]
) -> tuple[Node, str] | None:
    """The convolution that an ADD adds a bias to, and the bias; None for all other nodes."""
    if node.op != "ADD" or tensors[node.outputs[0]].dtype not in (DType.FP32, DType.INT32):
        return None
    for sums, name in (node.inputs, node.inputs[::-1]):
        conv, values = producers.get(sums), tensors[name].values
        if conv is None or values is None or spec.OPERATORS[conv.op].chapter != "conv":
            continue
        shape, held = tensors[sums].shape or (), tensors[conv.inputs[2]].values
        is_same = shape == tensors[node.outputs[0]].shape
        is_row = values.shape[-1:] == (values.size,)
        if is_same and is_row and held is not None and not held.any():
            return conv, name
    return None


def _bias(draft: Draft, name: str, shape: tuple[int, ...], *, is_shared: bool) -> str:
    """The constant with one axis; it keeps its name if nothing else reads it."""
    tensor = draft.tensors[name]
    values = np.broadcast_to(np.asarray(tensor.values).reshape(-1), shape)
    if is_shared:
        return draft.const(name, values, tensor.dtype)
    draft.tensors[name] = Tensor(name, tensor.dtype, shape, values)
    return name
