"""Routes "slices" and "loop" of depthwise convolutions: a multiply-add for each tap.

Weights are int32 or float32, [KH, KW, C, M], less their zero point; results are [N, OH, OW, C, M].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.fixedpoint import _x64
from tosajax.ops._window import dynamic_window, pad_spatial, tap
from tosajax.ops.routes.loop import sum_over
from tosajax.ops.routes.operands import Convolution


def slices(c: Convolution) -> jax.Array:
    """Adds all taps, unrolled; at most `loop.MAX_TAPS`, so int16 by 9-bit sums fit int32."""
    x, kernels, out = _padded(c), _kernels(c), c.out
    taps = zip(c.window.offsets(), kernels, strict=True)
    first, *rest = (_multiply(tap(x, at, out, c.window.stride), kernel) for at, kernel in taps)
    return _widened(c, sum(rest, start=first))


def loop(c: Convolution) -> jax.Array:
    """Adds one tap in each iteration of a loop."""
    x, kernels, out = _padded(c), _kernels(c), c.out
    single_tap = c.window._replace(size=(1, 1))

    def term(start: list[jax.Array], kernel: jax.Array | np.ndarray) -> jax.Array:
        values = dynamic_window(x, start, single_tap, out)
        return _widened(c, _multiply(tap(values, (0, 0), out, c.window.stride), kernel))

    dtype = np.int64 if c.x.dtype == np.int16 else kernels.dtype.type
    return sum_over(c.window.size, c.window.dilation, jnp.asarray(kernels), term, dtype)


def _padded(c: Convolution) -> jax.Array:
    return pad_spatial(c.x, c.window.pad, c.x_zp.reshape(()))


def _kernels(c: Convolution) -> jax.Array | np.ndarray:
    """The weights as [KH * KW, C, M]."""
    return c.weight.reshape(-1, *c.weight.shape[2:])


def _multiply(values: jax.Array, kernel: jax.Array | np.ndarray) -> jax.Array:
    return values.astype(kernel.dtype)[..., None] * kernel.reshape(1, 1, 1, *kernel.shape)


def _widened(c: Convolution, total: jax.Array) -> jax.Array:
    """The sums of an int16 convolution, widened to int48."""
    if c.x.dtype != np.int16:
        return total
    with _x64.scope():
        return _x64.widen(total)
