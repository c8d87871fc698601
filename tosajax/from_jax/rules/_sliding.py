"""Windows that slide along axes, of convolutions and pools."""

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
      size: of the axis.
      length: elements in the window.
      stride: from one position to the next.
      before: padding; negative padding takes elements off.
      after: as before.
      dilation: from one element in the window to the next.
      spread: from one element of the axis to the next, with padding between.
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
        """The last place where the window could start."""
        return self.padded_size - (self.length - 1) * self.dilation - 1

    @property
    def positions(self) -> int:
        """The number of positions."""
        return self.room // self.stride + 1

    @property
    def fitted(self) -> Window:
        """The same positions, without elements after the last."""
        return self._replace(after=self.after - self.room % self.stride)

    @property
    def padded(self) -> Window:
        """The same positions on the axis after padding and spreading."""
        return self._replace(size=self.padded_size, before=0, after=0, spread=1)


def pad(
    step: Step, x: Value, windows: Sequence[Window], which: Sequence[bool], fill: Any
) -> tuple[Value, list[Window]]:
    """Pads some axes of an array, spreads their elements, and takes elements off.

    Args:
      step: the equation.
      x: the array.
      windows: of all axes.
      which: whether to pad each axis.
      fill: the number to pad with.

    Returns:
      The array, and its windows.
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
    """Several axes that are spread are so one by one: each needs another axis on the way."""
    number = np.asarray(fill, x.dtype)
    *others, last = [i for i, n in enumerate(spread) if n] or [-1]
    for axis in others:
        x = lax.pad(x, number, [(0, 0, spread[i] if i == axis else 0) for i in range(x.ndim)])
    config = [(*pair, spread[i] if i == last else 0) for i, pair in enumerate(edges)]
    return lax.pad(x, number, config)
