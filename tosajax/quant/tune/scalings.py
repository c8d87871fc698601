"""Scalings: channels that can be divided and multiplied again, for the same function."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.graph import Graph, Node, Tensor
from tosajax.quant.ranges.channels import along

Array = jax.Array | np.ndarray
_LARGEST = float(np.finfo(np.float32).max)


class Constant(NamedTuple):
    """A constant, and the channels of a scaling along some of its axes.

    Args:
      name: the constant's name.
      axes: the axes with the channels.
      channels: int, for each index of these axes, the last fastest: the number of the channel; the
        size of the scaling for what cannot be scaled.
    """

    name: str
    axes: tuple[int, ...]
    channels: np.ndarray

    def times(self, factors: Array, value: Array) -> Array:
        """The value, times the factor of each channel."""
        xp = namespace(factors)
        each = xp.append(factors, xp.ones(1, factors.dtype))[self.channels]
        return value * each.reshape(along(self.axes, value.shape))

    def largest(self, count: int, value: Array) -> Array:
        """The largest magnitude in each of so many channels."""
        others = tuple(axis for axis in range(value.ndim) if axis not in self.axes)
        return largest(count, self.channels, abs(value).max(others).reshape(-1))


class Read(NamedTuple):
    """A tensor that a product reads, and the channel of each index of its last axis."""

    tensor: str
    channels: np.ndarray


class Scaling(NamedTuple):
    """Channels that can be scaled: the function stays if some constants undo it.

    Args:
      size: how many channels.
      divided: the constants of products that make them, by which they can be divided.
      biases: constants that are added to them, and divided as well.
      multiplied: constants of the products that read them.
      reads: the tensors that these products read.
    """

    size: int
    divided: tuple[Constant, ...]
    biases: tuple[Constant, ...]
    multiplied: tuple[Constant, ...]
    reads: tuple[Read, ...]

    def applied(self, factors: Array, values: Mapping[str, Array]) -> dict[str, Array]:
        """The constants with these channels divided by factors."""
        changed: dict[str, Array] = {}
        for constants, each in (
            ((*self.divided, *self.biases), 1 / factors),
            (self.multiplied, factors),
        ):
            for c in constants:
                changed[c.name] = c.times(each, changed.get(c.name, values[c.name]))
        return changed

    def largest_divided(self, values: Mapping[str, Array]) -> Array:
        """The largest magnitude that makes each channel."""
        return _largest_of(self.size, self.divided, values)

    def largest_multiplied(self, values: Mapping[str, Array], but: Collection[str] = ()) -> Array:
        """The largest magnitude that each channel is multiplied by, but for some constants."""
        counted = [c for c in self.multiplied if c.name not in but]
        return _largest_of(self.size, counted, values)


def largest(count: int, channels: np.ndarray, values: Array) -> Array:
    """The largest of the values of each channel, at least 0; those of channel `count` are left."""
    if isinstance(values, np.ndarray):
        maxima = np.zeros(count + 1, values.dtype)
        np.maximum.at(maxima, channels, values)
        return maxima[:count]
    return jnp.zeros(count, values.dtype).at[channels].max(values, mode="drop")


def namespace(*arrays: Array) -> Any:
    """NumPy for arrays on the host, which compiles nothing; else `jax.numpy`."""
    return np if all(isinstance(array, np.ndarray) for array in arrays) else jnp


def _largest_of(count: int, constants: Iterable[Constant], values: Mapping[str, Array]) -> Array:
    maxima = [c.largest(count, values[c.name]) for c in constants]
    if not maxima:
        return np.zeros(count, np.float32)
    return functools.reduce(namespace(*maxima).maximum, maxima)


def find_scalings(graph: Graph, is_zero: Callable[[str], bool]) -> list[Scaling]:
    """The scalings of a graph of floats, in order.

    Channels begin at a convolution, a MATMUL or a MUL by a constant of channels, as in a layer
    norm. Those that meet in a sum, as of residuals, are one. Each must end in products with
    constants. Each constant is read once, but for biases that are 0.

    Args:
      graph: the graph of floats.
      is_zero: whether the constant of a name is 0 everywhere.
    """
    channels = _Channels(graph, is_zero)
    for node in graph.ordered_nodes():
        channels.follow(node)
    channels.pin(graph.outputs)
    return list(channels.scalings())


class _Channels:
    """The channel of each element of each tensor, as a number.

    Numbers that are joined stand for one channel. 0 is no channel: its elements cannot be scaled.
    """

    def __init__(self, graph: Graph, is_zero: Callable[[str], bool]) -> None:
        self._graph, self._is_zero = graph, is_zero
        self._users = _reader_counts(graph)
        self._parents = [0]
        self._numbers: dict[str, np.ndarray] = {}  # of the tensor's rank; 1 where an axis is alike
        self._divided: list[Constant] = []
        self._biases: list[Constant] = []
        self._multiplied: list[Constant] = []
        self._reads: list[Read] = []
        self.pin(graph.inputs)

    # Numbers.

    def _root(self, number: int) -> int:
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def _join(self, first: np.ndarray, second: np.ndarray) -> None:
        """Makes the channels of two arrays, which broadcast, one each."""
        pairs = np.stack([np.ravel(x) for x in np.broadcast_arrays(first, second)])
        for pair in np.unique(pairs, axis=1).T:
            low, high = sorted(self._root(int(number)) for number in pair)
            self._parents[high] = low

    def pin(self, names: Iterable[str]) -> None:
        """Excludes all channels of some tensors."""
        for name in names:
            if name in self._numbers:
                self._join(self._numbers[name], np.zeros(1, np.int64))

    def _fresh(self, count: int) -> np.ndarray:
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def _of(self, name: str) -> np.ndarray:
        """The numbers of a tensor; 0 for a constant, or where nothing is known."""
        rank = len(self._shape(name))
        return self._numbers.get(name, np.zeros((1,) * rank, np.int64))

    def _last_axis(self, name: str) -> np.ndarray | None:
        """The numbers along the last axis, where all others have the same."""
        return _last_axis(np.broadcast_to(self._of(name), self._shape(name)))

    # The graph.

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._graph.tensors[name].shape or ()

    def _tensor(self, name: str) -> Tensor:
        return self._graph.tensors[name]

    def _is_constant(self, name: str) -> bool:
        return self._tensor(name).values is not None

    def _is_own(self, name: str) -> bool:
        """Whether a constant has one reader, and can be changed for it."""
        return self._users[name] == 1

    def follow(self, node: Node) -> None:
        """Finds the channels of a node's outputs, and what the node excludes."""
        if not node.inputs:
            return
        numbers = self._followed(node)
        if numbers is None:
            self.pin(node.inputs)
        elif len(node.outputs) == 1:
            self._numbers[node.outputs[0]] = numbers

    def _followed(self, node: Node) -> np.ndarray | None:
        """The numbers of a node's output; None where nothing can be scaled."""
        op, inputs, operator = node.op, node.inputs, spec.OPERATORS[node.op]
        if operator.is_product:
            return self._product(node)
        if op == "MUL":
            return self._mul(node)
        if operator.chapter == "comparison" and self._is_zero(inputs[1]):
            return np.zeros((1,) * len(self._shape(node.outputs[0])), np.int64)
        if op == "SELECT":
            return self._joined_all(inputs[1:])
        if op == "CLAMP" and _is_relu(node):
            return self._of(inputs[0])
        if operator.moves:
            return self._moved(node)
        if not operator.is_homogeneous:
            return None
        if operator.has_batch:  # of images
            row = self._last_axis(inputs[0])
            return None if row is None else row.reshape((1, 1, 1, -1))
        return self._joined(node)

    def _joined_all(self, names: Iterable[str]) -> np.ndarray | None:
        """One number for elements that meet; zeros suit any channel."""
        each = [self._of(name) for name in names if not self._is_zero(name)]
        if not each:
            return None
        for numbers in each[1:]:
            self._join(each[0], numbers)
        return each[0] + sum(0 * numbers for numbers in each)

    def _joined(self, node: Node) -> np.ndarray | None:
        """The tensors that an operator by element joins, or one and a constant."""
        constants = [n for n in node.inputs if self._is_constant(n) and not self._is_zero(n)]
        if not constants:
            return self._joined_all(node.inputs)
        others = [n for n in node.inputs if n not in constants]
        if node.op not in ("ADD", "SUB") or len(others) != 1:
            return None
        (name,) = constants
        numbers, shape = self._of(others[0]), self._shape(node.outputs[0])
        constant = self._along(name, np.broadcast_to(numbers, _common(numbers.shape, shape)))
        if constant is None:
            return None
        self._biases.append(constant)
        return numbers

    def _along(self, name: str, numbers: np.ndarray) -> Constant | None:
        """A constant that has channels of its own for all of some numbers."""
        axes = tuple(axis for axis, size in enumerate(numbers.shape) if size > 1)
        shape = self._shape(name)
        if not self._is_own(name) or any(shape[axis] != numbers.shape[axis] for axis in axes):
            return None
        if not axes:
            axes = (numbers.ndim - 1,)
            numbers = np.broadcast_to(numbers, (*numbers.shape[:-1], shape[-1]))
        return Constant(name, axes, numbers.reshape(-1))

    def _mul(self, node: Node) -> np.ndarray | None:
        first, second = node.inputs[:2]
        constants = [name for name in (first, second) if self._is_constant(name)]
        if not constants:
            return self._gated(first, second)
        (name,) = constants[:1]
        numbers, shape = self._of(second if name == first else first), self._shape(name)
        if math.prod(shape) == 1:
            return numbers
        channels, row = self._shape(node.outputs[0])[-1:], _last_axis(numbers)
        if not self._is_own(name) or (math.prod(shape), shape[-1:]) != (*channels, channels):
            return None
        if row is None:
            return None
        row, fresh = np.broadcast_to(row, channels), self._fresh(*channels)
        self._multiplied.append(Constant(name, (len(shape) - 1,), row))
        self._divided.append(Constant(name, (len(shape) - 1,), fresh))
        return fresh.reshape((1,) * (len(shape) - 1) + (-1,))

    def _gated(self, first: str, second: str) -> np.ndarray:
        """A product of two tensors: the smaller one is as it was."""
        if math.prod(self._shape(first)) < math.prod(self._shape(second)):
            first, second = second, first
        self.pin([second])
        numbers = self._of(first)
        return numbers + np.zeros_like(self._of(second))

    def _product(self, node: Node) -> np.ndarray | None:
        left, right = node.inputs[:2]
        output = self._shape(node.outputs[0])
        if not self._is_constant(right):
            return self._weighed(node)
        axes, row = spec.OPERATORS[node.op].channel_axes, self._last_axis(left)
        if not self._is_own(right):
            return None
        if row is None:
            self.pin([left])
        else:
            self._multiplied.append(Constant(right, axes.inputs, row))
            self._reads.append(Read(left, row))
        fresh = self._fresh(output[-1])
        if spec.OPERATORS[node.op].chapter == "conv":
            bias = node.inputs[2]
            has_channels = self._shape(bias) == fresh.shape and self._is_own(bias)
            if has_channels:
                self._biases.append(Constant(bias, (0,), fresh))
            elif not self._is_zero(bias):
                fresh = np.zeros(1, np.int64)
        self._divided.append(Constant(right, axes.outputs, np.broadcast_to(fresh, output[-1:])))
        return fresh.reshape((1,) * (len(output) - 1) + (-1,))

    def _weighed(self, node: Node) -> np.ndarray | None:
        """A product that sums rows of one scaling, as attention sums rows of values."""
        left, right = node.inputs[:2]
        numbers = self._of(right)
        if node.op != "MATMUL" or (numbers != numbers[:, :1]).any():
            return None
        self.pin([left])
        return numbers[:, :1]

    def _pad(self, node: Node) -> np.ndarray | None:
        """Padding by zeros, which are channels of their own."""
        name, _, value = node.inputs
        numbers, shape = self._of(name), self._shape(node.outputs[0])
        pads = self._tensor(node.inputs[1]).values
        if pads is None or not self._is_zero(value):
            return None
        wide = np.broadcast_to(numbers, _common(numbers.shape, self._shape(name)))
        widths = [tuple(map(int, pair)) for pair in np.reshape(pads, (-1, 2))]
        is_wide = [size > 1 for size in wide.shape]
        widths = [pair if grows else (0, 0) for pair, grows in zip(widths, is_wide, strict=True)]
        padded = np.pad(wide, widths, constant_values=-1)
        is_new = padded < 0
        padded[is_new] = self._fresh(int(is_new.sum()))
        return padded if math.prod(shape) else None

    def _moved(self, node: Node) -> np.ndarray | None:
        shape = self._shape(node.outputs[0])
        numbers = self._of(node.inputs[0])
        if node.op == "PAD":
            return self._pad(node)
        if node.op == "CONCAT":
            return self._concatenated(node)
        if node.op == "TRANSPOSE":
            return numbers.transpose(node.attributes["perms"])
        if node.op == "REVERSE":
            return np.flip(numbers, node.attributes["axis"])
        if node.op == "RESHAPE":
            own = self._shape(node.inputs[0])
            row = _last_axis(numbers)
            if row is not None and own[-1:] == shape[-1:] != ():
                return row.reshape((1,) * (len(shape) - 1) + (-1,))
            return _compact(np.broadcast_to(numbers, own).reshape(shape))
        return self._part(node) if node.op == "SLICE" else None

    def _part(self, node: Node) -> np.ndarray | None:
        numbers = self._of(node.inputs[0])
        start, size = (self._tensor(name).values for name in node.inputs[1:])
        if start is None or size is None:
            return None
        parts = [
            slice(None) if count == 1 else slice(int(at), int(at + n))
            for count, at, n in zip(numbers.shape, start, size, strict=True)
        ]
        return numbers[tuple(parts)]

    def _concatenated(self, node: Node) -> np.ndarray | None:
        axis = node.attributes["axis"]
        each = [self._of(name) for name in node.inputs]
        if all(numbers.shape[axis] == 1 for numbers in each) and axis != each[0].ndim - 1:
            return self._joined_all(node.inputs)
        sizes = [self._shape(name)[axis] for name in node.inputs]
        common = np.broadcast_shapes(*(np.delete(x.shape, axis).tolist() for x in each))
        return np.concatenate(
            [
                np.broadcast_to(numbers, (*common[:axis], size, *common[axis:]))
                for numbers, size in zip(each, sizes, strict=True)
            ],
            axis,
        )

    # Scalings.

    def scalings(self) -> Iterator[Scaling]:
        """The scalings of channels that constants make and read."""
        roots = np.array([self._root(number) for number in range(len(self._parents))])
        made, read = (
            {int(n) for c in constants for n in roots[c.channels]}
            for constants in (self._divided, self._multiplied)
        )
        free = np.isin(roots, sorted((made & read) - {0}))
        roots = np.where(free, roots, 0)
        for group in self._groups(roots):
            yield self._scaling(roots, group)

    def _groups(self, roots: np.ndarray) -> list[list[int]]:
        """The channels of each group of tensors, which some channels connect."""
        groups: dict[int, set[int]] = {}
        of: dict[int, int] = {}
        arrays = [*self._numbers.values(), *(c.channels for c in self._divided)]
        for numbers in arrays:
            mine = {int(n) for n in roots[np.unique(numbers)]} - {0}
            if not mine:
                continue
            touched = {of[n] for n in mine if n in of}
            target = min(touched | mine)
            for old in touched:
                mine |= groups.pop(old)
            groups[target] = mine
            of.update(dict.fromkeys(mine, target))
        return [sorted(groups[key]) for key in sorted(groups)]

    def _scaling(self, roots: np.ndarray, group: list[int]) -> Scaling:
        count = len(group)
        places = np.full(len(roots), count)
        places[group] = np.arange(count)
        places = places[roots]
        return Scaling(
            count,
            _of_group(self._divided, places, count),
            _of_group(self._biases, places, count),
            _of_group(self._multiplied, places, count),
            _of_group(self._reads, places, count),
        )


_Use = TypeVar("_Use", Constant, Read)


def _of_group(uses: Sequence[_Use], places: np.ndarray, count: int) -> tuple[_Use, ...]:
    """The uses of channels whose places are below a count."""
    placed = [use._replace(channels=places[use.channels]) for use in uses]
    return tuple(use for use in placed if (use.channels < count).any())


def _reader_counts(graph: Graph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in graph.nodes:
        for name in node.inputs:
            counts[name] = counts.get(name, 0) + 1
    return counts


def _is_relu(node: Node) -> bool:
    low, high = (float(node.attributes[end]) for end in ("min_val", "max_val"))
    return low in (0.0, -np.inf) and high >= _LARGEST


def _last_axis(numbers: np.ndarray) -> np.ndarray | None:
    """The numbers of the last axis, where all others have the same."""
    rows = numbers.reshape(-1, numbers.shape[-1]) if numbers.ndim else numbers.reshape(1, 1)
    return None if (rows != rows[:1]).any() else rows[0]


def _compact(numbers: np.ndarray) -> np.ndarray:
    """The same numbers, with size 1 where an axis is alike."""
    for axis in range(numbers.ndim):
        first = numbers.take([0], axis)
        if numbers.shape[axis] > 1 and (numbers == first).all():
            numbers = first
    return numbers


def _common(numbers: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with the sizes of a tensor where its numbers are not alike."""
    return tuple(1 if count == 1 else size for count, size in zip(numbers, shape, strict=True))
