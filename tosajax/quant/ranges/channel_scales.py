"""Factors that make the channels of an activation equally large before they are rounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

_MOST = 64.0  # times finer than the largest channel: new examples may have more in a small one


def channel_maxima(y: jax.Array, count: int) -> jax.Array:
    """The largest finite magnitude of each channel, by example: (examples, channels).

    Args:
      y: examples on the first axes, channels on the last.
      count: of examples.
    """
    finite = jnp.where(jnp.isfinite(y), jnp.abs(y), 0)
    return finite.reshape(count, -1, y.shape[-1]).max(1, initial=0)


def factors_of(maxima: Mapping[str, Sequence[np.ndarray]]) -> dict[str, jax.Array]:
    """The factors of each tensor's channels, at least 1; of the largest channel 1.

    Args:
      maxima: of the examples of some batches.
    """
    return {name: _factors(np.concatenate(each).max(0)) for name, each in maxima.items()}


def _factors(maxima: np.ndarray) -> jax.Array:
    largest = maxima.max()
    least = np.maximum(maxima, largest / _MOST)
    return jnp.asarray(np.where(least > 0, largest / np.where(least > 0, least, 1), 1), jnp.float32)
