"""Which tensors are lifted to INT16 within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest

from tosajax.quant.tune.lifts import best_set


def chosen(gains: Sequence[float], costs: Sequence[float], deadline: float = math.inf) -> list[int]:
    """The set where the noise is 100, less what each gains, and the budget 10."""

    def noise(places: Sequence[int]) -> float:
        return 100 - sum(gains[place] for place in places)

    helpful = {place: gain for place, gain in enumerate(gains) if gain > 0}
    return best_set(helpful, costs, noise, lambda s: sum(costs[n] for n in s) <= 10, deadline)


@pytest.mark.parametrize(
    ("gains", "costs", "wanted"),
    [
        ([10, 9, 8], [1, 1, 1], [0, 1, 2]),
        ([10, 9, 8], [9, 5, 5], [1, 2]),  # cheap ones together
        ([90, 10, 1.5], [10, 1, 1], [0]),  # one dear tensor
        ([10, -5, 2], [1, 1, 1], [0, 2]),
        ([10, 0.5], [1, 1], [0]),  # too little
        ([10, 9], [11, 1], [1]),
        ([10, 9], [11, 12], []),
    ],
)
def test_less_noise_within_the_budget(gains, costs, wanted):
    assert sorted(chosen(gains, costs)) == wanted


def test_no_time():
    assert chosen([10, 9], [1, 1], deadline=time.perf_counter() - 1) == []
