"""The exact routes of integer dots.

XLA multiplies int8 matrices fast, and almost nothing else of integers: int32 and int16 dots fall
to a plain loop. So everything here becomes `dot`, int8 x int8 -> int32. Zero points are folded
algebraically, int16 operands are split into bytes.
Additions in int32 wrap, which is harmless: a sum is right modulo 2**32 whatever its order, and the
results that are defined fit.

`dot_definition` is what all of it must equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops import _onednn, _platform

# Products of int8 are at most 2**14, so that 131071 of them add up to less than 2**31.
INT8_CHUNK = (2**31 - 1) // 2**14
# So many add up to 2**24 at most, to where float32 holds every integer.
_FLOAT_CHUNK = 2**24 // 2**14


def dot_definition(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, b_axis: int = -2
) -> jax.Array:
    """Sums (a - a_zp) * (b - b_zp) over the last axis of `a` and `b_axis` of `b`, in int32.

    The definition, for operands of 8 bits: slow, and the reference of `dot_zp`.
    """
    wide_a = a.astype(jnp.int32) - a_zp.astype(jnp.int32).reshape((1,) * a.ndim)
    wide_b = b.astype(jnp.int32) - b_zp.astype(jnp.int32).reshape((1,) * b.ndim)
    return lax.dot_general(wide_a, wide_b, _dimensions(a, b, b_axis))


def dot(a: jax.Array, b: jax.Array | np.ndarray, *, b_axis: int = -2) -> jax.Array:
    """int8 [..., M, K] times int8 [..., K, N], or [..., N, K] with b_axis=-1, in int32."""
    if by_onednn(a, b, b_axis=b_axis):
        return _onednn.dot(a, b, transposed=b_axis == -1)
    return _platform.on_cpu(
        a,
        jnp.asarray(b),
        cpu=functools.partial(_dot_int8, b_axis=b_axis),
        other=functools.partial(_dot_bfloat16, b_axis=b_axis),
    )


def _dot_int8(a: jax.Array, b: jax.Array, *, b_axis: int) -> jax.Array:
    n_axis = -3 - b_axis
    m, n = a.shape[-2], b.shape[n_axis]
    # A vector takes the slow path, two rows the fast one.
    a = _pad_to_two(a, -2) if m == 1 else a
    b = _pad_to_two(b, n_axis) if n == 1 else b
    result = lax.dot_general(a, b, _dimensions(a, b, b_axis), preferred_element_type=jnp.int32)
    return result[..., :m, :n] if 1 in (m, n) else result


def _dot_bfloat16(a: jax.Array, b: jax.Array, *, b_axis: int) -> jax.Array:
    """By products of bfloat16, which holds every int8, with exact sums in float32.

    XLA:GPU returns twice the sum of int8 products where it compiles them with Triton (seen with
    jaxlib 0.11.2 on an H100).
    """

    def part(at: slice) -> jax.Array:
        sums = lax.dot_general(
            _take(a, a.ndim - 1, at).astype(jnp.bfloat16),
            _take(b, b.ndim + b_axis, at).astype(jnp.bfloat16),
            _dimensions(a, b, b_axis),
            preferred_element_type=jnp.float32,
        )
        return sums.astype(jnp.int32)

    length = a.shape[-1]
    total = part(slice(0, min(length, _FLOAT_CHUNK)))
    for start in range(_FLOAT_CHUNK, length, _FLOAT_CHUNK):
        total = total + part(slice(start, min(length, start + _FLOAT_CHUNK)))
    return total


def by_onednn(a: jax.Array, b: jax.Array | np.ndarray, *, b_axis: int = -2) -> bool:
    """Whether `dot` has oneDNN multiply."""
    platform = _platform.current()
    macs = math.prod(a.shape) * b.shape[-3 - b_axis] * platform.examples
    if not platform.onednn or not _onednn.pays(macs):
        return False
    return _onednn.pays(macs // _onednn.parts_of(b, transposed=b_axis == -1))


def dot_zp(
    a: jax.Array,
    b: jax.Array | np.ndarray,
    a_zp: jax.Array | np.ndarray,
    b_zp: jax.Array | np.ndarray,
    *,
    b_axis: int = -2,
) -> jax.Array:
    """`dot_definition` of int8 operands, with zero points of shape [1], by int8 dots.

    A zero point that is a NumPy array of zero costs nothing.
    """
    length = a.shape[-1]
    has_a, has_b = not _known_zero(a_zp), not _known_zero(b_zp)
    if has_a and a.shape[-2] == 1 and not isinstance(b, np.ndarray):
        # The second row that a vector needs anyway gives the sums of b.
        both = dot(jnp.concatenate([a, jnp.ones_like(a)], axis=-2), b, b_axis=b_axis)
        result, b_sums = both[..., :1, :], both[..., 1:, :]
    else:
        result = dot(a, b, b_axis=b_axis)
        b_sums = _sums_of_b(b, b_axis) if has_a else None
    a_wide = jnp.asarray(a_zp).astype(jnp.int32).reshape((1,) * a.ndim)
    b_wide = jnp.asarray(b_zp).astype(jnp.int32).reshape((1,) * b.ndim)
    if has_b:
        result = result - b_wide * _sums_of_a(a)
    if b_sums is not None:
        result = result - a_wide * (b_sums - jnp.int32(length) * b_wide)
    return result


def dot_int16_int8(
    a: jax.Array, b: jax.Array | np.ndarray, b_zp: jax.Array | np.ndarray, *, b_axis: int = -2
) -> jax.Array:
    """Sums a * (b - b_zp) for int16 `a` and int8 `b`, in int48 held in int64."""
    halves = bytes_of(a, -2)

    def part(at: slice) -> jax.Array:
        x, y = halves[..., at], _take(jnp.asarray(b), b_axis, at)
        length = x.shape[-1]
        products, sums = dot(x, y, b_axis=b_axis), _sums_of_b(y, b_axis)
        with _x64.scope():
            # a = 256 * high + low + 128
            high, low = jnp.split(_x64.widen(products), 2, axis=-2)
            total = high * np.int64(256) + low + _x64.widen(sums) * np.int64(128)
        if _known_zero(b_zp):
            return total
        x_sums = _sums_of_a(x)
        with _x64.scope():
            high, low = jnp.split(_x64.widen(x_sums), 2, axis=-2)
            zp = _x64.widen(jnp.asarray(b_zp)).reshape((1,) * b.ndim)
            return total - zp * (high * np.int64(256) + low + np.int64(128 * length))

    return _chunked(part, a.shape[-1])


def dot_int16(a: jax.Array, b: jax.Array) -> jax.Array:
    """int16 [..., M, K] times int16 [..., K, N], in int48 held in int64."""
    a_halves, b_halves = bytes_of(a, -2), bytes_of(b, -1)

    def part(at: slice) -> jax.Array:
        x, y = a_halves[..., at], b_halves[..., at, :]
        length = x.shape[-1]
        products, x_sums, y_sums = dot(x, y), _sums_of_a(x), _sums_of_b(y, -2)
        with _x64.scope():
            # a = a' + 128 with a' = 256 * high + low, and b alike.
            def join(value: jax.Array, axis: int) -> jax.Array:
                high, low = jnp.split(value, 2, axis=axis)
                return high * np.int64(256) + low

            total = join(join(_x64.widen(products), -2), -1)
            sums = join(_x64.widen(x_sums), -2) + join(_x64.widen(y_sums), -1)
            return total + sums * np.int64(128) + np.int64(128 * 128 * length)

    return _chunked(part, a.shape[-1])


def bytes_of(x: jax.Array, axis: int) -> jax.Array:
    """int16 as high and low int8, one after the other on `axis`: x = 256 * high + low + 128."""
    high = (x >> np.int16(8)).astype(jnp.int8)
    low = ((x & np.int16(0xFF)) - np.int16(128)).astype(jnp.int8)
    return jnp.concatenate([high, low], axis=axis)


def _chunked(part: Callable[[slice], jax.Array], length: int) -> jax.Array:
    """Adds up `part` over slices of an axis in which no int32 partial sum overflows."""
    total = part(slice(0, min(length, INT8_CHUNK)))
    for start in range(INT8_CHUNK, length, INT8_CHUNK):
        with _x64.scope():
            total = total + part(slice(start, min(length, start + INT8_CHUNK)))
    return total


def _take(x: jax.Array, axis: int, at: slice) -> jax.Array:
    return lax.slice_in_dim(x, at.start, at.stop, axis=axis)


def _sums_of_a(a: jax.Array) -> jax.Array:
    """Sums of int8 over the last axis, which is kept."""
    if a.shape[-2] <= 2:
        return jnp.sum(a, axis=-1, keepdims=True, dtype=jnp.int32)
    # Many rows are faster summed by a dot, and that takes two columns.
    return dot(a, jnp.ones((*a.shape[:-2], 2, a.shape[-1]), jnp.int8), b_axis=-1)[..., :1]


def _sums_of_b(b: jax.Array | np.ndarray, b_axis: int) -> jax.Array:
    """Sums of int8 over `b_axis`, as [..., 1, N]."""
    if isinstance(b, np.ndarray):
        sums = b.sum(axis=b_axis, keepdims=True, dtype=np.int32)
        return jnp.asarray(sums if b_axis == -2 else np.swapaxes(sums, -1, -2))
    if b.shape[-3 - b_axis] <= 2:
        sums = jnp.sum(b, axis=b_axis, keepdims=True, dtype=jnp.int32)
        return sums if b_axis == -2 else jnp.swapaxes(sums, -1, -2)
    ones = jnp.ones((*b.shape[:-2], 2, b.shape[b_axis]), jnp.int8)
    return dot(ones, b, b_axis=b_axis)[..., :1, :]


def _dimensions(a: jax.Array, b: jax.Array | np.ndarray, b_axis: int):
    batch = tuple(range(a.ndim - 2))
    return ((a.ndim - 1,), (b.ndim + b_axis,)), (batch, batch)


def _pad_to_two(x: jax.Array, axis: int) -> jax.Array:
    pads = [(0, 0, 0)] * x.ndim
    pads[axis] = (0, 1, 0)
    return lax.pad(x, np.int8(0), pads)


def _known_zero(zero_point: jax.Array | np.ndarray) -> bool:
    return isinstance(zero_point, np.ndarray) and not zero_point.any()
