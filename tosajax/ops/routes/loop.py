"""Route "loop": patches of a block of taps at a time, as many as fit into memory.

Weights may be traced: their zero point is not folded, and padding is the zero point of the input. A
kernel of one block needs no loop; its route is called "patches", or "dot" if it has a single tap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops._window import dynamic_window, pad_spatial, patches_of
from tosajax.ops.routes.dot import dot_zp
from tosajax.ops.routes.int16_dot import dot_int16_int8
from tosajax.ops.routes.operands import Convolution

# The most taps, and the most bytes of patches, in a block.
MAX_TAPS = 64
MAX_PATCH_BYTES = 2**28


def run(c: Convolution) -> jax.Array:
    """Convolves int8 or int16 by int8."""
    x, weight, window, out = c.x, c.weight, c.window, c.out
    block, counts = _block(c), block_counts(c)
    # Taps that complete the last blocks have the zero point as their weight, so they add 0.
    filled = tuple(n * part for n, part in zip(counts, block, strict=True))
    surplus = [whole - size for whole, size in zip(filled, window.size, strict=True)]
    pads = [
        (low, high + more * dilation)
        for (low, high), more, dilation in zip(window.pad, surplus, window.dilation, strict=True)
    ]
    x = pad_spatial(x, pads, jnp.asarray(c.x_zp).reshape(()))
    if any(surplus):
        high = [(0, 0, 0), *((0, more, 0) for more in surplus), (0, 0, 0)]
        weight = lax.pad(weight, jnp.asarray(c.weight_zp).reshape(()), high)
    part = window._replace(size=block, pad=((0, 0),) * len(block))

    def multiply(patches: jax.Array, taps: jax.Array | np.ndarray) -> jax.Array:
        if x.dtype == np.int16:
            return dot_int16_int8(patches, taps, c.weight_zp, b_axis=-1)
        return dot_zp(patches, taps, c.x_zp, c.weight_zp, b_axis=-1)

    def term(start: list[jax.Array], taps: jax.Array) -> jax.Array:
        return multiply(patches_of(dynamic_window(x, start, part, out), part, out), taps)

    oc = weight.shape[0]
    if math.prod(counts) == 1:
        result = multiply(patches_of(x, part, out), weight.reshape(oc, -1))
    else:
        result = sum_over(
            counts,
            [part * dilation for part, dilation in zip(block, window.dilation, strict=True)],
            _weight_blocks(jnp.asarray(weight), counts, block),
            term,
            np.int64 if x.dtype == np.int16 else np.int32,
        )
    return result.reshape(x.shape[0], *out, oc)


def sum_over(
    counts: Sequence[int],
    steps: Sequence[int],
    weights: jax.Array,
    term: Callable[[list[jax.Array], jax.Array], jax.Array],
    dtype: type,
) -> jax.Array:
    """Sums `term(start, weight)` in a loop over a grid of starts and the rows of `weights`.

    The grid has `counts` points, `steps` apart, in row-major order.
    """

    def add(total: jax.Array, this: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        index, weight = this
        start = []
        for count, step in zip(reversed(counts), reversed(steps), strict=True):
            start.insert(0, lax.rem(index, np.int32(count)) * np.int32(step))
            index = lax.div(index, np.int32(count))
        return total + term(start, weight), None

    with _x64.scope_of(dtype):
        # Made like a term, so that it varies over the devices of `jax.shard_map` if terms do.
        starts = [lax.full((), 0, np.int32) for _ in counts]
        total = lax.full_like(jax.eval_shape(term, starts, weights[0]), 0)
        return lax.scan(add, total, (lax.iota(np.int32, math.prod(counts)), weights))[0]


def block_counts(c: Convolution) -> list[int]:
    """The number of blocks of taps along each axis."""
    return [-(-size // part) for size, part in zip(c.window.size, _block(c), strict=True)]


def why(c: Convolution) -> str:
    """Why a convolution has several blocks of taps."""
    taps = math.prod(c.window.size)
    if taps > MAX_TAPS:
        return too_many(taps)
    size, limit = (n / 2**20 for n in (_patch_bytes(c) * taps, MAX_PATCH_BYTES))
    return f"patches of {size:,.0f} MiB, more than {limit:,.0f}, are too large"


def too_many(taps: int) -> str:
    """Why the taps do not form one block."""
    return f"{taps} taps are too many to lay out at once"


def block_of(size: Sequence[int], limit: int) -> tuple[int, ...]:
    """The largest equal share of a kernel with at most `limit` taps; fills the last axis first."""
    block = []
    for length in reversed(size):
        count = -(-length // min(length, limit))
        block.append(-(-length // count))
        limit = max(1, limit // block[-1])
    return tuple(block[::-1])


def _block(c: Convolution) -> tuple[int, ...]:
    """The number of taps of a block along each axis."""
    return block_of(c.window.size, min(MAX_TAPS, max(1, MAX_PATCH_BYTES // _patch_bytes(c))))


def _patch_bytes(c: Convolution) -> int:
    """The size of the patches of one tap, in bytes."""
    elements = c.x.size // max(1, math.prod(c.x.shape[1:-1])) * math.prod(c.out)
    return max(1, elements * c.x.dtype.itemsize)


def _weight_blocks(weight: jax.Array, counts: Sequence[int], block: Sequence[int]) -> jax.Array:
    """Reorders [OC, *kernel, IC] to [blocks, OC, taps of a block * IC]."""
    rank = len(block)
    pairs = [n for pair in zip(counts, block, strict=True) for n in pair]
    split = weight.reshape(weight.shape[0], *pairs, weight.shape[-1])
    order = (*range(1, 2 * rank, 2), 0, *range(2, 2 * rank + 1, 2), 2 * rank + 1)
    return split.transpose(order).reshape(math.prod(counts), weight.shape[0], -1)
