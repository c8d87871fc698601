"""Ranges of tensors with masked elements: wide enough that a softmax leaves these out.

The numbers of a mask (see `masks`) are not in the range. Instead a masked element counts as the
greatest real one of its row less ln(512 n), of a row of n elements: the exponentials of n such
elements are together 2**-9 of the greatest, below half a step of INT8 probabilities. Where a mask
is at the upper end, it counts as the least real element of its row and ln(512 n) more.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from tosajax.quant.qparams import QParams, dequantize, quantize
from tosajax.quant.ranges.masks import REACHED
from tosajax.quant.ranges.observers import Observer, Range, scale_and_zero_point
from tosajax.quant.ranges.relevance import softmax_margin
from tosajax.quant.storages import Grid

_BITS = 8  # of the probabilities that masked elements are no part of


class Masked(NamedTuple):
    """The state of an observer that leaves out masked elements.

    Args:
      state: the state of the observer of the real elements.
      ends: the least and the greatest number that masked elements count as.
    """

    state: Any
    ends: Range


@functools.cache
def leaving_out(observer: Observer, axis: int) -> Observer:
    """An observer of a tensor that masks reach.

    Args:
      observer: the observer of the real elements.
      axis: the axis of a row, -1 for the last.
    """

    def init() -> Masked:
        return Masked(observer.init(), Range(jnp.float32(jnp.inf), jnp.float32(-jnp.inf)))

    def update(state: Masked, x: jax.Array) -> Masked:
        low, high = _ends(x, axis)
        ends = Range(jnp.minimum(state.ends.low, low), jnp.maximum(state.ends.high, high))
        return Masked(observer.update(state.state, jnp.where(_is_never(x), jnp.nan, x)), ends)

    def qparams(state: Masked, grid: Grid, symmetric: bool) -> tuple[jax.Array, jax.Array]:
        own = observer.qparams(state.state, grid, symmetric)
        return widened(own, state.ends, grid, symmetric)

    return Observer(init, update, qparams, observer.weighs_integers)


def widened(
    own_qparams: tuple[jax.Array, jax.Array], ends: Range, grid: Grid, symmetric: bool
) -> tuple[jax.Array, jax.Array]:
    """A scale and a zero point that hold the ends as well: themselves, where they do."""
    scale, zero_point = own_qparams
    low, high = (grid.qmin - zero_point) * scale, (grid.qmax - zero_point) * scale
    wider = jnp.minimum(low, ends.low), jnp.maximum(high, ends.high)
    others = scale_and_zero_point(*wider, grid, symmetric)
    is_wide = (low <= ends.low) & (high >= ends.high)
    return jax.tree.map(lambda own, other: jnp.where(is_wide, own, other), own_qparams, others)


def saturated(value: jax.Array, qparams: QParams) -> jax.Array:
    """A tensor whose masked elements are the real values of the ends of its range."""
    limit = np.float32(np.finfo(np.float32).max)
    ends = quantize(jnp.stack([-limit, limit]), lax.stop_gradient(qparams))
    low, high = dequantize(ends, qparams)
    return jnp.where(_is_never(value), jnp.where(value < 0, low, high), value)


def is_masked(floats: ArrayLike) -> np.ndarray:
    """Whether each element of a tensor of the float graph, which masks reach, is masked."""
    return np.abs(np.asarray(floats)) >= REACHED


def _is_never(x: jax.Array) -> jax.Array:
    return jnp.abs(x) >= REACHED


def _ends(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """The least and the greatest number that masked elements of a tensor count as.

    None of rows without a real element, nor without a masked one.
    """
    x = x if x.ndim else x[None]
    margin = jnp.float32(softmax_margin(x.shape[axis], _BITS))
    is_real = jnp.isfinite(x) & ~_is_never(x)
    greatest = jnp.max(x, axis=axis, where=is_real, initial=-jnp.inf)
    least = jnp.min(x, axis=axis, where=is_real, initial=jnp.inf)
    is_low, is_high = ((_is_never(x) & (x * s > 0)).any(axis) for s in (-1, 1))
    is_any = is_real.any(axis)
    low = jnp.min(greatest - margin, where=is_any & is_low, initial=jnp.inf)
    return low, jnp.max(least + margin, where=is_any & is_high, initial=-jnp.inf)
