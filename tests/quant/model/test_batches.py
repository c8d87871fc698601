"""Batches of examples: the sizes of the parts that programs run."""

from __future__ import annotations

import numpy as np
import pytest

from tosajax.quant.model.batches import parts


@pytest.mark.parametrize(
    ("count", "step", "sizes"),
    [
        (32, 32, [32]),
        (32, 40, [32]),
        (32, 7, [4] * 8),
        (32, 8, [8] * 4),
        (30, 8, [6] * 5),
        (31, 8, [8, 8, 8, 7]),
        (44, 8, [4] * 11),
        (22, 8, [8, 8, 6]),  # 2 of 22 at a time would be too few
        (3, 1, [1, 1, 1]),
        (1, 5, [1]),
    ],
)
def test_parts_are_of_one_size_where_half_would_do(count, step, sizes):
    joined = [np.arange(count), np.arange(2 * count).reshape(count, 2)]
    found = parts(joined, step)
    assert [len(part[0]) for part in found] == sizes
    for whole, each in zip(joined, zip(*found, strict=True), strict=True):
        np.testing.assert_array_equal(np.concatenate(each), whole)
