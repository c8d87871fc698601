"""The surrogate gradients are derivatives: of the exact loss, averaged over dithers.

`benchmarks/gradient_quality.py` explains how they are compared, and compares more of them.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from paths import ROOT

from tosajax import quant as tq

sys.path.insert(0, str(ROOT))

from benchmarks import gradient_networks
from benchmarks import gradient_quality as quality
from examples import digits

SIZES = quality.Sizes(directions=32, dithers=48, gradients=32)
TRAINING_STEPS = 100
KINDS = tuple(kind for kind in quality.KINDS if kind != "bits")
# Few weights share a scale, so that theirs need dithers of the weights to have a smooth loss.
ALSO = ("weights", "biases")


class Problem(NamedTuple):
    model: tq.QModel
    split: digits.Split
    calibrated: Any
    programs: quality.Programs


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A network of convolutions, one of them depthwise, with a residual."""
    split = digits.load()
    model = quality.prepared(gradient_networks.convolutional())
    params = tq.calibrate(model, [split.train_images[:256]])
    return Problem(model, split, params, quality.programs(quality.entropy(model), params))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((8, 8), id="w8a8"),
        pytest.param((4, 8), id="w4a8"),
        pytest.param((4, 4), id="w4a4"),
    ],
)
def trained(problem: Problem, request: pytest.FixtureRequest) -> Any:
    """Parameters of these bits, half trained."""
    params = quality.of_bits(problem.model, problem.calibrated, *request.param)
    return quality.train(problem.programs, params, problem.split, TRAINING_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_surrogates_are_gradients_of_the_dithered_loss(problem: Problem, trained: Any, kind: str):
    model, programs, split = problem.model, problem.programs, problem.split
    count = quality.IMAGES
    batch = split.test_images[:count], split.test_labels[:count].astype(np.int32)
    (found,) = quality.compare(model, programs, trained, kind, batch, SIZES, also=ALSO).values()
    assert found.is_conclusive
    correlation, low, _ = found.correlation
    assert correlation >= 0.75
    assert low >= 0.5
    slope, low, high = found.slope
    assert low <= 2
    assert high >= 0.5
    assert 0.4 <= slope <= 2.5


@pytest.mark.parametrize("cosine", [1.0, 0.6, 0.0, -0.9])
def test_noise_of_dithers_does_not_lower_correlations(cosine: float):
    """With a slope of 2, of truths and surrogates whose noise is three times as large as they."""
    rng = np.random.default_rng(0)
    directions, dithers = 1000, 30
    x, y = rng.normal(size=(2, directions, 1))
    truth = 2 * (cosine * x + np.sqrt(1 - cosine**2) * y)
    noise = rng.normal(size=(2, directions, dithers))
    found = quality.agreement(x + 3 * noise[0], truth + 6 * noise[1], x[:, 0])
    for measured, wanted in [
        (found.correlation, cosine),
        (found.slope, 2 * cosine),
        (found.at_point, cosine),
    ]:
        np.testing.assert_allclose(measured[0], wanted, atol=0.2)
        assert measured[1] - 0.05 <= wanted <= measured[2] + 0.05
    np.testing.assert_allclose(found.reliability, 1 / (1 + 9 / dithers), atol=0.05)


def test_noise_alone_is_inconclusive():
    noise = np.random.default_rng(0).normal(size=(2, 24, 24))
    found = quality.agreement(noise[0], noise[1], noise[0, :, 0])
    assert not found.is_conclusive


def test_a_kind_that_does_not_exist(problem: Problem):
    with pytest.raises(ValueError, match="kind 'scales', expected one of weights, biases"):
        quality.widths(problem.model, problem.calibrated, "scales")
