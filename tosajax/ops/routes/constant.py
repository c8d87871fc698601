"""Convolutions of integers by constant weights, on an int8 kernel that pads with zeros.

Zero points and the bytes of int16 are folded into an array that is computed at trace time: for each
window, the sum of the weights that lie inside the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops._window import Window, pad_spatial
from tosajax.ops.routes.int16_dot import bytes_of
from tosajax.ops.routes.operands import Convolution

# Up to this size, correcting the border of the result costs less than padding the input.
_MAX_BORDER_BYTES = 2**18


class Kernel(NamedTuple):
    """A convolution of int8 by constant int8.

    `sums` takes [N, IH, IW, IC], [KH, KW, IC, OC] and a window, and returns int32 [N, OH, OW, OC].
    """

    sums: Callable[[jax.Array, np.ndarray, Window], jax.Array]
    pads: Callable[[Sequence[int], Window], bool]  # whether it pads inputs of these sizes itself


def convolve(c: Convolution, kernel: Kernel) -> jax.Array:
    """Computes a convolution of constant weights.

    Raises:
      ValueError: the weights are not constant.
    """
    if c.known is None:
        raise ValueError("the weights of the convolution are not constants that int8 holds")
    x, weight, window = c.x, c.known, c.window
    if x.ndim == 5:
        x, weight, window = depth_to_channels(x, weight, c.x_zp, window)
    if not _pads_natively(x, len(weight), window, kernel):
        x = pad_spatial(x, window.pad, jnp.asarray(c.x_zp).reshape(()))
        window = window._replace(pad=((0, 0), (0, 0)))
    border = border_of(weight, x.shape, window)
    hwio = np.ascontiguousarray(weight.transpose(1, 2, 3, 0))
    if x.dtype == np.int8:
        total = kernel.sums(x, hwio, window)
        offset = border * c.x_zp.astype(np.int32).reshape(1, 1, 1, 1)
        is_numpy = isinstance(offset, np.ndarray)
        total = total if is_numpy and not offset.any() else total - offset
    else:
        high, low = jnp.split(kernel.sums(bytes_of(x, 0), hwio, window), 2)
        with _x64.scope():
            # x = 256 * high + low + 128, except in the padding.
            total = _x64.widen(high) * np.int64(256) + _x64.widen(low)
            total = total + _x64.widen(jnp.asarray(border)) * np.int64(128)
    return total.reshape(c.x.shape[0], *c.out, len(weight))


def border_of(weight: np.ndarray, lengths: Sequence[int], window: Window) -> np.ndarray:
    """The sum of the weights of each window that lie inside the input; int32, [1, OH, OW, OC].

    OH and OW are 1 if the sum is the same for all windows.
    """
    inside = []
    for length, n, size, stride, dilation, (low, _) in zip(
        lengths[1:-1], window.out(lengths), *window, strict=True
    ):
        at = np.arange(n)[:, None] * stride - low + np.arange(size) * dilation
        rows = (at >= 0) & (at < length)
        inside.append((rows[:1] if rows.all() else rows).astype(np.int64))
    sums = np.einsum("okl,ak,bl->abo", weight.sum(axis=-1, dtype=np.int64), *inside)
    return sums.astype(np.int32)[None]


def depth_to_channels(
    x: jax.Array, weight: jax.Array | np.ndarray, x_zp: jax.Array | np.ndarray, window: Window
) -> tuple[jax.Array, Any, Window]:
    """Converts a convolution over depth, height and width to one over height and width.

    Constant weights stay constant.
    """
    depth = window.out(x.shape)[0]
    x = pad_spatial(x, (window.pad[0], (0, 0), (0, 0)), jnp.asarray(x_zp).reshape(()))
    stride, last = window.stride[0], (depth - 1) * window.stride[0] + 1
    starts = range(0, window.size[0] * window.dilation[0], window.dilation[0])
    slices = [lax.slice_in_dim(x, at, at + last, stride, axis=1) for at in starts]
    x = jnp.concatenate(slices, axis=-1)
    moved = weight.transpose(0, 2, 3, 1, 4)
    flat = moved.reshape(*moved.shape[:-2], -1)
    plane = Window(window.size[1:], window.stride[1:], window.dilation[1:], window.pad[1:])
    return x.reshape(-1, *x.shape[2:]), flat, plane


def _pads_natively(x: jax.Array, oc: int, window: Window, kernel: Kernel) -> bool:
    """Whether the kernel pads with zeros; if not, the input is padded with its zero point."""
    border_bytes = 4 * math.prod(window.out(x.shape)) * oc
    return kernel.pads(x.shape[1:-1], window) and border_bytes <= _MAX_BORDER_BYTES
