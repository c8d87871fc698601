"""Definitions that the integer routes must equal, except depthwise and int16 dots; for tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops.routes.int8_dot import dimensions
from tosajax.ops.routes.operands import Convolution


def dot(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, b_axis: int = -2
) -> jax.Array:
    """Sums (a - a_zp) * (b - b_zp) over the last axis of `a` and `b_axis` of `b`: int32.

    For 8-bit operands, whose sums fit int32 wherever the result is defined.
    """
    wide_a = a.astype(jnp.int32) - a_zp.astype(jnp.int32).reshape((1,) * a.ndim)
    wide_b = b.astype(jnp.int32) - b_zp.astype(jnp.int32).reshape((1,) * b.ndim)
    return lax.dot_general(wide_a, wide_b, dimensions(a, b, b_axis))


def convolution(c: Convolution) -> jax.Array:
    """Convolves integers, in int32 or int64."""
    dtype = np.int64 if c.x.dtype == np.int16 else np.int32
    layout = ("NHWC", "OHWI", "NHWC") if c.x.ndim == 4 else ("NDHWC", "ODHWI", "NDHWC")
    with _x64.scope_of(dtype):

        def wide(value: jax.Array | np.ndarray, zp: jax.Array | np.ndarray) -> jax.Array:
            zero = lax.convert_element_type(zp, dtype).reshape((1,) * value.ndim)
            return lax.convert_element_type(value, dtype) - zero

        return lax.conv_general_dilated(
            wide(c.x, c.x_zp),
            wide(c.weight, c.weight_zp),
            c.window.stride,
            c.window.pad,
            rhs_dilation=c.window.dilation,
            dimension_numbers=layout,
        )
