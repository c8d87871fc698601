"""Route "float convolution": XLA:CPU's convolution, in float32."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.routes import float_patches
from tosajax.ops.routes.convolution import MIN_CHANNELS
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.platform import on_cpu


def run(c: Convolution) -> jax.Array:
    """Convolves floats in float32; by patches if the program is lowered for a GPU."""

    def directly(x: jax.Array, weight: jax.Array) -> jax.Array:
        return _convolve(_of(c, x, weight)) if c.spread else _convolve_filled(_of(c, x, weight))

    def by_patches(x: jax.Array, weight: jax.Array) -> jax.Array:
        return float_patches.run(_of(c, x, weight))

    return on_cpu(c.x, c.weight, cpu=directly, other=by_patches)


def _of(c: Convolution, x: jax.Array, weight: jax.Array | np.ndarray) -> Convolution:
    return dataclasses.replace(c, x=x, weight=weight)


def _convolve_filled(c: Convolution) -> jax.Array:
    """Convolves with the output channels padded to a number for which XLA:CPU has a fast kernel.

    XLA passes other convolutions to a library that sums the last rows in another order than the
    rest, so the bits of an example depend on its position in a batch. 3-D convolutions stay there.
    """
    weight, oc = c.weight, c.weight.shape[0]
    missing = MIN_CHANNELS - oc
    if c.x.ndim == 4 and max(c.x.shape[-1], oc) < MIN_CHANNELS:
        more = [(0, missing, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
        weight = lax.optimization_barrier(lax.pad(weight.astype(jnp.float32), np.float32(0), more))
    return _convolve(_of(c, c.x, weight))[..., :oc]


def _convolve(c: Convolution) -> jax.Array:
    layout = ("NHWC", "OHWI", "NHWC") if c.x.ndim == 4 else ("NDHWC", "ODHWI", "NDHWC")
    return lax.conv_general_dilated(
        c.x.astype(jnp.float32),
        jnp.asarray(c.weight.astype(jnp.float32)),
        c.window.stride,
        c.window.pad,
        lhs_dilation=c.spread or None,
        rhs_dilation=c.window.dilation,
        dimension_numbers=layout,
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
