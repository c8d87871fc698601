"""int16 dots in int48, held in int64: int16 operands are split into bytes for int8 dots."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops.routes.dot import dot, is_known_zero, sums_of_a, sums_of_b
from tosajax.ops.routes.operands import INT8_CHUNK


def dot_int16_int8(
    a: jax.Array, b: jax.Array | np.ndarray, b_zp: jax.Array | np.ndarray, *, b_axis: int = -2
) -> jax.Array:
    """Sums a * (b - b_zp) of int16 `a` and int8 `b`, in int48 held in int64."""
    both = bytes_of(a, -2)

    def part(start: int, end: int) -> jax.Array:
        x, y = both[..., start:end], lax.slice_in_dim(jnp.asarray(b), start, end, axis=b_axis)
        products, sums = dot(x, y, b_axis=b_axis), sums_of_b(y, b_axis)
        with _x64.scope():
            # a = 256 * high + low + 128
            high, low = jnp.split(_x64.widen(products), 2, axis=-2)
            total = high * np.int64(256) + low + _x64.widen(sums) * np.int64(128)
        if is_known_zero(b_zp):
            return total
        x_sums = sums_of_a(x)
        with _x64.scope():
            high, low = jnp.split(_x64.widen(x_sums), 2, axis=-2)
            zp = _x64.widen(jnp.asarray(b_zp)).reshape((1,) * b.ndim)
            return total - zp * (high * np.int64(256) + low + np.int64(128 * (end - start)))

    return _chunked(part, a.shape[-1])


def dot_int16(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiplies int16 [..., M, K] by [..., K, N], in int48 held in int64."""
    a_halves, b_halves = bytes_of(a, -2), bytes_of(b, -1)

    def part(start: int, end: int) -> jax.Array:
        x, y = a_halves[..., start:end], b_halves[..., start:end, :]
        products, x_sums, y_sums = dot(x, y), sums_of_a(x), sums_of_b(y, -2)
        with _x64.scope():
            # a = a' + 128 with a' = 256 * high + low, and the same for b.
            def join(value: jax.Array, axis: int) -> jax.Array:
                high, low = jnp.split(value, 2, axis=axis)
                return high * np.int64(256) + low

            total = join(join(_x64.widen(products), -2), -1)
            sums = join(_x64.widen(x_sums), -2) + join(_x64.widen(y_sums), -1)
            return total + sums * np.int64(128) + np.int64(128 * 128 * (end - start))

    return _chunked(part, a.shape[-1])


def product(
    a: jax.Array,
    b: jax.Array | np.ndarray,
    a_zp: jax.Array | np.ndarray,
    b_zp: jax.Array | np.ndarray,
) -> jax.Array:
    """Multiplies int16 [N, H, C] by [N, C, W]; the zero points are 0."""
    del a_zp, b_zp
    return dot_int16(a, jnp.asarray(b))


def bytes_of(x: jax.Array, axis: int) -> jax.Array:
    """The high and low int8 of int16, concatenated along `axis`: x = 256 * high + low + 128."""
    high = (x >> np.int16(8)).astype(jnp.int8)
    low = ((x & np.int16(0xFF)) - np.int16(128)).astype(jnp.int8)
    return jnp.concatenate([high, low], axis=axis)


def _chunked(part: Callable[[int, int], jax.Array], length: int) -> jax.Array:
    """Sums `part(start, end)` over chunks of an axis, short enough for int32 sums."""
    total = part(0, min(length, INT8_CHUNK))
    for start in range(INT8_CHUNK, length, INT8_CHUNK):
        with _x64.scope():
            total = total + part(start, min(length, start + INT8_CHUNK))
    return total
