"""Weights that are integers times a scale, as QAT tools leave them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from tosajax.quant.spec import QSpec

# Steps by which weights may be off; float32 and folded scales are nearer.
_OFF = 1e-3
_MOST = 127  # the largest integer that is looked for
_STILL = 0.25  # of weights that may have been trained
_SOME = 4  # channels that are looked at before all
_FEW = 8  # the weights of a channel that are looked at before all
_LEAST = 16  # weights that are on no grid by chance


def known_integers(
    values: np.ndarray | None, spec: QSpec, axes: Sequence[int]
) -> tuple[int, ...] | None:
    """The integers of weights, where a specification leaves their scale open.

    Args:
      values: the weights; None of a computed tensor.
      spec: their specification.
      axes: the axes of their channels.

    Returns:
      The `largest_integers`; with a zero point, the `ends_around_zero`.
    """
    is_open = not spec.learned_bits and not spec.observer.is_fixed
    if values is None or not is_open or not spec.storage.is_integer:
        return None
    bits = spec.bits or spec.storage.dtype.bits
    if not spec.symmetric:
        return ends_around_zero(values) if bits == 8 else None
    return largest_integers(values, axes, min(2 ** (bits - 1) - 1, _MOST))


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


def ends_around_zero(values: np.ndarray) -> tuple[int, int] | None:
    """The least and the largest integer of weights that 8 bits hold with a zero point alone.

    Args:
      values: the weights, each an integer times one scale for all.
    """
    largest = float(np.abs(values).max(initial=0))
    if values.size < _LEAST or not largest:
        return None
    rows = values.reshape(-1)
    few = rows[np.flatnonzero(rows)[:_FEW]].astype(np.float64) / largest
    counts = np.arange(1, 2 * _MOST + 2)
    counts = counts[_are_whole(counts[:, None] * few)]
    if not counts.size:
        return None
    unit = rows.astype(np.float64) / largest
    count = next((count for count in counts.tolist() if _are_whole(unit * count)), 0)
    if count <= _MOST:  # on no grid, or INT8 holds them without a zero point
        return None
    low, high = (round(end * count) for end in (unit.min(initial=0), unit.max(initial=0)))
    return (low, high) if high - low <= 2 * _MOST + 1 else None


def qparams_of_ends(
    values: jax.Array, ends: Sequence[int], scale: jax.Array, zero_point: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The scale and the zero point with which weights are integers still, of known ends.

    Args:
      values: the weights, which may have been trained.
      ends: from `ends_around_zero`.
      scale: where they are on no such grid any more.
      zero_point: the same.
    """
    low, high = ends
    own = (values.max(initial=0) - values.min(initial=0)) / (high - low)
    steps = values / own
    is_whole = (jnp.abs(steps - jnp.round(steps)) < _STILL).all()
    return jnp.where(is_whole, own, scale), jnp.where(is_whole, -_MOST - 1 - low, zero_point)


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
    return jnp.where(is_whole, own, scales)


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
