"""Shapes of one value for each channel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax


def along(axes: Collection[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one value for each channel, to broadcast with a tensor.

    Args:
      axes: the axes of the channels.
      shape: the shape of the tensor.
    """
    return tuple(n if axis in axes else 1 for axis, n in enumerate(shape))


def on_last_axis(values: jax.Array, rank: int) -> jax.Array:
    """One value for each channel, to broadcast with a tensor whose channels are its last axis."""
    return values.reshape((1,) * (rank - 1) + (-1,))
