"""Shapes of one value for each channel."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def along(axes: Collection[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one value for each channel, to broadcast with a tensor.

    Args:
      axes: of the channels.
      shape: of the tensor.
    """
    return tuple(n if axis in axes else 1 for axis, n in enumerate(shape))
