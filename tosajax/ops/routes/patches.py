"""Route "patches": one int8 dot of constant weights and patches, the elements of each window.

With a single tap the patches are the input itself, and the route is called "dot".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.ops._window import Window, pad_spatial, patches_of
from tosajax.ops.routes.constant import Kernel, convolve
from tosajax.ops.routes.dot import dot
from tosajax.ops.routes.operands import Convolution


def run(c: Convolution) -> jax.Array:
    """Convolves int8 or int16 by constant weights."""
    return convolve(c, Kernel(sums, pads=lambda *_: False))


def sums(x: jax.Array, weight: jax.Array | np.ndarray, window: Window) -> jax.Array:
    """Convolves int8 [N, IH, IW, IC] by [KH, KW, IC, OC] in int32; padding is 0."""
    oc, out = weight.shape[-1], window.out(x.shape)
    padded = pad_spatial(x, window.pad, jnp.zeros((), jnp.int8))
    total = dot(patches_of(padded, window, out), weight.reshape(-1, oc))
    return total.reshape(x.shape[0], *out, oc)
