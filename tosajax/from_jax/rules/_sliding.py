"""Sliding windows of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


class Window(NamedTuple):
    """A window along one axis.

    Args:
      size: the size of the axis.
      length: the number of elements in the window.
      stride: the distance between positions of the window.
      before: padding before the axis; negative padding removes elements.
      after: padding after the axis; negative padding removes elements.
      dilation: the distance between elements of the window.
      spread: the distance between elements of the axis, filled with padding (base dilation).
    """

    size: int
    length: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    spread: int = 1

    @property
    def padded_size(self) -> int:
        """The size of the axis after padding and spreading."""
        return (self.size - 1) * self.spread + 1 + self.before + self.after

    @property
    def room(self) -> int:
        """The largest start of the window, regardless of the stride."""
        return self.padded_size - (self.length - 1) * self.dilation - 1

    @property
    def positions(self) -> int:
        """The number of positions of the window."""
        return self.room // self.stride + 1

    @property
    def fitted(self) -> Window:
        """The same positions, without the elements after the last position."""
        return self._replace(after=self.after - self.room % self.stride)

    @property
    def padded(self) -> Window:
        """The same positions on the axis after padding and spreading."""
        return self._replace(size=self.padded_size, before=0, after=0, spread=1)


def pad(
    step: Step, x: Value, windows: Sequence[Window], which: Sequence[bool], fill: Any
) -> tuple[Value, list[Window]]:
    """Pads, spreads and crops an array along some axes, as its windows require.

    Args:
      step: the equation.
      x: the array.
      windows: the windows along all axes.
      which: whether to pad each axis.
      fill: the number to pad with.

    Returns:
      The array, and its windows without padding and spreading along these axes.
    """
    if not any(which):
        return x, [*windows]
    moved = [w.padded if wanted else w for w, wanted in zip(windows, which, strict=True)]
    pairs = [*zip(windows, which, strict=True)]
    edges = [(w.before, w.after) if wanted else (0, 0) for w, wanted in pairs]
    spread = [w.spread - 1 if wanted else 0 for w, wanted in pairs]
    return step.jax(lambda v: _padded(v, edges, spread, fill), x), moved


def _padded(
    x: jax.Array, edges: Sequence[tuple[int, int]], spread: Sequence[int], fill: Any
) -> jax.Array:
    """Pads and spreads an array, one spread axis at a time, as each adds an axis temporarily."""
    number = np.asarray(fill, x.dtype)
    *others, last = [i for i, n in enumerate(spread) if n] or [-1]
    for axis in others:
        x = lax.pad(x, number, [(0, 0, spread[i] if i == axis else 0) for i in range(x.ndim)])
    config = [(*pair, spread[i] if i == last else 0) for i, pair in enumerate(edges)]
    return lax.pad(x, number, config)
