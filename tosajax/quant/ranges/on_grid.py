"""Weights that are integers times a scale, as QAT tools leave them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

# Steps by which weights may be off; float32 and folded scales are nearer.
_OFF = 1e-3
_STILL = 0.25  # of weights that may have been trained
_SOME = 4  # channels that are looked at before all
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
    if not rows.any():
        return None
    if len(rows) > _SOME and _largest_integers(rows[:_SOME], most) is None:
        return None
    found = _largest_integers(rows, most)
    return None if found is None else tuple(int(count) for count in found)


def scales_of_integers(rows: jax.Array, integers: Sequence[int], scales: jax.Array) -> jax.Array:
    """The scales with which weights are integers still, of which the largest are known.

    Args:
      rows: the weights of each channel [channels, n], which may have been trained.
      integers: from `largest_integers`.
      scales: of the channels that are on no such grid any more [channels].
    """
    own = jnp.abs(rows).max(1) / jnp.asarray(integers, jnp.float32)
    steps = rows / jnp.where(own > 0, own, 1)[:, None]
    is_whole = (jnp.abs(steps - jnp.round(steps)) < _STILL).all(1)
    return jnp.where(is_whole & (own > 0), own, scales)


def _largest_integers(rows: np.ndarray, most: int) -> np.ndarray | None:
    """See `largest_integers`; of rows of weights, one a channel."""
    largest = np.abs(rows).max(-1, initial=0)
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
    return found * (most // found)


def _are_whole(steps: np.ndarray) -> np.ndarray:
    """Whether all steps of each row are near to integers."""
    return (np.abs(steps - np.rint(steps)) < _OFF).all(-1)
