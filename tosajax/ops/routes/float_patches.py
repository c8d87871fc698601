"""Route "float patches": a convolution in float32 as a dot of patches.

GPUs use it for all convolutions: other algorithms there spread an infinity to results outside its
window.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tosajax.ops._window import pad_spatial, patches_of
from tosajax.ops.routes import loop
from tosajax.ops.routes.float_dot import dot_rows
from tosajax.ops.routes.float_taps import convolve_by_taps, spread_out
from tosajax.ops.routes.operands import Convolution


def run(c: Convolution) -> jax.Array:
    """Convolves floats, in float32."""
    x, weight = c.x.astype(jnp.float32), c.weight.astype(jnp.float32)
    if math.prod(c.window.size) > loop.MAX_TAPS:
        return convolve_by_taps(x, jnp.moveaxis(weight, 0, -1), c.window, c.spread)
    x = spread_out(x, c.spread)
    out, oc = c.window.out(x.shape), weight.shape[0]
    padded = pad_spatial(x, c.window.pad, jnp.zeros((), jnp.float32))
    patches = patches_of(padded, c.window, out)
    total = dot_rows(patches, weight.reshape(oc, -1))
    return total.reshape(x.shape[0], *out, oc)
