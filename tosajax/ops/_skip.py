"""Padding of float convolutions whose weights are infinite or NaN.

XLA's kernels multiply padding as zeros. Zero times an infinite or NaN weight is NaN, but the
specification leaves padding out. Finite weights, the only ones in real networks, need nothing more.
Constant weights are checked while they are traced; for traced weights a program holds both
computations, and runs the second if a weight is infinite or NaN.

The second computation is one convolution by finite weights, in which padding adds zeros. It has
three channels for each channel of the input, and three batches for each batch:

    channel  first  second              third               weight: finite  +inf     -inf      NaN
    0        input  0                   0                           itself  largest  -largest  0
    1        0      HUGE if input >= 0  HUGE if input <= 0          0       HUGE     0         HUGE
    2        0      HUGE if input <= 0  HUGE if input >= 0          0       0        HUGE      HUGE

HUGE * HUGE overflows to infinity. So the second batch is infinite where a product by an infinite
weight is positive, the third where one is negative, and both where the input is zero or the weight
is NaN. The result is first + second - third. A single sum of all products would be wrong: a fused
multiply-add adds HUGE * HUGE to an infinity before the product overflows, and keeps the infinity
where the result is NaN.
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
    """Corrects a convolution that multiplied padding as zeros: the result leaves padding out.

    Args:
      total: the result of that convolution; float32, [N, ..., OC].
      x: the input; floats, [N, ..., IC].
      weight: floats; a NumPy array is a constant.
      shape: the window over the spread and padded input.
      arrange: reorders [*axes of `weight`, 3] to [KH, KW, 3 * IC / groups, OC], with one more
        axis for 3-D. A function at the top of a module: it is a key of JAX's cache of programs.
      spread: by axis, the distance of the elements of `x` after zeros are put between them;
        by default 1.
      groups: the number of groups of channels, which are convolved separately.

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


# Jitted: layers of the same shape are traced once, and calls outside `jit` compile once.
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
        # With this order of dimensions, XLA:CPU calls its library even inside a branch; with other
        # orders it compiles slow loops.
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
    # One answer for all examples: otherwise `lax.cond` becomes a select, which computes both.
    return _all_finite(weight), False


def _channels(x: jax.Array) -> jax.Array:
    """The three batches of inputs, float32 [3 * N, ..., 3 * IC], each three channels adjacent."""
    shape, zero = (3, *x.shape), np.float32(0)
    x = jnp.broadcast_to(x.astype(jnp.float32), shape)
    batch = lax.broadcasted_iota(jnp.int32, shape, 0)
    signed = jnp.where(batch == 2, -x, x)
    infinite = (jnp.where((batch > 0) & test, _HUGE, zero) for test in (signed >= 0, signed <= 0))
    channels = _interleave(jnp.where(batch == 0, x, zero), *infinite)
    return channels.reshape(-1, *shape[2:-1], 3 * shape[-1])


def _kernels(weight: jax.Array) -> jax.Array:
    """The finite weights of the three channels; float32, [*axes of `weight`, 3]."""
    weight = weight.astype(jnp.float32)
    rest = weight - jnp.nan_to_num(weight)
    special = [jnp.where((sign * rest > 0) | jnp.isnan(rest), _HUGE, 0) for sign in (1, -1)]
    return _interleave(jnp.nan_to_num(weight), *special)


def _interleave(*parts: jax.Array) -> jax.Array:
    """Stacks arrays along a new last axis; compiles faster than `jnp.stack`."""
    shape = (*parts[0].shape, len(parts))
    which = lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1)
    return lax.select_n(which, *(jnp.broadcast_to(part[..., None], shape) for part in parts))
