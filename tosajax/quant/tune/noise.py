"""The noise of examples: how much there is of it, and what lowers it."""

from __future__ import annotations

import math

import numpy as np

GAIN = 0.01  # of the noise that a remedy must remove at least, to be worth keeping
# Standard errors that it must remove at least, of the gains or of their signs: one example that
# gains a lot has one of them, and two that gain the same have 1.5. Or of both together.
_ERRORS, _OF_BOTH = 1.7, 2.0
_OF_SOME = 1.5  # standard errors of a mean gain that more than two examples have
_WORSE = 1.05  # of the noise on held-back examples, which are few


def lowers_noise(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]
) -> bool:
    """Whether a remedy lowers the noise of examples, by more than a few of them would by chance.

    Args:
      before: the noise of each example that chooses, and of each that is held back.
      after: the same with the remedy; it may not be worse for those held back.
    """
    all_before, all_after = np.concatenate(before), np.concatenate(after)
    if not all_after.mean() < (1 - GAIN) * all_before.mean():
        return False
    gains = all_before - all_after
    signs, much = np.sign(gains).sum(), _errors(gains)
    common = signs / math.sqrt(np.count_nonzero(gains))
    # Either is enough: one example may have most of the noise.
    is_clear = max(much, common) >= _ERRORS or much + signs / math.sqrt(gains.size) >= _OF_BOTH
    return bool(is_clear and after[1].mean() <= _WORSE * before[1].mean())


def falls_clearly(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether the mean noise of examples falls, by what one or two of them alone cannot gain.

    Where one example has most of the noise, as an ambiguous photograph, any change moves it.

    Args:
      before: the noise of each example.
      after: the same with the change.
    """
    if not np.isfinite(before).all():
        return bool(np.isfinite(after).all())
    if not after.mean() < (1 - GAIN) * before.mean():
        return False
    return bool(_errors(before - after) >= _OF_SOME)


def _errors(gains: np.ndarray) -> float:
    """The mean gain of examples in its standard errors."""
    error = gains.std() / math.sqrt(gains.size)
    return gains.mean() / error if error else math.inf


def relative_noise(y: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The noise of each example over its signal, or the usual signal if that is more, in power.

    So an example of huge outputs counts as much as any other. Without signal it is the noise.
    """
    axes = tuple(range(1, wanted.ndim))
    noise = np.sum(np.square(np.asarray(y, np.float64) - wanted), axes)
    signals = np.sum(np.square(wanted), axes)
    usual = float(np.median(signals)) or float(signals.mean())
    return noise / np.maximum(signals, usual) if usual else noise


def noise_to_signal(y: np.ndarray, wanted: np.ndarray) -> float:
    """The noise of all examples over their signal, in power. Without signal it is the noise."""
    noise, signal = np.sum(np.square(y - wanted)), np.sum(np.square(wanted))
    return float(noise / (signal or 1.0))


def decibels(noise: float) -> float:
    """The signal over its noise, of the noise relative to the signal."""
    return -10 * math.log10(noise) if noise else math.inf
