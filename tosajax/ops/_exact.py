"""Windows over spatial axes, and the exact routes of integer dots and convolutions.

XLA multiplies int8 matrices fast, on CPU and on accelerators, and almost nothing else of
integers: int32 and int16 dots and most integer convolutions fall to a plain loop. So everything
here becomes `dot`, int8 x int8 -> int32. Zero points are folded algebraically, int16 operands are
split into bytes, convolutions become dots of patches. Additions in int32 wrap, which is harmless:
a sum is right modulo 2**32 whatever its order, and the results that are defined fit.

`dot_definition` is what all of it must equal.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64

# Products of int8 are at most 2**14, so that 131071 of them add up to less than 2**31.
_INT8_CHUNK = (2**31 - 1) // 2**14
# Taps and bytes of patches that are laid out at once; a larger kernel is summed in a loop.
MAX_TAPS = 64
_MAX_PATCH_BYTES = 2**28


class Window(NamedTuple):
    """A window that slides over the spatial axes 1, 2, ... of an array [N, ..., C]."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]

    def out(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The spatial shape of the result for an array of `shape` [N, ..., C]."""
        return tuple(
            (length - 1 + low + high - (size - 1) * dilation) // stride + 1
            for length, size, stride, dilation, (low, high) in zip(shape[1:-1], *self, strict=True)
        )

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Where each tap reads, from the first element of the window."""
        return product(
            *(
                range(0, size * dilation, dilation)
                for size, dilation in zip(self.size, self.dilation, strict=True)
            )
        )


def window(
    size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], pad: Sequence[int]
) -> Window:
    """A Window from attributes as the specification lists them: `pad` is low, high by axis."""
    pairs = tuple(zip(pad[0::2], pad[1::2], strict=True))
    return Window(tuple(size), tuple(stride), tuple(dilation), pairs)


def pad_spatial(x: jax.Array, pads: Sequence[tuple[int, int]], value: jax.Array) -> jax.Array:
    """Pads the spatial axes of [N, ..., C] with a scalar of its type."""
    if not any(map(any, pads)):
        return x
    padded = lax.pad(x, value, [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)])
    # Else XLA turns each slice of it into a pad of a slice, and computes `x` again for each.
    return lax.optimization_barrier(padded)


def tap(
    padded: jax.Array, offset: Sequence[int], out: Sequence[int], stride: Sequence[int]
) -> jax.Array:
    """What the tap of a window at `offset` reads for every element of the result."""
    limit = (o + (n - 1) * s + 1 for o, n, s in zip(offset, out, stride, strict=True))
    return lax.slice(
        padded,
        (0, *offset, 0),
        (padded.shape[0], *limit, padded.shape[-1]),
        (1, *stride, 1),
    )


def dynamic_window(
    padded: jax.Array, start: Sequence[jax.Array], part: Window, out: Sequence[int]
) -> jax.Array:
    """The part of `padded` that the taps of `part` read when they begin at a traced `start`."""
    extent = (
        (n - 1) * stride + (size - 1) * dilation + 1
        for n, size, stride, dilation in zip(out, *part[:3], strict=True)
    )
    zero = jnp.zeros((), jnp.int32)
    return lax.dynamic_slice(
        padded, (zero, *start, zero), (padded.shape[0], *extent, padded.shape[-1])
    )


def scope_of(dtype: np.dtype | type) -> contextlib.AbstractContextManager:
    """The scope for arithmetic on accumulators of `dtype`."""
    return _x64.scope() if np.dtype(dtype) == np.int64 else contextlib.nullcontext()


def dot_definition(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, b_axis: int = -2
) -> jax.Array:
    """Sums (a - a_zp) * (b - b_zp) over the last axis of `a` and `b_axis` of `b`, in int32.

    The definition, for operands of 8 bits: slow, and the reference of `dot_zp`.
    """
    wide_a = a.astype(jnp.int32) - a_zp.astype(jnp.int32).reshape((1,) * a.ndim)
    wide_b = b.astype(jnp.int32) - b_zp.astype(jnp.int32).reshape((1,) * b.ndim)
    return lax.dot_general(wide_a, wide_b, _dimensions(a, b, b_axis))


def dot(a: jax.Array, b: jax.Array, *, b_axis: int = -2) -> jax.Array:
    """int8 [..., M, K] times int8 [..., K, N], or [..., N, K] with b_axis=-1, in int32."""
    n_axis = -3 - b_axis
    m, n = a.shape[-2], b.shape[n_axis]
    # A vector takes the slow path, two rows the fast one.
    a = _pad_to_two(a, -2) if m == 1 else a
    b = _pad_to_two(b, n_axis) if n == 1 else b
    result = lax.dot_general(a, b, _dimensions(a, b, b_axis), preferred_element_type=jnp.int32)
    return result[..., :m, :n] if 1 in (m, n) else result


def dot_zp(
    a: jax.Array,
    b: jax.Array,
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
    if has_a and a.shape[-2] == 1:
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
    a: jax.Array, b: jax.Array, b_zp: jax.Array | np.ndarray, *, b_axis: int = -2
) -> jax.Array:
    """Sums a * (b - b_zp) for int16 `a` and int8 `b`, in int48 held in int64."""
    halves = _bytes_of(a, -2)

    def part(at: slice) -> jax.Array:
        x, y = halves[..., at], _take(b, b_axis, at)
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
    a_halves, b_halves = _bytes_of(a, -2), _bytes_of(b, -1)

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


def convolution(
    x: jax.Array,
    weight: jax.Array,
    x_zp: jax.Array | np.ndarray,
    weight_zp: jax.Array | np.ndarray,
    shape: Window,
) -> jax.Array:
    """Sums (x - x_zp) * (weight - weight_zp) over windows of [N, ..., IC], padding being x_zp.

    Args:
      x: int8 or int16, [N, ..., IC].
      weight: int8, [OC, ..., IC].
      x_zp: the type of x, [1]; of no effect for int16, where it must be 0.
      weight_zp: int8, [1].
      shape: the window.

    Returns:
      int32, or for int16 int48 held in int64; [N, ..., OC].
    """
    out, channels = shape.out(x.shape), x.shape[-1]
    patch_bytes = x.shape[0] * math.prod(out) * channels * x.dtype.itemsize
    block = _block_of(shape.size, min(MAX_TAPS, max(1, _MAX_PATCH_BYTES // max(1, patch_bytes))))
    counts = [-(-size // part) for size, part in zip(shape.size, block, strict=True)]
    # Taps that fill up the last blocks: their weight is the zero point, so that they add 0.
    filled = tuple(n * part for n, part in zip(counts, block, strict=True))
    surplus = [whole - size for whole, size in zip(filled, shape.size, strict=True)]
    pads = [
        (low, high + more * dilation)
        for (low, high), more, dilation in zip(shape.pad, surplus, shape.dilation, strict=True)
    ]
    x = pad_spatial(x, pads, _scalar(x_zp))
    if any(surplus):
        high = [(0, 0, 0), *((0, more, 0) for more in surplus), (0, 0, 0)]
        weight = lax.pad(weight, _scalar(weight_zp), high)
    part = shape._replace(size=block, pad=((0, 0),) * len(block))

    def multiply(x: jax.Array, weight: jax.Array) -> jax.Array:
        patches = patches_of(x, part, out)
        if x.dtype == np.int16:
            return dot_int16_int8(patches, weight, weight_zp, b_axis=-1)
        return dot_zp(patches, weight, x_zp, weight_zp, b_axis=-1)

    oc = weight.shape[0]
    if math.prod(counts) == 1:
        result = multiply(x, weight.reshape(oc, -1))
    else:
        result = sum_over(
            counts,
            [part * dilation for part, dilation in zip(block, shape.dilation, strict=True)],
            _weight_blocks(weight, counts, block),
            lambda start, taps: multiply(dynamic_window(x, start, part, out), taps),
            (x.shape[0] * math.prod(out), oc),
            np.int64 if x.dtype == np.int16 else np.int32,
        )
    return result.reshape(x.shape[0], *out, oc)


def sum_over(
    counts: Sequence[int],
    steps: Sequence[int],
    weights: jax.Array,
    term: Callable[[list[jax.Array], jax.Array], jax.Array],
    shape: Sequence[int],
    dtype: type,
) -> jax.Array:
    """Adds up `term(start, weight)` in a loop over a grid of starts and the rows of `weights`.

    The grid has `counts` points, `steps` apart, in row-major order.
    """

    def add(total: jax.Array, this: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        index, weight = this
        start = []
        for count, step in zip(reversed(counts), reversed(steps), strict=True):
            start.insert(0, lax.rem(index, np.int32(count)) * np.int32(step))
            index = lax.div(index, np.int32(count))
        return total + term(start, weight), None

    with scope_of(dtype):
        total = lax.full(shape, dtype(0), dtype)
        return lax.scan(add, total, (lax.iota(np.int32, math.prod(counts)), weights))[0]


def patches_of(x: jax.Array, shape: Window, out: tuple[int, ...]) -> jax.Array:
    """What each window of padded `x` reads, [N * out, taps * IC], taps as in the weights.

    Axis by axis, each tap axis a new one before the channels: XLA compiles and runs that faster
    than one concatenation of all taps.
    """
    rank = len(out)
    for axis in reversed(range(rank)):
        step, last = shape.stride[axis], (out[axis] - 1) * shape.stride[axis] + 1
        starts = range(0, shape.size[axis] * shape.dilation[axis], shape.dilation[axis])
        taps = [lax.slice_in_dim(x, at, at + last, step, axis=1 + axis) for at in starts]
        x = jnp.stack(taps, axis=1 + rank)
    return x.reshape(x.shape[0] * math.prod(out), -1)


def _weight_blocks(weight: jax.Array, counts: Sequence[int], block: Sequence[int]) -> jax.Array:
    """[OC, *kernel, IC] as [blocks, OC, taps of a block * IC]."""
    rank = len(block)
    pairs = [n for pair in zip(counts, block, strict=True) for n in pair]
    split = weight.reshape(weight.shape[0], *pairs, weight.shape[-1])
    order = (*range(1, 2 * rank, 2), 0, *range(2, 2 * rank + 1, 2), 2 * rank + 1)
    return split.transpose(order).reshape(math.prod(counts), weight.shape[0], -1)


def _block_of(size: Sequence[int], limit: int) -> tuple[int, ...]:
    """The largest even share of a kernel that has at most `limit` taps, last axis first."""
    block = []
    for length in reversed(size):
        count = -(-length // min(length, limit))
        block.append(-(-length // count))
        limit = max(1, limit // block[-1])
    return tuple(block[::-1])


def _bytes_of(x: jax.Array, axis: int) -> jax.Array:
    """int16 as high and low int8, one after the other on `axis`: x = 256 * high + low + 128."""
    high = (x >> np.int16(8)).astype(jnp.int8)
    low = ((x & np.int16(0xFF)) - np.int16(128)).astype(jnp.int8)
    return jnp.concatenate([high, low], axis=axis)


def _chunked(part: Callable[[slice], jax.Array], length: int) -> jax.Array:
    """Adds up `part` over slices of an axis in which no int32 partial sum overflows."""
    total = part(slice(0, min(length, _INT8_CHUNK)))
    for start in range(_INT8_CHUNK, length, _INT8_CHUNK):
        with _x64.scope():
            total = total + part(slice(start, min(length, start + _INT8_CHUNK)))
    return total


def _take(x: jax.Array, axis: int, at: slice) -> jax.Array:
    return lax.slice_in_dim(x, at.start, at.stop, axis=axis)


def _sums_of_a(a: jax.Array) -> jax.Array:
    """Sums of int8 over the last axis, which is kept."""
    if a.shape[-2] <= 2:
        return jnp.sum(a, axis=-1, keepdims=True, dtype=jnp.int32)
    # Many rows are faster summed by a dot, and that takes two columns.
    return dot(a, jnp.ones((*a.shape[:-2], 2, a.shape[-1]), jnp.int8), b_axis=-1)[..., :1]


def _sums_of_b(b: jax.Array, b_axis: int) -> jax.Array:
    """Sums of int8 over `b_axis`, as [..., 1, N]."""
    if b.shape[-3 - b_axis] <= 2:
        sums = jnp.sum(b, axis=b_axis, keepdims=True, dtype=jnp.int32)
        return sums if b_axis == -2 else jnp.swapaxes(sums, -1, -2)
    ones = jnp.ones((*b.shape[:-2], 2, b.shape[b_axis]), jnp.int8)
    return dot(ones, b, b_axis=b_axis)[..., :1, :]


def _dimensions(a: jax.Array, b: jax.Array, b_axis: int):
    batch = tuple(range(a.ndim - 2))
    return ((a.ndim - 1,), (b.ndim + b_axis,)), (batch, batch)


def _pad_to_two(x: jax.Array, axis: int) -> jax.Array:
    pads = [(0, 0, 0)] * x.ndim
    pads[axis] = (0, 1, 0)
    return lax.pad(x, np.int8(0), pads)


def _known_zero(zero_point: jax.Array | np.ndarray) -> bool:
    return isinstance(zero_point, np.ndarray) and not zero_point.any()


def _scalar(zero_point: jax.Array | np.ndarray) -> jax.Array:
    return jnp.asarray(zero_point).reshape(())
