"""Dense values of the sparse constants of TFLite files.

A sparse constant is stored as a tree: levels in traversal order, first the dimensions of blocks,
then those within a block, each level dense or with the positions that are present (CSR).
Source: "SparsityParameters" in "tensorflow/compiler/mlir/lite/schema/schema.fbs".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tosajax.report import FormatError


class Level(NamedTuple):
    """One level of the tree.

    Args:
      size: the size of a dense level; None for a level of present positions.
      segments: the positions of node n are those from segments[n] to segments[n + 1].
      indices: the positions present.
    """

    size: int | None
    segments: np.ndarray
    indices: np.ndarray


def dense(
    values: np.ndarray,
    shape: Sequence[int],
    order: Sequence[int],
    blocks: Sequence[int],
    levels: Sequence[Level],
) -> np.ndarray:
    """The dense array of a sparse constant.

    Args:
      values: the stored elements.
      shape: the constant's shape.
      order: the dimension of each level; those from the rank on are the dimensions of blocks.
      blocks: the dimension of the constant that each dimension of blocks divides.
      levels: the levels, in the order of `order`.

    Raises:
      FormatError: these contradict each other.
    """
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise FormatError(f"traversal order {list(order)} of {len(levels)} levels, rank {rank}")
    if len(set(blocks)) != len(blocks) or not set(blocks) <= set(range(rank)):
        raise FormatError(f"block map {list(blocks)}, rank {rank}")
    sizes = dict(zip(order, levels, strict=True))
    # The size of a block in each dimension of the constant.
    inner = [1] * rank
    for number, dimension in enumerate(blocks):
        size = sizes[rank + number].size
        if not size or shape[dimension] % size:
            raise FormatError(f"blocks of {size} in dimension {dimension} of {shape[dimension]}")
        inner[dimension] = size
    places = _places(levels, len(values))
    position = [np.zeros(len(values), np.int64) for _ in shape]
    for dimension, at in zip(order, places, strict=True):
        if dimension < rank:
            position[dimension] += at * inner[dimension]
        else:
            position[blocks[dimension - rank]] += at
    for dimension, at in enumerate(position):
        if len(at) and not 0 <= at.min() <= at.max() < shape[dimension]:
            raise FormatError(f"a stored element lies outside dimension {dimension}")
    result = np.zeros(shape, values.dtype)
    result[tuple(position)] = values
    return result


def _places(levels: Sequence[Level], count: int) -> list[np.ndarray]:
    """The position of each stored element in each level.

    Raises:
      FormatError: the levels do not have so many elements.
    """
    places: list[np.ndarray] = []
    nodes = 1
    for level in levels:
        parents, own = _children(level, nodes, count)
        places = [at[parents] for at in places] + [own]
        nodes = len(own)
    if nodes != count:
        raise FormatError(f"the sparse constant has {count} elements, its levels {nodes}")
    return places


def _children(level: Level, nodes: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The parent and the position of each node of a level, below so many nodes."""
    if level.size is not None:
        if level.size < 0 or nodes * level.size > most:
            raise FormatError(f"a level of {nodes} x {level.size} of {most} stored elements")
        own = np.tile(np.arange(level.size), nodes)
        return np.repeat(np.arange(nodes), level.size), own
    counts = np.diff(level.segments)
    if len(counts) != nodes or (counts < 0).any() or counts.sum() != len(level.indices):
        raise FormatError(f"{len(level.segments)} segments of {len(level.indices)} indices")
    return np.repeat(np.arange(nodes), counts), level.indices.astype(np.int64)
