"""Scales and offsets of channels before the operators that pass channels on.

They can then go into the convolutions that compute the channels, as if nothing stood between: a
RESHAPE behind a dense layer, or the CONCAT of a grouped convolution.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import NamedTuple

from tosajax.dtypes import DType
from tosajax.graph import Graph, Node
from tosajax.graph.edit import Draft
from tosajax.quant.graphs.channels import NEUTRAL, by_channel, is_convolution, is_unshifted


class Part(NamedTuple):
    """The channels of a constant that another constant holds.

    Args:
      constant: the name of the constant.
      channels: these of its elements.
    """

    constant: str
    channels: slice


def with_early_scales(graph: Graph) -> tuple[Graph, dict[str, Part]]:
    """Moves ADD, SUB and MUL by constants of channels before RESHAPE and CONCAT.

    Where all that these pass on is computed by convolutions with constant weights, for them alone.
    The result keeps its name y, and a tensor x before it, which is scaled now, is "y/x".

    Args:
      graph: one part, from `simplify`, of FP32.

    Returns:
      The graph, and the constants that hold parts of others, by name.
    """
    writer = _Writer(graph)
    for node in graph.ordered_nodes():
        writer.write(node)
    return writer.draft.finished(), writer.parts


class _Writer:
    """Writes a graph again, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.draft, self.parts = Draft(graph), dict[str, Part]()
        self._outputs = frozenset(graph.outputs)
        self._readers = Counter(name for node in graph.nodes for name in node.inputs)
        self._producers = dict[str, Node]()

    def write(self, node: Node) -> None:
        at = self._scaled(node)
        name = None if at is None else node.inputs[at]
        if name is not None and self._passes_on(name) and self._is_of_convolutions(name):
            self._move(node, name, node.outputs[0], slice(None))
        else:
            self._put(node)

    def _put(self, node: Node) -> None:
        self.draft.nodes.append(node)
        self._producers |= dict.fromkeys(node.outputs, node)

    def _scaled(self, node: Node) -> int | None:
        """The place of the operand of which a node scales or moves the channels; None of others."""
        tensors = self.draft.tensors
        if node.op not in NEUTRAL or not is_unshifted(node, tensors):
            return None
        output = tensors[node.outputs[0]]
        for at, other in ((0, 1), (1, 0)):
            x = tensors[node.inputs[at]]
            is_kept = x.values is None and (x.dtype, x.shape) == (DType.FP32, output.shape)
            if is_kept and by_channel(tensors[node.inputs[other]]) is not None:
                return at
        return None

    def _passes_on(self, name: str) -> bool:
        """Whether a RESHAPE or a CONCAT that keeps channels computes a tensor."""
        node = self._producers.get(name)
        if node is None or node.op not in ("RESHAPE", "CONCAT"):
            return False
        if node.op == "CONCAT":
            return True
        before, after = (self.draft.tensors[x].shape for x in (node.inputs[0], name))
        return bool(before) and bool(after) and before[-1] == after[-1]

    def _is_of_convolutions(self, name: str) -> bool:
        """Whether convolutions compute the channels of a tensor, for its only reader."""
        node = self._producers.get(name)
        # New tensors are not counted: one node reads each.
        if node is None or name in self._outputs or self._readers.get(name, 1) != 1:
            return False
        if is_convolution(node, self.draft.tensors):
            return True
        if (at := self._scaled(node)) is not None:
            return self._is_of_convolutions(node.inputs[at])
        return self._passes_on(name) and all(map(self._is_of_convolutions, self._sources(node)))

    def _sources(self, node: Node) -> tuple[str, ...]:
        return node.inputs if node.op == "CONCAT" else node.inputs[:1]

    def _move(self, scaling: Node, name: str, wanted: str, channels: slice) -> None:
        """Writes channels of a tensor, scaled and moved by a node, as the tensor `wanted`."""
        node = self._producers[name]
        if not self._passes_on(name):
            self._put(self._of_channels(scaling, name, wanted, channels))
            return
        sources = []
        for source, part in zip(self._sources(node), self._parts(node, channels), strict=True):
            shape = self.draft.tensors[source].shape
            sources.append(self.draft.tensor(f"{wanted}/{source}", DType.FP32, shape))
            self._move(scaling, source, sources[-1], part)
        inputs = (*sources, *node.inputs[len(sources) :])
        self._put(dataclasses.replace(node, inputs=inputs, outputs=(wanted,)))

    def _parts(self, node: Node, channels: slice) -> list[slice]:
        """The channels that each source of a node has, where it has these."""
        tensors = [self.draft.tensors[source] for source in self._sources(node)]
        shapes: list[tuple[int, ...]] = [tensor.shape or () for tensor in tensors]
        if node.op != "CONCAT" or node.attributes["axis"] != len(shapes[0]) - 1:
            return [channels] * len(shapes)
        ends = itertools.accumulate((shape[-1] for shape in shapes), initial=channels.start or 0)
        return [slice(start, end) for start, end in itertools.pairwise(ends)]

    def _of_channels(self, scaling: Node, name: str, wanted: str, channels: slice) -> Node:
        """The node that scales and moves some channels."""
        at = self._scaled(scaling)
        assert at is not None
        other = scaling.inputs[1 - at]
        row = by_channel(self.draft.tensors[other])
        assert row is not None
        channels = channels if row.size > 1 else slice(None)
        rank = len(self.draft.tensors[name].shape or ())
        row = row[channels].reshape(*[1] * (rank - 1), -1)
        constant = self.draft.const(f"{wanted}/{other}", row, DType.FP32)
        self.parts[constant] = Part(other, channels)
        pair = (name, constant) if at == 0 else (constant, name)
        inputs = (*pair, *scaling.inputs[2:])
        return dataclasses.replace(scaling, inputs=inputs, outputs=(wanted,))
