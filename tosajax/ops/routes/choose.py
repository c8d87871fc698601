"""Chooses the route of an operator, from its operands and the platform."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops.routes import (
    convolution,
    depthwise,
    dot,
    float_convolution,
    float_dot,
    float_patches,
    int16_dot,
    loop,
    patches,
    platform,
)
from tosajax.ops.routes.operands import Convolution
from tosajax.ops.routes.route import Route

# With fewer input channels than these, patches are faster than a convolution: the first number
# holds if the convolution must be padded with channels, the second if not.
_MIN_CHANNELS_TO_FILL = 12
_MIN_INPUT_CHANNELS = 8
# The most elements in one channel of a small result.
_FEW_RESULTS = 96


def of_integers(c: Convolution) -> Route:
    """The route of a convolution of int8 or int16; a route for CPUs if the platform is unknown."""
    oc, *kernel, ic = c.weight.shape
    if math.prod(loop.block_counts(c)) > 1:
        return Route("loop", loop.why(c), loop.run)
    by_patches = loop.run if c.known is None else patches.run
    if math.prod(kernel) == 1:
        return Route("dot", "one tap", by_patches)
    if c.known is None:
        return Route("patches", c.why_unknown, by_patches)
    if not platform.current().may_be_cpu:
        # XLA's convolutions of integers on other platforms are slow, missing, or (grouped) wrong.
        return Route("patches", "only XLA for CPUs convolves integers", by_patches)
    channels = ic * (kernel[0] if len(kernel) == 3 else 1)
    constant = f"constant weights, {channels} to {oc} channels"
    fast = max(channels, oc) >= convolution.MIN_CHANNELS
    if channels < (_MIN_INPUT_CHANNELS if fast else _MIN_CHANNELS_TO_FILL):
        return Route("patches", f"{channels} to {oc} channels are few", by_patches)
    return Route("convolution", constant, convolution.run)


def of_floats(c: Convolution) -> Route:
    """The route of a convolution of floats; a route for CPUs if the platform is unknown."""
    if c.spread:
        reason = "of the spread input"
        if platform.current().may_be_cpu:
            return Route("float convolution", reason, float_convolution.run)
        return Route("float patches", reason, float_patches.run)
    if not platform.current().may_be_cpu:
        return Route("float patches", "the platform is not a CPU", float_patches.run)
    if (taps := math.prod(c.window.size)) > loop.MAX_TAPS:
        reason = loop.too_many(taps)
    else:
        # XLA sums small results in an order that depends on the batch size.
        if math.prod(c.out) <= _FEW_RESULTS:
            return Route("float patches", "a small result", float_patches.run)
        if (few := c.x.shape[-1]) < _MIN_INPUT_CHANNELS:
            return Route("float patches", f"{few} input channels are few", float_patches.run)
        reason = "channels and results enough"
    return Route("float convolution", reason, float_convolution.run)


def of_depthwise(c: Convolution) -> Route:
    """The route of a depthwise convolution."""
    taps = math.prod(c.window.size)
    if taps <= loop.MAX_TAPS:
        return Route("slices", "one multiply-add for each tap", depthwise.slices)
    return Route("loop", loop.too_many(taps), depthwise.loop)


def of_products(a: jax.Array, b: jax.Array | np.ndarray) -> Route:
    """The route of a product of matrices, a function of (a, b, a_zp, b_zp)."""
    if a.dtype == np.int8:
        return Route("dot", "int8", dot.product)
    if a.dtype == np.int16:
        return Route("dots of bytes", "int16", int16_dot.product)
    return Route("float dot", "sums in float32", float_dot.product)


def of_transposed_products(a: jax.Array, b: jax.Array | np.ndarray) -> Route:
    """The route of a product by transposed matrices, a function of (a, b, a_zp, b_zp)."""
    route = of_products(a, b)
    return route._replace(function=functools.partial(_by_transposed, route.function))


def _by_transposed(
    product: Callable[..., jax.Array],
    a: jax.Array,
    b: jax.Array | np.ndarray,
    *zero_points: jax.Array | np.ndarray,
) -> jax.Array:
    """[N, H, C] times [D, W, C]; rows of all batches are of one where D is 1."""
    n, height, length = a.shape
    if b.shape[0] == n:
        return product(a, b.swapaxes(1, 2), *zero_points)
    rows = lax.reshape(a, (1, n * height, length))
    return lax.reshape(product(rows, b.swapaxes(1, 2), *zero_points), (n, height, b.shape[1]))


def convolve_integers(c: Convolution) -> jax.Array:
    """Computes a convolution by its route, in int32, or for int16 in int48 held in int64."""
    route = of_integers(c)
    return route(_four_channels(c))


def _four_channels(c: Convolution) -> Convolution:
    """Pads to four channels with zero points, which add 0: patches of 32-bit words are faster."""
    missing = 4 - c.x.shape[-1]
    if missing <= 0 or math.prod(c.window.size) == 1:
        return c

    def filled(x: jax.Array | np.ndarray, fill: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        widths = [(0, 0)] * (x.ndim - 1) + [(0, missing)]
        is_numpy = isinstance(x, np.ndarray) and isinstance(fill, np.ndarray)
        return (np if is_numpy else jnp).pad(x, widths, constant_values=fill.reshape(()))

    x = jnp.asarray(filled(c.x, c.x_zp))
    return dataclasses.replace(c, x=x, weight=filled(c.weight, c.weight_zp))
