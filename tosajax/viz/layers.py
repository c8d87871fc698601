"""Layered drawings of acyclic graphs: nodes in rows, in the order of their edges.

Each node is in a row below the nodes it reads from. An edge across several rows has a rail through
them, shared by all readers of a node. Rows are sorted by the positions of their neighbours, and
each node is placed as near to its neighbours as its row allows. Nodes on a longest path have the
largest weight, so the path is straight and other nodes are beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_RAIL, _NODE, _TRUNK = 1.0, 30.0, 1e6  # weights of positions
_ROUNDS = 6  # rounds of sorting, and of placing; more rounds do not improve either


class Item(NamedTuple):
    """An item in a row: a node, or its rail."""

    row: int
    node: int
    is_rail: bool


class Layers(NamedTuple):
    """The layout of a drawing.

    Args:
      rows: the items of each row, from left to right.
      x: the horizontal centre of each item.
      lines: pairs of items in adjacent rows, the upper item first.
    """

    rows: list[list[Item]]
    x: dict[Item, float]
    lines: list[tuple[Item, Item]]


def layered(count: int, edges: Iterable[tuple[int, int]], width: float, rail: float) -> Layers:
    """Places nodes.

    Args:
      count: the number of nodes, which are numbered in topological order.
      edges: pairs of nodes, (source, target).
      width: the width of a node, including the gap to the next item.
      rail: the width of a rail, including the gap to the next item.
    """
    edges = sorted(set(edges))
    row = _rows(count, edges)
    lines = sorted({line for edge in edges for line in _lines(edge, row)})
    items = {Item(row[n], n, False) for n in range(count)}.union(*lines)
    rows: list[list[Item]] = [[] for _ in range(1 + max(row, default=-1))]
    for item in sorted(items, key=lambda i: (i.node, i.is_rail)):
        rows[item.row].append(item)
    above, below = _neighbours(lines)
    for _ in range(_ROUNDS):
        _order(rows, above)
        _order(rows[::-1], below)
    _order(rows, above)
    x = dict.fromkeys(items, 0.0)
    trunk = _trunk(row, edges)
    weights = {i: _RAIL if i.is_rail else _TRUNK if i.node in trunk else _NODE for i in items}
    for _ in range(_ROUNDS):
        _place(rows[::-1], below, x, (width, rail), weights)
        _place(rows, above, x, (width, rail), weights)
    return Layers(rows, x, lines)


def _rows(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The row of each node: below all nodes it reads; nodes without inputs are above a reader."""
    row = [0] * count
    for source, target in edges:  # sorted, so a source has its row before it is read
        row[target] = max(row[target], row[source] + 1)
    roots = set(range(count)) - {target for _, target in edges}
    first = dict.fromkeys(roots, max(row, default=0))
    for source, target in edges:
        if source in first:
            first[source] = min(first[source], row[target] - 1)
    read = {source for source, _ in edges}
    for node in roots & read:
        row[node] = first[node]
    return row


def _trunk(row: Sequence[int], edges: Sequence[tuple[int, int]]) -> set[int]:
    """The nodes on longest paths: paths through all rows."""
    below = [0] * len(row)
    for source, target in reversed(edges):
        below[source] = max(below[source], below[target] + 1)
    last = max(row, default=0)
    return {node for node, at in enumerate(row) if at + below[node] == last}


def _lines(edge: tuple[int, int], row: Sequence[int]) -> Iterable[tuple[Item, Item]]:
    """The lines of an edge, one between each pair of adjacent rows."""
    source, target = edge
    rails = [Item(at, source, True) for at in range(row[source] + 1, row[target])]
    path = [Item(row[source], source, False), *rails, Item(row[target], target, False)]
    return itertools.pairwise(path)


_Neighbours = dict[Item, list[Item]]


def _neighbours(lines: Iterable[tuple[Item, Item]]) -> tuple[_Neighbours, _Neighbours]:
    """For each item, its neighbours in the row above, and in the row below."""
    above: _Neighbours = {}
    below: _Neighbours = {}
    for upper, lower in lines:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def _order(rows: Sequence[list[Item]], neighbours: _Neighbours) -> None:
    """Sorts each row by the mean position of its neighbours in the previous row; rails go right."""
    place: dict[Item, float] = {}
    for row in rows:
        here = {item: at / len(row) for at, item in enumerate(row)}
        wanted = {i: _mean_or([place[n] for n in neighbours.get(i, ())], here[i]) for i in row}
        row.sort(key=lambda i: (wanted[i], i.is_rail))
        place |= {item: at / len(row) for at, item in enumerate(row)}


def _place(
    rows: Iterable[list[Item]],
    neighbours: _Neighbours,
    x: dict[Item, float],
    widths: tuple[float, float],
    weights: Mapping[Item, float],
) -> None:
    """Moves items to the mean of their neighbours; of neighbours of the same kind, if there are."""
    for row in rows:
        wanted = []
        for item in row:
            near = neighbours.get(item, [])
            alike = [n for n in near if n.is_rail == item.is_rail]
            chosen = alike or near
            total = sum(weights[n] for n in chosen)
            wanted.append(sum(x[n] * weights[n] for n in chosen) / total if chosen else x[item])
        pairs = itertools.pairwise(row)
        apart = [(widths[a.is_rail] + widths[b.is_rail]) / 2 for a, b in pairs]
        places = _spread(wanted, apart, [weights[item] for item in row])
        for item, place in zip(row, places, strict=True):
            x[item] = place


def _spread(
    wanted: Sequence[float], apart: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """The positions with minimum distances that are closest to given ones, by weighted squares.

    Args:
      wanted: the given positions; their order is kept.
      apart: the least distance from each position to the next.
      weights: the weight of each position.
    """
    offset = [0.0]
    for distance in apart:
        offset.append(offset[-1] + distance)
    blocks: list[tuple[float, float, int]] = []  # mean, weight and length of runs that touch
    for place, shift, weight in zip(wanted, offset, weights, strict=False):
        block = place - shift, weight, 1
        while blocks and blocks[-1][0] > block[0]:
            mean, heavy, many = blocks.pop()
            total = heavy + block[1]
            block = (mean * heavy + block[0] * block[1]) / total, total, many + block[2]
        blocks.append(block)
    means = [mean for mean, _, many in blocks for _ in range(many)]
    return [mean + shift for mean, shift in zip(means, offset, strict=False)]


def _mean_or(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
