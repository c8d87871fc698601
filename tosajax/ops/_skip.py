"""Padding that convolutions of floats skip, where zeros would not do.

Kernels multiply padding as zeros. By an infinite or NaN weight a zero gives NaN, but the
specification leaves padding out. Finite weights, all that networks have, need nothing more, and
constants are known to be finite; for others a program holds both ways, and runs the second one
where it must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops import _exact_conv, _window
from tosajax.ops._follow import follow
from tosajax.ops._window import Window


class Taps(NamedTuple):
    """How a convolution is a sum of products, one for each tap.

    Args:
      of: gives the taps of the weight, [taps, ...].
      multiply: float32, [N, ..., OC], of [N, ..., IC] and one tap.
    """

    of: Callable[[jax.Array], jax.Array]
    multiply: Callable[[jax.Array, jax.Array], jax.Array]


def skip_padding(
    total: jax.Array,
    x: jax.Array,
    weight: jax.Array | np.ndarray,
    shape: Window,
    taps: Taps,
    *,
    spread: Sequence[int] = (),
    padded: bool = False,
) -> jax.Array:
    """A convolution that multiplied padding as zeros, as if it had left padding out.

    Args:
      total: float32, [N, ..., OC].
      x: the input, of floats, [N, ..., IC].
      weight: of floats; a NumPy array is a constant.
      shape: the window over the spread and padded input.
      taps: the convolution.
      spread: how far apart the elements of `x` are laid, zeros between them, by axis; else 1.
      padded: whether `x` is padded already.

    Returns:
      The type, shape and gradient of `total`.
    """
    spread = spread or (1,) * len(shape.size)
    if not any(map(any, shape.pad)) and max(spread) == 1:
        return total

    def by_taps(x: jax.Array, weight: jax.Array) -> jax.Array:
        return _by_taps(*_laid_out(x, shape, spread, padded), weight, shape, taps)

    if isinstance(weight, np.ndarray):
        if np.isfinite(weight.astype(np.float32)).all():
            return total
        return follow(by_taps(x, jnp.asarray(weight)), total)
    fixed, x, weight = lax.stop_gradient((total, x, weight))
    # A loop of at most one round: XLA would copy `total` through a conditional.
    _, skipped = lax.while_loop(
        lambda state: jnp.logical_not(state[0]),
        lambda state: (jnp.ones_like(state[0]), by_taps(x, weight)),
        (_all_finite(weight), fixed),
    )
    return follow(skipped, total)


@jax.custom_batching.custom_vmap
def _all_finite(weight: jax.Array) -> jax.Array:
    return jnp.isfinite(weight.astype(jnp.float32)).all()


@_all_finite.def_vmap
def _(size: int, batched: list[bool], weight: jax.Array) -> tuple[jax.Array, bool]:
    # One answer for all examples, so that the loop ends for all of them at once.
    return _all_finite(weight), False


def _laid_out(
    x: jax.Array, shape: Window, spread: Sequence[int], padded: bool
) -> tuple[jax.Array, jax.Array]:
    """The padded and spread input, float32, and where it is not padding, bool [1, ..., 1]."""
    added = [sum(pad) if padded else 0 for pad in shape.pad]
    lengths = [length - more for length, more in zip(x.shape[1:-1], added, strict=True)]
    margins = [(*pad, step - 1) for pad, step in zip(shape.pad, spread, strict=True)]
    config = [(0, 0, 0), *margins, (0, 0, 0)]
    real = lax.pad(jnp.ones((1, *lengths, 1), jnp.bool_), np.False_, config)
    x = x.astype(jnp.float32)
    return x if padded else lax.pad(x, np.float32(0), config), real


def _by_taps(
    x: jax.Array, real: jax.Array, weight: jax.Array, shape: Window, taps: Taps
) -> jax.Array:
    shape = shape._replace(pad=((0, 0),) * len(shape.size))
    out, one = shape.out(x.shape), shape._replace(size=(1,) * len(shape.size))

    def part(a: jax.Array, start: list[jax.Array]) -> jax.Array:
        window = _window.dynamic_window(a, start, one, out)
        return _window.tap(window, (0,) * len(out), out, shape.stride)

    def term(start: list[jax.Array], tap: jax.Array) -> jax.Array:
        product = taps.multiply(part(x, start), tap.astype(jnp.float32))
        return jnp.where(part(real, start), product, jnp.float32(0))

    return _exact_conv.sum_over(shape.size, shape.dilation, taps.of(weight), term, np.float32)
