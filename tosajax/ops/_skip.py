"""Padding of float convolutions that zeros cannot stand for.

Kernels multiply padding as zeros. By an infinite or NaN weight a zero gives NaN, but the
specification leaves padding out. Finite weights, all that networks have, need nothing more.
Constant weights are checked when they are traced; for others a program holds two ways, and takes
the second one if a weight is infinite or NaN.

The second way is one convolution of finite weights, to which padding adds zeros. Three channels
stand for each one of the input, and three batches for the one:

    channel  first  second              third               weight: finite  +inf     -inf      NaN
    0        input  0                   0                           itself  largest  -largest  0
    1        0      HUGE if input >= 0  HUGE if input <= 0          0       HUGE     0         HUGE
    2        0      HUGE if input <= 0  HUGE if input >= 0          0       0        HUGE      HUGE

HUGE * HUGE overflows, so the second has what is positive of products by infinite weights, the third
what is negative: both, where an input is zero or a weight NaN. The result is the first plus the
second less the third. One sum of all would not do: a fused multiply-add adds HUGE * HUGE to an
infinity before it overflows, and keeps the infinity where it should give NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.ops._follow import follow
from tosajax.ops._window import Window
from tosajax.ops.routes import platform as platforms
from tosajax.ops.routes.float_taps import convolve_by_taps
from tosajax.ops.routes.platform import Platform, on_cpu, tracing_for

_HUGE = np.float32(2.0**127)


def skip_padding(
    total: jax.Array,
    x: jax.Array,
    weight: jax.Array | np.ndarray,
    shape: Window,
    arrange: Callable[[jax.Array], jax.Array],
    *,
    spread: Sequence[int] = (),
    groups: int = 1,
) -> jax.Array:
    """A convolution that multiplied padding as zeros, as if it had left padding out.

    Args:
      total: float32, [N, ..., OC].
      x: the input, of floats, [N, ..., IC].
      weight: of floats; a NumPy array is a constant.
      shape: the window over the spread and padded input.
      arrange: makes [KH, KW, 3 * IC / groups, OC], of two dimensions or three, of the axes of
        `weight` with one more of 3; a function of a module, by which JAX keeps programs.
      spread: how far apart the elements of `x` are laid, zeros between them, by axis; else 1.
      groups: of channels that are convolved apart.

    Returns:
      The type, shape and gradient of `total`.
    """
    steps = tuple(spread) or (1,) * len(shape.size)
    if not any(map(any, shape.pad)) and max(steps) == 1:
        return total
    if isinstance(weight, np.ndarray):
        if np.isfinite(weight.astype(np.float32)).all():
            return total
        weight = jnp.asarray(weight)
    operands = lax.stop_gradient((total, x, weight))
    options = (shape, steps, arrange, groups, platforms.current())
    return follow(_skipped_if_needed(*operands, *options), total)


# Jitted, so that layers of one shape are traced once, and calls outside `jit` compile once.
@functools.partial(jax.jit, static_argnames=("shape", "spread", "arrange", "groups", "platform"))
def _skipped_if_needed(
    total: jax.Array,
    x: jax.Array,
    weight: jax.Array,
    shape: Window,
    spread: tuple[int, ...],
    arrange: Callable[[jax.Array], jax.Array],
    groups: int,
    platform: Platform,
) -> jax.Array:
    def directly(channels: jax.Array, kernels: jax.Array) -> jax.Array:
        # With dimensions in this order XLA:CPU calls its library inside a branch; with others it
        # compiles slow loops of its own.
        sides = "DHW"[-len(shape.size) :]
        return lax.conv_general_dilated(
            channels,
            kernels,
            shape.stride,
            shape.pad,
            lhs_dilation=spread,
            rhs_dilation=shape.dilation,
            dimension_numbers=(f"N{sides}C", f"{sides}IO", f"N{sides}C"),
            feature_group_count=groups,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )

    def skipped() -> jax.Array:
        by_taps = functools.partial(convolve_by_taps, window=shape, spread=spread, groups=groups)
        operands = _channels(x), arrange(_kernels(weight))
        with tracing_for(platform):
            result = on_cpu(*operands, cpu=directly, other=by_taps)
        finite, positive, negative = result.reshape(3, *total.shape)
        return finite + positive - negative

    return lax.cond(_all_finite(weight), lambda: total, skipped)


@jax.custom_batching.custom_vmap
def _all_finite(weight: jax.Array) -> jax.Array:
    # XLA:CPU compiles this ten times faster than all(isfinite).
    return jnp.max(jnp.abs(weight.astype(jnp.float32)), initial=0) < jnp.inf


@_all_finite.def_vmap
def _(size: int, batched: list[bool], weight: jax.Array) -> tuple[jax.Array, bool]:
    # One answer for all examples, so that the other way is not computed for nothing.
    return _all_finite(weight), False


def _channels(x: jax.Array) -> jax.Array:
    """The three batches, float32 [3 * N, ..., 3 * IC], the three channels side by side."""
    shape, zero = (3, *x.shape), np.float32(0)
    x = jnp.broadcast_to(x.astype(jnp.float32), shape)
    batch = lax.broadcasted_iota(jnp.int32, shape, 0)
    signed = jnp.where(batch == 2, -x, x)
    infinite = (jnp.where((batch > 0) & test, _HUGE, zero) for test in (signed >= 0, signed <= 0))
    channels = _interleave(jnp.where(batch == 0, x, zero), *infinite)
    return channels.reshape(-1, *shape[2:-1], 3 * shape[-1])


def _kernels(weight: jax.Array) -> jax.Array:
    """Finite; float32, the axes of `weight` and one of 3."""
    weight = weight.astype(jnp.float32)
    rest = weight - jnp.nan_to_num(weight)
    special = [jnp.where((sign * rest > 0) | jnp.isnan(rest), _HUGE, 0) for sign in (1, -1)]
    return _interleave(jnp.nan_to_num(weight), *special)


def _interleave(*parts: jax.Array) -> jax.Array:
    """A stack along a new last axis, compiled faster."""
    shape = (*parts[0].shape, len(parts))
    which = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    return lax.select_n(which, *(jnp.broadcast_to(part[..., None], shape) for part in parts))
