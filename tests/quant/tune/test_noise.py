"""The noise of examples: whether it is lower by more than chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tosajax.quant.tune.noise import (
    decibels,
    falls_clearly,
    lowers_noise,
    noise_to_signal,
    relative_noise,
)


@pytest.mark.parametrize(
    ("gains", "is_lower"),
    [
        ([4.0] + [0.0] * 15, False),  # one example
        ([4.0, 4.0] + [0.0] * 14, False),
        ([4.0, 4.0, 4.0, 4.0] + [0.0] * 12, True),
        ([1.0, 0.9, 1.1, 1.0], True),
        ([0.05] * 16, False),  # of 10: less than a hundredth
        ([0.0] * 16, False),
        ([-1.0] * 16, False),
    ],
)
def test_what_lowers_noise(gains, is_lower):
    before, held_back = np.full(len(gains), 10.0), np.full(1, 10.0)
    after = before - np.array(gains)
    assert lowers_noise((before, held_back), (after, held_back)) == is_lower


def test_gains_that_are_clear_by_size_and_number_together():
    before, held_back = np.full(16, 10.0), np.full(1, 10.0)
    for gains, is_lower in (
        ([4.0, 3.0] + [0.3] * 8 + [-0.6] * 6, True),
        ([4.0, 3.0] + [0.3] * 7 + [-0.5] * 7, False),
    ):
        assert lowers_noise((before, held_back), (before - gains, held_back)) == is_lower


def test_noise_of_one_example():
    """It chooses and judges."""
    one = np.full(1, 10.0)
    assert lowers_noise((one, one), (one - 1, one - 1))


def test_what_falls_clearly():
    before = np.full(32, 10.0)
    for gains, is_clear in (
        ([9.0] + [0.0] * 31, False),
        ([9.0, 9.0] + [0.0] * 30, False),
        ([9.0, 9.0] + [0.01] * 30, False),  # however many gain a little
        ([9.0, 9.0, 9.0] + [0.0] * 29, True),
        ([9.0, 9.0, 9.0] + [-0.8] * 29, False),  # less than a hundredth in all
        ([0.2] * 32, True),
        ([0.05] * 32, False),
        ([-9.0] * 32, False),
        ([0.0] * 32, False),
    ):
        assert falls_clearly(before, before - gains) == is_clear, gains


def test_noise_that_is_not_finite():
    some = np.asarray([1.0, 2.0])
    for before in (np.asarray([1, math.inf]), np.asarray([math.nan, 1])):
        assert falls_clearly(before, some)
        assert not falls_clearly(before, before)
        assert not falls_clearly(some, before)


def test_noise_of_nothing_cannot_be_lowered():
    assert not lowers_noise((np.zeros(4), np.zeros(4)), (np.zeros(4), np.zeros(4)))


@pytest.mark.parametrize(("outlier", "is_lower"), [(20.0, True), (99.9, False), (120.0, False)])
def test_one_example_with_most_of_the_noise(outlier, is_lower):
    """All others gain a little, which counts if their sum does not grow with it."""
    before, after = np.array([100.0] + [1.0] * 15), np.array([outlier] + [0.97] * 15)
    rest = np.ones(4)
    assert lowers_noise((before, rest), (after, rest * 0.97)) == is_lower


@pytest.mark.parametrize(("held_back", "is_lower"), [(9.0, True), (10.4, True), (10.6, False)])
def test_noise_of_examples_held_back_may_not_rise(held_back, is_lower):
    """By more than a twentieth, however much those that chose gain."""
    before, after = (np.full(4, 10.0), np.full(4, 10.0)), (np.full(4, 2.0), np.full(4, held_back))
    assert lowers_noise(before, after) == is_lower


def test_noise_is_relative_to_the_usual_signal_at_least():
    wanted = np.array([[1.0, 1], [1, 1], [30, 40], [0, 0]])
    noise = relative_noise(wanted + 1, wanted)
    np.testing.assert_allclose(noise, [1, 1, 2 / 2500, 1])
    np.testing.assert_allclose(relative_noise(np.ones((2, 3)), np.zeros((2, 3))), [3, 3])


def test_decibels():
    assert decibels(0.01) == pytest.approx(20)
    assert decibels(0.0) == math.inf


def test_noise_to_signal():
    rng = np.random.default_rng(0)
    wanted, noise = rng.normal(0, 1, (5, 3, 2)), rng.normal(0, 0.1, (5, 3, 2))
    ratio = sum(x * x for x in noise.flat) / sum(x * x for x in wanted.flat)
    assert noise_to_signal(wanted + noise, wanted) == pytest.approx(ratio)
    silent = np.zeros((3, 2))
    assert noise_to_signal(silent + 2, silent) == 24
