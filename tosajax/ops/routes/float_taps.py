"""Convolutions of floats as a sum of dots, one for each tap, in a loop; not for CPUs."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops._window import Window, dynamic_window, pad_spatial, tap
from tosajax.ops.routes.float_dot import dot_rows
from tosajax.ops.routes.loop import sum_over


def spread_out(x: jax.Array, spread: Sequence[int]) -> jax.Array:
    """Puts `spread` - 1 zeros between neighbours along each spatial axis of [N, ..., C]."""
    if not spread:
        return x
    config = [(0, 0, 0), *((0, 0, step - 1) for step in spread), (0, 0, 0)]
    return lax.pad(x, np.zeros((), x.dtype), config)


def convolve_by_taps(
    x: jax.Array, weight: jax.Array, window: Window, spread: Sequence[int] = (), groups: int = 1
) -> jax.Array:
    """Convolves in float32.

    Args:
      x: float32, [N, ..., IC].
      weight: float32, [..., IC / groups, OC].
      window: the window over the spread and padded input.
      spread: by axis, the distance of the elements of `x` after zeros are put between them;
        by default 1.
      groups: the number of groups of channels, which are convolved separately.

    Returns:
      float32, [N, ..., OC].
    """
    x = spread_out(x, spread)
    out = window.out(x.shape)
    x = pad_spatial(x, window.pad, jnp.zeros((), x.dtype))
    single_tap = window._replace(size=(1,) * len(out))

    def term(start: list[jax.Array], kernel: jax.Array) -> jax.Array:
        values = dynamic_window(x, start, single_tap, out)
        values = tap(values, (0,) * len(out), out, window.stride)
        rows = values.reshape(-1, values.shape[-1])
        if groups == 1:
            total = dot_rows(rows, kernel.T)
        else:
            each = kernel.reshape(kernel.shape[0], groups, -1)
            split = rows.reshape(len(rows), groups, -1, 1)
            total = jnp.sum(split * each.swapaxes(0, 1)[None], axis=2)
        return total.reshape(*values.shape[:-1], -1)

    kernels = weight.reshape(-1, *weight.shape[-2:])
    return sum_over(window.size, window.dilation, kernels, term, np.float32)
