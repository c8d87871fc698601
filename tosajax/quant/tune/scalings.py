"""Scalings: constants whose channels can be divided and multiplied again, for the same function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node
from tosajax.quant.ranges.channels import along


class Constant(NamedTuple):
    """A constant, and the channels of a scaling along some of its axes.

    Args:
      name: the constant's name.
      axes: the axes with the channels.
      channels: int, for each index of these axes, the last fastest: the number of the channel.
    """

    name: str
    axes: tuple[int, ...]
    channels: np.ndarray

    def times(self, factors: jax.Array, value: jax.Array) -> jax.Array:
        """The value, times the factor of each channel."""
        return value * factors[self.channels].reshape(along(self.axes, value.shape))

    def largest(self, count: int, value: jax.Array) -> jax.Array:
        """The largest magnitude in each of so many channels."""
        others = tuple(axis for axis in range(value.ndim) if axis not in self.axes)
        return largest(count, self.channels, jnp.abs(value).max(others).reshape(-1))


class Read(NamedTuple):
    """A tensor that a product reads, and the channel of each index of its last axis."""

    tensor: str
    channels: np.ndarray


class Scaling(NamedTuple):
    """Channels that can be scaled: the function stays if some constants undo it.

    Args:
      size: how many channels.
      divided: constants by which they can be divided: first the constant of a product, then biases.
      multiplied: constants of the products that read them.
      reads: the tensors that these products read.
    """

    size: int
    divided: tuple[Constant, ...]
    multiplied: tuple[Constant, ...]
    reads: tuple[Read, ...]

    def applied(self, factors: jax.Array, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The constants with these channels divided by factors."""
        divided = {c.name: c.times(1 / factors, values[c.name]) for c in self.divided}
        return divided | {c.name: c.times(factors, values[c.name]) for c in self.multiplied}

    def largest_behind(self, values: Mapping[str, jax.Array]) -> jax.Array:
        """The largest magnitude that each channel is multiplied by."""
        maxima = [c.largest(self.size, values[c.name]) for c in self.multiplied]
        return jnp.stack(maxima).max(0)


def largest(count: int, channels: np.ndarray, values: jax.Array) -> jax.Array:
    """The largest of the values of each channel, at least 0."""
    return jnp.zeros(count, values.dtype).at[channels].max(values)


def find_scalings(graph: Graph) -> Iterator[Scaling]:
    """The scalings of a graph of floats, in order.

    Each begins at a convolution, a MATMUL or a MUL by a constant of channels, as in a layer norm,
    and all that reads it must end in products with constants. Constants of it are read once.
    """
    readers = _readers(graph)
    for node in graph.ordered_nodes():
        start = _scalable_constants(graph, node)
        if start is None:
            continue
        (output,) = node.outputs
        count = start[0].channels.size
        channels = np.broadcast_to(np.arange(count), graph.tensors[output].shape or ())
        walk = _Walk(graph, readers, start)
        if not walk.passes(output, channels):
            continue
        names = [constant.name for constant in (*walk.divided, *walk.multiplied)]
        if all(len(readers[name]) == 1 for name in names) and len(set(names)) == len(names):
            yield Scaling(count, tuple(walk.divided), tuple(walk.multiplied), tuple(walk.reads))


def _readers(graph: Graph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return readers


def _scalable_constants(graph: Graph, node: Node) -> list[Constant] | None:
    """The constants that scale each channel of a node's output by themselves."""

    def is_constant(name: str) -> bool:
        return graph.tensors[name].values is not None

    operator = spec.OPERATORS[node.op]
    if operator.chapter == "conv" and all(map(is_constant, node.inputs[1:3])):
        weight, bias = node.inputs[1:3]
        channels = np.arange(math.prod(graph.tensors[bias].shape or ()))
        if channels.size != _columns(graph, node.outputs[0]):
            return None  # one bias for all
        return [
            Constant(weight, operator.channel_axes.outputs, channels),
            _constant_on_last_axis(bias, channels, 1),
        ]
    if node.op == "MATMUL" and is_constant(node.inputs[1]):
        return [
            _constant_on_last_axis(node.inputs[1], np.arange(_columns(graph, node.inputs[1])), 3)
        ]
    if node.op == "MUL":
        for name in filter(is_constant, node.inputs[:2]):
            if constant := _of_channels(graph, name, node.outputs[0]):
                return [constant]
    return None


def _columns(graph: Graph, name: str) -> int:
    """The size of the last axis."""
    *_, last = graph.tensors[name].shape or (1,)
    return last


def _of_channels(graph: Graph, name: str, output: str) -> Constant | None:
    """A constant with one value for each index of the last axis of a tensor."""
    shape, channels = (graph.tensors[n].shape or (1,) for n in (name, output))
    if shape[-1] != channels[-1] or math.prod(shape) != shape[-1]:
        return None
    return _constant_on_last_axis(name, np.arange(shape[-1]), len(shape))


def _constant_on_last_axis(name: str, channels: np.ndarray, rank: int) -> Constant:
    return Constant(name, (rank - 1,), channels)


class _Walk:
    """Goes from a tensor to all that reads it, and collects the constants of a scaling.

    Args:
      graph: the graph of floats.
      readers: the nodes that read each tensor.
      start: the constants that are known.
    """

    def __init__(
        self, graph: Graph, readers: Mapping[str, list[Node]], start: Sequence[Constant]
    ) -> None:
        self.graph = graph
        self.readers = readers
        self.divided = list(start)
        self.multiplied: list[Constant] = []
        self.reads: list[Read] = []

    def passes(self, name: str, channels: np.ndarray) -> bool:
        """Whether every reader of a tensor undoes its scaling, or passes it on.

        Args:
          name: the tensor's name.
          channels: int, of its shape: the channel of each element.
        """
        readers = self.readers.get(name, [])
        if name in self.graph.outputs or not readers:
            return False
        return all(self._reads(node, name, channels) for node in readers)

    def _reads(self, node: Node, name: str, channels: np.ndarray) -> bool:
        if spec.OPERATORS[node.op].is_product:
            return self._multiplies(node, name, channels)
        if len(node.outputs) != 1:
            return False
        (output,) = node.outputs
        shape = self.graph.tensors[output].shape or ()
        if node.op == "RESHAPE" and node.inputs[0] == name:
            return self.passes(output, channels.reshape(shape))
        if node.op == "TRANSPOSE":
            return self.passes(output, channels.transpose(node.attributes["perms"]))
        row = _last_axis_channels(channels)
        if row is None or not self._keeps(node, name, row):
            return False
        return self.passes(output, np.broadcast_to(row, shape))

    def _multiplies(self, node: Node, name: str, channels: np.ndarray) -> bool:
        left, right = node.inputs[:2]
        if (name == left) == (name == right):
            return False
        if name == right:
            return self._weighs(node, channels)
        row = _last_axis_channels(channels)
        if row is None or self.graph.tensors[right].values is None:
            return False
        axes = spec.OPERATORS[node.op].channel_axes.inputs
        self.multiplied.append(Constant(right, axes, row))
        self.reads.append(Read(name, row))
        return True

    def _weighs(self, node: Node, channels: np.ndarray) -> bool:
        """Whether a MATMUL sums rows of one scaling, as attention sums rows of values."""
        if node.op != "MATMUL" or (channels != channels[:, :1]).any():
            return False
        (output,) = node.outputs
        shape = self.graph.tensors[output].shape or ()
        return self.passes(output, np.broadcast_to(channels[:, :1], shape))

    def _keeps(self, node: Node, name: str, row: np.ndarray) -> bool:
        """Whether a node keeps the scaling of each index of the last axis."""
        tensors = self.graph.tensors
        if node.op == "ADD":
            (other,) = [n for n in node.inputs if n != name] or [name]
            if (
                tensors[other].values is None
                or tensors[node.outputs[0]].shape != tensors[name].shape
            ):
                return False
            constant = _of_channels(self.graph, other, name)
            if constant is None:
                return False
            self.divided.append(constant._replace(channels=row))
            return True
        if node.op == "CLAMP":
            low, high = (float(node.attributes[end]) for end in ("min_val", "max_val"))
            return low in (0.0, -np.inf) and high >= float(np.finfo(np.float32).max)
        if node.op == "PAD":
            constant = tensors[node.inputs[2]].values
            return constant is not None and not constant.any()
        return spec.OPERATORS[node.op].is_homogeneous


def _last_axis_channels(channels: np.ndarray) -> np.ndarray | None:
    """The channels of the last axis, where all others have the same."""
    rows = channels.reshape(-1, channels.shape[-1]) if channels.ndim else channels.reshape(1, 1)
    return None if (rows != rows[:1]).any() else rows[0]
