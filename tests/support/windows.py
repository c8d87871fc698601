"""Random dimension numbers of gathers and scatters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st


class Drawn(NamedTuple):
    """Windows of an array.

    Args:
      shape: of the array.
      batch: its axes in the batch.
      index_batch: the axes of the indices that they stand for.
      axes: that the indices are of.
      sizes: of a window, along all axes.
      gone: axes that windows do not have.
      window_at: axes of the result or the updates that are of the window.
      indices: int32 (..., number of axes), some out of bounds.
    """

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    index_batch: tuple[int, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    gone: tuple[int, ...]
    window_at: tuple[int, ...]
    indices: np.ndarray

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of what is read, or of the updates."""
        left = [n for a, n in enumerate(self.sizes) if a not in (*self.gone, *self.batch)]
        window, counts = iter(left), iter(self.indices.shape[:-1])
        rank = len(left) + self.indices.ndim - 1
        return tuple(next(window if at in self.window_at else counts) for at in range(rank))


@st.composite
def windows(draw: Any) -> Drawn:
    """Any windows that JAX takes."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    roles = [draw(st.sampled_from(["batch", "index", "index", "free"])) for _ in shape]
    roles[draw(st.integers(0, len(shape) - 1))] = "index"
    batch = tuple(a for a, role in enumerate(roles) if role == "batch")
    axes = tuple(draw(st.permutations([a for a, role in enumerate(roles) if role == "index"])))
    sizes = tuple(
        1 if a in batch else draw(st.sampled_from([1, n, max(n - 1, 1)]))
        for a, n in enumerate(shape)
    )
    gone = tuple(
        a for a, n in enumerate(sizes) if n == 1 and a not in batch and draw(st.booleans())
    )
    others = draw(st.lists(st.integers(1, 3), max_size=2))
    rank = len(batch) + len(others)
    index_batch = tuple(sorted(draw(st.permutations(range(rank)))[: len(batch)]))
    lengths, of_batch, of_others = [], iter(batch), iter(others)
    for at in range(rank):
        lengths.append(shape[next(of_batch)] if at in index_batch else next(of_others))
    left = len(shape) - len(gone) - len(batch)
    window_at = tuple(sorted(draw(st.permutations(range(left + rank)))[:left]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indices = rng.integers(-1, 6, (*lengths, len(axes))).astype(np.int32)
    return Drawn(shape, batch, index_batch, axes, sizes, gone, window_at, indices)
