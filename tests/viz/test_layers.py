"""Layered drawings: rows follow edges, nothing overlaps, chains and rails are straight."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tosajax.viz.layers import Item, Layers, _spread, layered

WIDTH, RAIL = 100, 10


def drawn(count: int, *edges: tuple[int, int]) -> Layers:
    found = layered(count, edges, WIDTH, RAIL)
    for row in found.rows:
        for a, b in itertools.pairwise(row):
            apart = sum(RAIL if item.is_rail else WIDTH for item in (a, b)) / 2
            assert found.x[b] - found.x[a] >= apart - 1e-6
    nodes = [item for row in found.rows for item in row if not item.is_rail]
    assert sorted(item.node for item in nodes) == list(range(count))
    for upper, lower in found.lines:
        assert lower.row == upper.row + 1
        assert {upper, lower} <= {*found.rows[upper.row], *found.rows[lower.row]}
    return found


def places(found: Layers) -> dict[int, tuple[int, float]]:
    nodes = [item for item in found.x if not item.is_rail]
    return {item.node: (item.row, round(found.x[item], 1)) for item in nodes}


def test_no_nodes():
    assert layered(0, [], WIDTH, RAIL).rows == []


def test_a_chain_is_straight():
    assert places(drawn(4, (0, 1), (1, 2), (2, 3))) == {n: (n, 0.0) for n in range(4)}


def test_an_edge_over_rows_has_a_rail_beside_them():
    found = drawn(4, (0, 1), (1, 2), (2, 3), (0, 3))
    assert {x for _, x in places(found).values()} == {0.0}
    rails = [item for item in found.x if item.is_rail]
    assert rails == [Item(1, 0, True), Item(2, 0, True)]
    assert [round(found.x[item], 1) for item in rails] == [55.0, 55.0]


def test_readers_of_a_node_share_its_rail():
    found = drawn(5, *((n, n + 1) for n in range(4)), (0, 3), (0, 4))
    assert len([item for item in found.x if item.is_rail]) == 3


def test_a_source_stands_above_its_first_reader():
    found = places(drawn(5, (0, 2), (2, 3), (1, 3), (3, 4)))
    assert found[1][0] == found[2][0] == 1


def test_nodes_that_touch_nothing_are_in_the_first_row():
    assert {row for row, _ in places(drawn(3)).values()} == {0}


def test_residual_blocks_do_not_drift():
    """The branch with a node stands beside; the trunk is straight through all blocks."""
    edges, last = [], 0
    for k in range(0, 150, 5):
        edges += [(last, k + 1), (k + 1, k + 2), (k + 2, k + 3), (last, k + 4), (k + 4, k + 5)]
        edges += [(k + 3, k + 5)]
        last = k + 5
    found = places(drawn(151, *edges))
    trunk = [x for node, (_, x) in found.items() if node % 5 != 4]
    assert max(trunk) - min(trunk) < 1
    beside = [x for node, (_, x) in found.items() if node % 5 == 4]
    assert {round(x - trunk[0]) for x in beside} <= {-WIDTH, WIDTH}


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 60))
    pairs = rng.integers(0, count, (2 * count, 2))
    edges = [(int(min(p)), int(max(p))) for p in pairs if p[0] != p[1]]
    found = places(drawn(count, *edges))
    assert all(found[a][0] < found[b][0] for a, b in edges)
    assert layered(count, edges, WIDTH, RAIL) == layered(count, reversed(edges), WIDTH, RAIL)


def test_places_are_the_nearest_that_keep_a_distance():
    assert _spread([0, 0], [2], [1, 1]) == [-1, 1]
    assert _spread([0, 0], [3], [1, 2]) == [-2, 1]
    assert _spread([0, 5, 5.5, 20], [1, 1, 1], [1, 1, 1, 1]) == [0, 4.75, 5.75, 20]
    assert _spread([3, 2, 1], [0, 0], [1, 1, 1]) == [2, 2, 2]
    assert _spread([], [], []) == []
