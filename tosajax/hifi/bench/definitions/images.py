"""Convolutions and pools of an image [height, width, channels].

`padding` counts at the top and the left; at the bottom and the right an image is padded or cropped
as far as the windows of `out_size` reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from tosajax.hifi.bench.definitions.arithmetic import integers, round_half_away, saturate, wide
from tosajax.hifi.kernels._precision import Integers

Pair = Sequence[int]


def conv2d(
    inp: np.ndarray,
    ker: np.ndarray,
    strides: Pair,
    padding: Pair,
    out_size: Pair,
    input_zero_bias: Integers = 0,
    kernel_zero_bias: Integers = 0,
) -> np.ndarray:
    """The sums of [H, W, C] by [OC, KH, KW, C]; [OH, OW, OC]."""
    image, kernel = wide(inp) + input_zero_bias, wide(ker) + kernel_zero_bias
    windows = _windows(image, ker.shape[1:3], strides, padding, out_size)
    return _total(window @ kernel[(slice(None), *tap)].T for tap, window in windows)


def depthwise(
    inp: np.ndarray,
    ker: np.ndarray,
    strides: Pair,
    padding: Pair,
    out_size: Pair,
    input_zero_bias: Integers = 0,
    kernel_zero_bias: Integers = 0,
) -> np.ndarray:
    """The sums of [H, W, C] by [KH, KW, C * M]; [OH, OW, C * M]."""
    image, kernel = wide(inp) + input_zero_bias, wide(ker) + kernel_zero_bias
    multiplier = ker.shape[2] // inp.shape[2]
    windows = _windows(image, ker.shape[:2], strides, padding, out_size)
    return _total(window.repeat(multiplier, axis=2) * kernel[tap] for tap, window in windows)


def avgpool(
    inp: np.ndarray, kernel: Pair, strides: Pair, padding: Pair, out_size: Pair
) -> np.ndarray:
    """The averages of the elements of an image in each window."""
    where = kernel, strides, padding, out_size
    total = _total(window for _, window in _windows(wide(inp), *where))
    rows, columns = (_covered(*axis) for axis in zip(inp.shape, *where, strict=False))
    if inp.dtype.kind == "f":
        return total / np.maximum(rows[:, None] * columns, 1)[..., None]
    return average(total, rows[:, None, None], columns[:, None], inp.dtype)


def maxpool(
    inp: np.ndarray, kernel: Pair, strides: Pair, padding: Pair, out_size: Pair
) -> np.ndarray:
    """The maxima of windows."""
    least = -np.inf if inp.dtype.kind == "f" else int(np.iinfo(inp.dtype).min)
    windows = _windows(wide(inp), kernel, strides, padding, out_size, least)
    return np.max([window for _, window in windows], axis=0)


def average(total: Any, rows: Any, columns: Any, dtype: Any) -> Any:
    """Sums of rows x columns elements times a reciprocal in Q31, rounded half away from zero."""
    reciprocals = np.vectorize(_reciprocal, otypes=[object])
    share = np.minimum(reciprocals(rows) * reciprocals(columns) >> 31, 2**31 - 1)
    return saturate(round_half_away(integers(total) * share, 2**31), dtype)


def _reciprocal(n: int) -> int:
    """2**31 / n rounded to float32, half to even, then down to an integer; 0 of 0."""
    if n == 0:
        return 0
    quotient = Fraction(2**31, int(n))
    # The lowest of 24 significant bits.
    unit = Fraction(2) ** (int(quotient).bit_length() - 24)
    return int(round(quotient / unit) * unit)


def _windows(
    image: np.ndarray,
    kernel: Pair,
    strides: Pair,
    padding: Pair,
    out_size: Pair,
    fill: float = 0,
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """For each element of a kernel, the elements of the image that it meets; [OH, OW, C]."""
    axes = zip(padding, image.shape, kernel, out_size, strides, strict=False)
    size = [max(p + length, k + (n - 1) * s) for p, length, k, n, s in axes]
    padded = np.full((*size, image.shape[2]), fill, image.dtype)
    padded[padding[0] :, padding[1] :][: image.shape[0], : image.shape[1]] = image
    for at in product(*map(range, kernel)):
        rows = padded[at[0] :: strides[0]][: out_size[0]]
        yield at, rows[:, at[1] :: strides[1]][:, : out_size[1]]


def _total(parts: Iterator[np.ndarray]) -> np.ndarray:
    total = next(parts).copy()
    for part in parts:
        total += part
    return total


def _covered(length: int, kernel: int, stride: int, padding: int, count: int) -> np.ndarray:
    """How many elements of an axis each window covers."""
    start = np.arange(count) * stride - padding
    return np.maximum(np.minimum(start + kernel, length) - np.maximum(start, 0), 0)
