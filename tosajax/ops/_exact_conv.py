"""The exact routes of integer convolutions.

XLA has no fast convolution of integers but one: int8 on CPU, with the weights laid out as HWIO from
the start and channels enough; oneDNN has another there. So weights that are NumPy arrays, as
constants are in a compiled graph, are prepared here and convolved directly where such a kernel
exists; everything else becomes dots of patches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64
from tosajax.ops import _exact, _onednn, _platform
from tosajax.ops._route import route
from tosajax.ops._window import Window, dynamic_window, pad_spatial, patches_of

# Taps and bytes of patches that are laid out at once; a larger kernel is summed in a loop.
MAX_TAPS = 64
_MAX_PATCH_BYTES = 2**28
# XLA:CPU convolves fast from this many channels on, either in or out. Results are filled up to
# a few more, unless there are fewer input channels than the third: patches are faster then, and so
# they are, whatever the results, below the last.
MIN_CHANNELS = 17
_FILLED_CHANNELS = 20
_MIN_TO_FILL = 12
MIN_INPUT_CHANNELS = 8
# Up to here, correcting the border of the result costs less than padding the input.
_MAX_BORDER_BYTES = 2**18
_ONEDNN = "onednn convolution"
# What oneDNN's inputs are more than ours: its kernels multiply uint8 by int8.
_RAISED = 128


class Route(NamedTuple):
    """How a convolution is computed, on CPU where the platform is not known."""

    name: str  # "dot", "onednn convolution", "convolution", "patches" or "loop"
    reason: str


def choose(
    x: jax.Array, weight_shape: Sequence[int], known: np.ndarray | None, shape: Window
) -> Route:
    """The route for these operands; `known` are the weights where they are constant."""
    oc, *kernel, ic = weight_shape
    if math.prod(_counts(x, shape)) > 1:
        return Route("loop", f"{math.prod(kernel)} taps are too many to lay out at once")
    if math.prod(kernel) == 1:
        return Route("dot", "one tap, by oneDNN" if _by_onednn(x, oc, shape) else "one tap")
    if known is None:
        return Route("patches", "weights not constant")
    if not _platform.current().may_be_cpu:
        # Others convolve integers slowly, not at all, or (grouped) wrongly.
        return Route("patches", "only XLA for CPUs convolves integers")
    channels = ic * (kernel[0] if len(kernel) == 3 else 1)
    if _by_onednn(x, oc, shape) and _onednn.convolves(known):
        return Route(_ONEDNN, f"constant weights, {channels} to {oc} channels")
    enough = MIN_INPUT_CHANNELS if max(channels, oc) >= MIN_CHANNELS else _MIN_TO_FILL
    if channels < enough:
        return Route("patches", f"{channels} to {oc} channels are few")
    return Route("convolution", f"constant weights, {channels} to {oc} channels")


def convolution(
    x: jax.Array,
    weight: jax.Array | np.ndarray,
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
    known = constant_weight(weight, weight_zp)
    chosen = choose(x, weight.shape, known, shape)
    if x.shape[-1] < 4 and math.prod(shape.size) > 1:
        x, weight = _four_channels(x, x_zp), _four_channels(weight, weight_zp)
        known = None if known is None else _four_channels(known, np.zeros(1, np.int8))
    with route(*chosen):
        if known is None or chosen.name == "loop":
            return _by_patches(x, weight, x_zp, weight_zp, shape)
        return _by_constant(x, known, x_zp, shape, chosen.name)


def convolution_definition(
    x: jax.Array, weight: jax.Array, x_zp: jax.Array, weight_zp: jax.Array, shape: Window
) -> jax.Array:
    """`convolution` as it is defined: slow, and what every route must equal."""
    dtype = np.int64 if x.dtype == np.int16 else np.int32
    layout = ("NHWC", "OHWI", "NHWC") if x.ndim == 4 else ("NDHWC", "ODHWI", "NDHWC")
    with _x64.scope_of(dtype):

        def wide(value: jax.Array, zp: jax.Array) -> jax.Array:
            zero = lax.convert_element_type(zp, dtype).reshape((1,) * value.ndim)
            return lax.convert_element_type(value, dtype) - zero

        return lax.conv_general_dilated(
            wide(x, x_zp),
            wide(weight, weight_zp),
            shape.stride,
            shape.pad,
            rhs_dilation=shape.dilation,
            dimension_numbers=layout,
        )


# Constant weights: zero points are folded into a map that is computed here.


def constant_weight(
    weight: jax.Array | np.ndarray, weight_zp: jax.Array | np.ndarray
) -> np.ndarray | None:
    """weight - weight_zp where both are known, int8 holds it, and int32 sums of int8 by it."""
    if not (isinstance(weight, np.ndarray) and isinstance(weight_zp, np.ndarray)):
        return None
    known = weight.astype(np.int16) - weight_zp.astype(np.int16)
    inside = known.size == 0 or (known.min() >= -128 and known.max() <= 127)
    few = math.prod(known.shape[1:]) <= _exact.INT8_CHUNK
    return known.astype(np.int8) if inside and few else None


def _by_constant(
    x: jax.Array, weight: np.ndarray, x_zp: jax.Array | np.ndarray, shape: Window, name: str
) -> jax.Array:
    batch, oc = x.shape[0], weight.shape[0]
    out = shape.out(x.shape)
    if x.ndim == 5:
        x, weight, shape = _depth_to_channels(x, weight, x_zp, shape)
    if not _pads_natively(x, oc, shape, name):
        x = pad_spatial(x, shape.pad, _scalar(x_zp))
        shape = shape._replace(pad=((0, 0), (0, 0)))
    border = _border(weight, x.shape, shape)
    raised = np.int32(_RAISED if name == _ONEDNN else 0)
    if x.dtype == np.int8:
        total = _sums(x, weight, shape, name)
        offset = border * (x_zp.astype(np.int32).reshape(1, 1, 1, 1) + raised)
        known = isinstance(offset, np.ndarray)
        total = total if known and not offset.any() else total - offset
    else:
        high, low = jnp.split(_sums(_exact.bytes_of(x, 0), weight, shape, name), 2)
        with _x64.scope():
            # x = 256 * high + low + 128, where it is not padding.
            total = _x64.widen(high) * np.int64(256) + _x64.widen(low)
            total = total + _x64.widen(jnp.asarray(border)) * np.int64(128 - 257 * int(raised))
    return total.reshape(batch, *out, oc)


def _depth_to_channels(
    x: jax.Array, weight: np.ndarray, x_zp: jax.Array | np.ndarray, shape: Window
) -> tuple[jax.Array, np.ndarray, Window]:
    """A convolution over depth, height and width as one over height and width."""
    depth = shape.out(x.shape)[0]
    x = pad_spatial(x, (shape.pad[0], (0, 0), (0, 0)), _scalar(x_zp))
    stride, last = shape.stride[0], (depth - 1) * shape.stride[0] + 1
    starts = range(0, shape.size[0] * shape.dilation[0], shape.dilation[0])
    slices = [lax.slice_in_dim(x, at, at + last, stride, axis=1) for at in starts]
    x = jnp.concatenate(slices, axis=-1)
    weight = np.moveaxis(weight, 1, -2)
    flat = weight.reshape(*weight.shape[:-2], -1)
    plane = Window(shape.size[1:], shape.stride[1:], shape.dilation[1:], shape.pad[1:])
    return x.reshape(-1, *x.shape[2:]), flat, plane


def _pads_natively(x: jax.Array, oc: int, shape: Window, name: str) -> bool:
    """Whether to pad with zeros and correct the border, rather than to pad with the zero point.

    XLA's fast kernel makes no result that is larger than its input.
    """
    out = shape.out(x.shape)
    if name == _ONEDNN:
        able = _onednn.pads(x.shape[1:-1], shape)
    else:
        shrinks = all(o <= i for o, i in zip(out, x.shape[1:-1], strict=True))
        able = name == "convolution" and shrinks
    return able and 4 * math.prod(out) * oc <= _MAX_BORDER_BYTES


def _by_onednn(x: jax.Array, oc: int, shape: Window) -> bool:
    """Whether the platform has oneDNN multiply so much."""
    platform = _platform.current()
    terms = x.shape[0] * math.prod(shape.out(x.shape)) * math.prod(shape.size) * x.shape[-1]
    return platform.onednn and _onednn.pays(terms * oc * platform.examples)


def _border(weight: np.ndarray, lengths: Sequence[int], shape: Window) -> np.ndarray:
    """The sum of the weights that each window has inside the input; int32, [1, OH, OW, OC].

    One row and column, where it is the same everywhere.
    """
    inside = []
    for length, n, size, stride, dilation, (low, _) in zip(
        lengths[1:-1], shape.out(lengths), *shape, strict=True
    ):
        at = np.arange(n)[:, None] * stride - low + np.arange(size) * dilation
        rows = (at >= 0) & (at < length)
        inside.append((rows[:1] if rows.all() else rows).astype(np.int64))
    sums = np.einsum("okl,ak,bl->abo", weight.sum(axis=-1, dtype=np.int64), *inside)
    return sums.astype(np.int32)[None]


def _sums(x: jax.Array, weight: np.ndarray, shape: Window, name: str) -> jax.Array:
    """int8 [N, IH, IW, IC] convolved with int8 [OC, KH, KW, IC], padding being 0, in int32.

    Of oneDNN, the input is raised, but not its padding.
    """
    oc = weight.shape[0]

    def by_patches(x: jax.Array, weight: jax.Array | np.ndarray) -> jax.Array:
        out, weight = shape.out(x.shape), weight[..., :oc]
        padded = pad_spatial(x, shape.pad, jnp.zeros((), jnp.int8))
        total = _exact.dot(patches_of(padded, shape, out), weight.reshape(-1, oc))
        return total.reshape(x.shape[0], *out, oc)

    def directly(x: jax.Array, weight: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            weight,
            shape.stride,
            shape.pad,
            rhs_dilation=shape.dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=jnp.int32,
        )[..., :oc]

    hwio = np.ascontiguousarray(weight.transpose(1, 2, 3, 0))
    if name == _ONEDNN:
        return _onednn.convolution(x, hwio, shape)
    if name != "convolution":
        return by_patches(x, hwio)
    if max(hwio.shape[-2:]) < MIN_CHANNELS:
        hwio = np.pad(hwio, [(0, 0)] * 3 + [(0, _FILLED_CHANNELS - oc)])
    return _platform.on_cpu(x, jnp.asarray(hwio), cpu=directly, other=by_patches)


# Weights that are traced: their zero point stays, and padding is the zero point of x.


def _by_patches(
    x: jax.Array,
    weight: jax.Array | np.ndarray,
    x_zp: jax.Array | np.ndarray,
    weight_zp: jax.Array | np.ndarray,
    shape: Window,
) -> jax.Array:
    out = shape.out(x.shape)
    counts = _counts(x, shape)
    block = _block(x, shape)
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

    def multiply(patches: jax.Array, taps: jax.Array | np.ndarray) -> jax.Array:
        if x.dtype == np.int16:
            return _exact.dot_int16_int8(patches, taps, weight_zp, b_axis=-1)
        return _exact.dot_zp(patches, taps, x_zp, weight_zp, b_axis=-1)

    def term(start: list[jax.Array], taps: jax.Array) -> jax.Array:
        return multiply(patches_of(dynamic_window(x, start, part, out), part, out), taps)

    oc = weight.shape[0]
    if math.prod(counts) == 1:
        result = multiply(patches_of(x, part, out), weight.reshape(oc, -1))
    else:
        result = sum_over(
            counts,
            [part * dilation for part, dilation in zip(block, shape.dilation, strict=True)],
            _weight_blocks(jnp.asarray(weight), counts, block),
            term,
            np.int64 if x.dtype == np.int16 else np.int32,
        )
    return result.reshape(x.shape[0], *out, oc)


def _four_channels(x: Any, fill: jax.Array | np.ndarray) -> Any:
    """Fills up channels with a zero point, which adds 0: 32-bit words make faster patches."""
    widths = [(0, 0)] * (x.ndim - 1) + [(0, 4 - x.shape[-1])]
    known = isinstance(x, np.ndarray) and isinstance(fill, np.ndarray)
    return (np if known else jnp).pad(x, widths, constant_values=fill.reshape(()))


def sum_over(
    counts: Sequence[int],
    steps: Sequence[int],
    weights: jax.Array,
    term: Callable[[list[jax.Array], jax.Array], jax.Array],
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

    with _x64.scope_of(dtype):
        # Like a term, so that it varies among the devices of `jax.shard_map` where terms do.
        starts = [lax.full((), 0, np.int32) for _ in counts]
        total = lax.full_like(jax.eval_shape(term, starts, weights[0]), 0)
        return lax.scan(add, total, (lax.iota(np.int32, math.prod(counts)), weights))[0]


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


def _block(x: jax.Array, shape: Window) -> tuple[int, ...]:
    """How many taps along each axis are laid out at once."""
    patch_bytes = x.size // max(1, math.prod(x.shape[1:-1])) * math.prod(shape.out(x.shape))
    patch_bytes *= x.dtype.itemsize
    return _block_of(shape.size, min(MAX_TAPS, max(1, _MAX_PATCH_BYTES // max(1, patch_bytes))))


def _counts(x: jax.Array, shape: Window) -> list[int]:
    """How many such blocks there are along each axis."""
    block = _block(x, shape)
    return [-(-size // part) for size, part in zip(shape.size, block, strict=True)]


def _scalar(zero_point: jax.Array | np.ndarray | np.generic) -> jax.Array:
    return jnp.asarray(zero_point).reshape(())
