"""The surrogate gradients are derivatives: of the exact loss, averaged over dithers.

`benchmarks/gradient_quality.py` says what is measured, and measures more of it.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from paths import ROOT

from tosajax import quant as tq

sys.path.insert(0, str(ROOT))

from benchmarks import gradient_networks
from benchmarks import gradient_quality as quality
from examples import digits

SIZES = quality.Sizes(directions=24, dithers=24, gradients=8)
TRAINING_STEPS = 200
KINDS = tuple(kind for kind in quality.KINDS if kind != "bits")


class Problem(NamedTuple):
    model: tq.QModel
    split: digits.Split
    calibrated: Any
    programs: quality.Programs


@pytest.fixture(scope="module")
def problem() -> Problem:
    split = digits.load()
    model = quality.prepared(gradient_networks.convolutional())
    params = tq.calibrate(model, [split.train_images[:256]])
    return Problem(model, split, params, quality.programs(quality.entropy(model), params))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((8, 8), id="w8a8", marks=pytest.mark.slow),
        pytest.param((4, 8), id="w4a8", marks=pytest.mark.slow),
        pytest.param((4, 4), id="w4a4"),
    ],
)
def trained(problem, request) -> Any:
    """Of these bits, half trained."""
    params = quality.of_bits(problem.model, problem.calibrated, *request.param)
    return quality.train(problem.programs, params, problem.split, TRAINING_STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_surrogates_are_gradients_of_the_dithered_loss(problem, trained, kind):
    images, labels = problem.split.test_images, problem.split.test_labels
    count = quality.IMAGES
    batch = images[:count], labels[:count].astype(np.int32)
    (found,) = quality.compare(
        problem.model, problem.programs, trained, kind, batch, SIZES
    ).values()
    print(kind, found)
    assert found.is_conclusive
    assert found.correlation[0] >= 0.75
    assert found.correlation[1] >= 0.5
