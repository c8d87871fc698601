"""Axes as one: which axes, and what the sizes are then."""

from __future__ import annotations

import pytest

from tosajax.from_jax.ranks import merged, neighbours


@pytest.mark.parametrize(
    ("shapes", "apart", "groups"),
    [
        ([(2, 3, 4, 5, 6, 7)], (), [[0], [1], [2], [3], [4], [5]]),
        ([(2, 3, 4, 5, 6, 7, 8)], (), [[0, 1, 2, 3, 4, 5, 6]]),
        ([(2, 3, 4, 5, 6, 7, 8)], (0, 3), [[0], [1, 2], [3], [4, 5, 6]]),
        ([(2, 3, 4, 5, 6, 7, 8), (2, 3, 1, 1, 6, 7, 8)], (), [[0, 1], [2, 3], [4, 5, 6]]),
        ([(2, 1, 4, 5, 6, 7, 8), (1, 1, 4, 1, 6, 1, 8)], (), [[0, 1], [2], [3], [4], [5], [6]]),
        ([(1, 1, 4, 5, 6, 7, 8), (1, 1, 4, 5, 1, 1, 1)], (1,), [[0], [1], [2, 3], [4, 5, 6]]),
    ],
)
def test_axes_that_can_be_one(shapes, apart, groups):
    assert neighbours(shapes, apart) == groups


def test_few_axes_are_merged_on_request():
    assert neighbours([(2, 3, 4)], (1,), most=0) == [[0], [1], [2]]
    assert neighbours([(2, 3, 4)], (2,), most=0) == [[0, 1], [2]]
    assert neighbours([()], most=0) == []


def test_sizes_of_groups():
    assert merged((2, 3, 4), [[0, 1], [2]]) == (6, 4)
    assert merged((), []) == ()
