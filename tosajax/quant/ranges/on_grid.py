"""Weights that are on a grid already: integers times a scale, as QAT tools leave them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Steps by which weights may be off; float32 and folded scales are nearer.
_OFF = 1e-3
_FEW = 8  # the weights of a channel that are looked at before all


def largest_integers(values: np.ndarray, axes: Sequence[int], most: int) -> tuple[int, ...] | None:
    """The largest magnitude of integers that each channel's weights are times a scale.

    Args:
      values: the weights, each an integer times the scale of its channel.
      axes: the axes of the channels; none where all weights have one scale.
      most: the largest integer that there may be.

    Returns:
      An integer for each channel, as large as it can be; None where weights are not on such grids.
    """
    shape = [values.shape[axis] for axis in axes]
    rows = np.moveaxis(values, axes, range(len(axes))).reshape(math.prod(shape), -1)
    largest = np.abs(rows).max(-1, initial=0)
    if not largest.any():
        return None
    found = np.where(largest == 0, most, 0)
    unit = np.where(largest == 0, 1, largest).astype(np.float64)[:, None]
    few = rows[:, :_FEW] / unit
    for count in range(1, most + 1):
        left = np.flatnonzero(found == 0)
        left = left[_are_whole(few[left] * count)]
        found[left[_are_whole(rows[left] / unit[left] * count)]] = count
    if not found.all():
        return None
    # A multiple is as exact, and has finer steps for biases and for training.
    found *= most // np.maximum(found, 1)
    return tuple(int(count) for count in found)


def _are_whole(steps: np.ndarray) -> np.ndarray:
    """Whether all steps of each row are near to integers."""
    return (np.abs(steps - np.rint(steps)) < _OFF).all(-1)
