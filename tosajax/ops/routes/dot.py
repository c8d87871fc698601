"""int8 dots: the platform's kernel, with zero points folded algebraically.

XLA multiplies int8 matrices fast, int16 and int32 matrices in a plain loop. So MATMUL, patches and
blocks of integers are computed by `dot`. Additions in int32 may wrap, which is harmless: sums are
correct modulo 2**32 in any order, and defined results fit int32.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.ops.routes import bfloat16_dot, int8_dot, platform


def dot(a: jax.Array, b: jax.Array | np.ndarray, *, b_axis: int = -2) -> jax.Array:
    """Multiplies int8 [..., M, K] by [..., K, N], or [..., N, K] if b_axis is -1, in int32."""
    return platform.on_cpu(
        a,
        jnp.asarray(b),
        cpu=functools.partial(int8_dot.dot, b_axis=b_axis),
        other=functools.partial(bfloat16_dot.dot, b_axis=b_axis),
    )


def dot_zp(
    a: jax.Array,
    b: jax.Array | np.ndarray,
    a_zp: jax.Array | np.ndarray,
    b_zp: jax.Array | np.ndarray,
    *,
    b_axis: int = -2,
) -> jax.Array:
    """`definition.dot` of int8 operands and zero points of shape [1], by int8 dots.

    A zero point that is a NumPy array of 0 costs nothing.
    """
    length = a.shape[-1]
    has_a, has_b = not is_known_zero(a_zp), not is_known_zero(b_zp)
    if has_a and a.shape[-2] == 1 and not isinstance(b, np.ndarray):
        # A vector is padded to two rows anyway; a second row of ones gives the sums of b.
        both = dot(jnp.concatenate([a, jnp.ones_like(a)], axis=-2), b, b_axis=b_axis)
        result, b_sums = both[..., :1, :], both[..., 1:, :]
    else:
        result = dot(a, b, b_axis=b_axis)
        b_sums = sums_of_b(b, b_axis) if has_a else None
    a_wide = jnp.asarray(a_zp).astype(jnp.int32).reshape((1,) * a.ndim)
    b_wide = jnp.asarray(b_zp).astype(jnp.int32).reshape((1,) * b.ndim)
    if has_b:
        result = result - b_wide * sums_of_a(a)
    if b_sums is not None:
        result = result - a_wide * (b_sums - jnp.int32(length) * b_wide)
    return result


def product(
    a: jax.Array,
    b: jax.Array | np.ndarray,
    a_zp: jax.Array | np.ndarray,
    b_zp: jax.Array | np.ndarray,
) -> jax.Array:
    """Multiplies int8 [N, H, C] by [N, C, W], in int32."""
    if isinstance(b, np.ndarray):  # [N, W, C], which is faster for few rows
        return dot_zp(a, b.swapaxes(1, 2).copy(), a_zp, b_zp, b_axis=-1)
    return dot_zp(a, b, a_zp, b_zp)


def sums_of_a(a: jax.Array) -> jax.Array:
    """Sums int8 over the last axis, whose size becomes 1."""
    if a.shape[-2] <= 2:
        return jnp.sum(a, axis=-1, keepdims=True, dtype=jnp.int32)
    # For many rows a dot is faster; it needs two columns.
    return dot(a, jnp.ones((*a.shape[:-2], 2, a.shape[-1]), jnp.int8), b_axis=-1)[..., :1]


def sums_of_b(b: jax.Array | np.ndarray, b_axis: int) -> jax.Array:
    """Sums int8 over `b_axis`; [..., 1, N]."""
    if isinstance(b, np.ndarray):
        sums = b.sum(axis=b_axis, keepdims=True, dtype=np.int32)
        return jnp.asarray(sums if b_axis == -2 else np.swapaxes(sums, -1, -2))
    if b.shape[-3 - b_axis] <= 2:
        sums = jnp.sum(b, axis=b_axis, keepdims=True, dtype=jnp.int32)
        return sums if b_axis == -2 else jnp.swapaxes(sums, -1, -2)
    ones = jnp.ones((*b.shape[:-2], 2, b.shape[b_axis]), jnp.int8)
    return dot(ones, b, b_axis=b_axis)[..., :1, :]


def is_known_zero(zero_point: jax.Array | np.ndarray) -> bool:
    """Whether a zero point is a constant 0."""
    return isinstance(zero_point, np.ndarray) and not zero_point.any()
