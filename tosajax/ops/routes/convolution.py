"""Route "convolution": XLA:CPU's convolution of int8 by constant weights.

This is XLA's only fast convolution of integers. It needs constant weights in the layout HWIO, and
enough channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops._window import Window
from tosajax.ops.routes import patches
from tosajax.ops.routes.constant import Kernel, convolve
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import on_cpu

# XLA:CPU convolves fast with at least this many input or output channels.
MIN_CHANNELS = 17
# With fewer of both, output channels are padded to this many.
_FILLED_CHANNELS = 20


def run(c: Convolution) -> jax.Array:
    """Convolves int8 or int16 by constant weights."""
    return convolve(c, Kernel(_sums, _pads))


def _sums(x: jax.Array, weight: np.ndarray, window: Window) -> jax.Array:
    oc = weight.shape[-1]
    if max(weight.shape[-2:]) < MIN_CHANNELS:
        weight = np.pad(weight, [(0, 0)] * 3 + [(0, _FILLED_CHANNELS - oc)])

    def directly(x: jax.Array, weight: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            weight,
            window.stride,
            window.pad,
            rhs_dilation=window.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=jnp.int32,
        )[..., :oc]

    def by_patches(x: jax.Array, weight: jax.Array) -> jax.Array:
        return patches.sums(x, weight[..., :oc], window)

    return on_cpu(x, jnp.asarray(weight), cpu=directly, other=by_patches)


def _pads(lengths: Sequence[int], window: Window) -> bool:
    """Whether the kernel pads: its result must not be larger than its input."""
    out = window.out((1, *lengths, 1))
    return all(o <= i for o, i in zip(out, lengths, strict=True))
