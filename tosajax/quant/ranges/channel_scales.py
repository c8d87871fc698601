"""Factors that make the channels of an activation fill its range before they are rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

_MOST = 64.0  # times finer than the largest channel: new examples may have more in a small one


def channel_ends(y: jax.Array, count: int) -> jax.Array:
    """How far each channel reaches above 0 and below it, by example: (examples, 2, channels).

    Args:
      y: examples on the first axes, channels on the last; what is not finite does not count.
      count: of examples.
    """
    finite = jnp.where(jnp.isfinite(y), y, 0).reshape(count, -1, y.shape[-1])
    return jnp.stack([finite.max(1, initial=0), (-finite).max(1, initial=0)], 1)


def factors_of(ends: Mapping[str, Sequence[np.ndarray]]) -> dict[str, jax.Array]:
    """The largest factors, from 1 to 64, with which no channel reaches farther than all did.

    So the range of the tensor stays, and no channel is coarser than it was.

    Args:
      ends: of the examples of some batches, by tensor.
    """
    return {name: _factors(np.concatenate(each).max(0)) for name, each in ends.items()}


def _factors(ends: np.ndarray) -> jax.Array:
    whole = ends.max(1, keepdims=True)
    room = np.divide(whole, ends, out=np.full_like(ends, _MOST), where=ends > 0)
    return jnp.asarray(np.minimum(room.min(0), _MOST), jnp.float32)
