"""Windows that slide over the spatial axes of an array [N, ..., C]."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


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
        """The position of each tap, relative to the first element of the window."""
        return product(
            *(
                range(0, size * dilation, dilation)
                for size, dilation in zip(self.size, self.dilation, strict=True)
            )
        )


def window(
    size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], pad: Sequence[int]
) -> Window:
    """Makes a Window from the attributes of an operator; `pad` lists low, high for each axis."""
    pairs = tuple(zip(pad[0::2], pad[1::2], strict=True))
    return Window(tuple(size), tuple(stride), tuple(dilation), pairs)


def pad_spatial(
    x: jax.Array, pads: Sequence[tuple[int, int]], value: jax.Array | np.ndarray
) -> jax.Array:
    """Pads the spatial axes of [N, ..., C] with a scalar of the same type."""
    if not any(map(any, pads)):
        return x
    config = [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)]
    # Without barriers XLA:CPU fuses the pad into its neighbours: it tests the bounds of each
    # element before it computes it, and turns each slice of the result into a pad of a slice.
    return lax.optimization_barrier(lax.pad(lax.optimization_barrier(x), value, config))


def tap(
    padded: jax.Array, offset: Sequence[int], out: Sequence[int], stride: Sequence[int]
) -> jax.Array:
    """The input elements at one tap of the window, one for each element of the result."""
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
    """The slice of `padded` that the window `part` reads from a traced `start` on."""
    extent = (
        (n - 1) * stride + (size - 1) * dilation + 1
        for n, size, stride, dilation in zip(out, *part[:3], strict=True)
    )
    zero = jnp.zeros((), jnp.int32)
    return lax.dynamic_slice(
        padded, (zero, *start, zero), (padded.shape[0], *extent, padded.shape[-1])
    )


def patches_of(x: jax.Array, shape: Window, out: tuple[int, ...]) -> jax.Array:
    """The patches of padded `x`, [N * out, taps * IC], with taps in the order of the weights.

    Each spatial axis in turn gets a new axis of taps before the channels: XLA compiles and runs
    this faster than one concatenation of all taps.
    """
    rank = len(out)
    for axis in reversed(range(rank)):
        step, last = shape.stride[axis], (out[axis] - 1) * shape.stride[axis] + 1
        starts = range(0, shape.size[axis] * shape.dilation[axis], shape.dilation[axis])
        taps = [lax.slice_in_dim(x, at, at + last, step, axis=1 + axis) for at in starts]
        x = jnp.stack(taps, axis=1 + rank)
    return x.reshape(x.shape[0] * math.prod(out), -1)
