"""Kernels of the HiFi 5 NN Library as the guide defines them, in NumPy; and random operands.

Integers are exact: arrays of Python integers, or of int64 where sums fit. `padding` of an image
[height, width, channels] counts at the top and the left; at the bottom and the right an image is
padded or cropped as far as the windows of `out_size` reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._precision import Integers

Pair = Sequence[int]


# Arithmetic.


def integers(x: Any) -> Any:
    """Elements as Python integers, in an array of dtype object."""
    return np.asarray(x).astype(object)


def wide(x: Any) -> np.ndarray:
    """Elements as int64 or float64."""
    found = np.asarray(x)
    return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)


def saturate(value: Any, dtype: Any) -> Any:
    """The nearest integers in the range of a type."""
    info = np.iinfo(dtype)
    return np.clip(integers(value), int(info.min), int(info.max))


def round_half_away(numerator: Any, denominator: Any) -> Any:
    """Quotients rounded to the nearest, half away from zero."""
    nearest = (abs(numerator) + denominator // 2) // denominator
    return np.where(numerator < 0, -nearest, nearest)[()]


def round_half_up(numerator: Any, denominator: Any) -> Any:
    """Quotients rounded to the nearest, half up."""
    return (numerator + denominator // 2) // denominator


def shift_and_saturate(value: Any, shift: int, dtype: Any) -> Any:
    """value * 2**shift, floored."""
    return saturate(value << shift if shift >= 0 else value >> -shift, dtype)


def shift_and_round(value: Any, shift: int, dtype: Any) -> Any:
    """value * 2**shift, rounded half away from zero."""
    result = value << shift if shift >= 0 else round_half_away(value, 1 << -shift)
    return saturate(result, dtype)


def requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    """value * multiplier / 2**31 * 2**shift: TFLite's scaling, which rounds twice.

    Args:
      value: integers.
      multiplier: Q31; one, or one for each element of the last axis.
      shift: bits, positive to the left; as many.
    """
    multiplier, shift = integers(multiplier), integers(shift)
    value = saturate(integers(value) << np.maximum(shift, 0), np.int32)
    high = saturate(round_half_up(value * multiplier, 1 << 31), np.int32)
    return round_half_away(high, 1 << np.maximum(-shift, 0))


def dot(
    matrix: np.ndarray,
    vectors: np.ndarray,
    matrix_zero_bias: Integers = 0,
    vector_zero_bias: Integers = 0,
) -> np.ndarray:
    """The sums of a matrix [N, K] times vectors [..., K], which int64 holds; [..., N]."""
    return (wide(vectors) + vector_zero_bias) @ (wide(matrix) + matrix_zero_bias).T


def fixed(sums: Any, bias: Any, acc_shift: int, bias_shift: int, dtype: Any) -> np.ndarray:
    """(sums + bias * 2**bias_shift) * 2**acc_shift; results of 64 bits are floored."""
    total = integers(sums) + shift_and_saturate(integers(bias), bias_shift, np.int64)
    shift = shift_and_saturate if dtype == np.int64 else shift_and_round
    return np.asarray(shift(total, acc_shift, dtype)).astype(dtype)


def quantized(sums: Any, bias: Any, quant: Quant, dtype: Any) -> np.ndarray:
    """(sums + bias) * out_multiplier / 2**31 * 2**out_shift + out_zero_bias."""
    total = integers(sums) + integers(bias)
    scaled = requantize(total, quant.out_multiplier, quant.out_shift)
    return np.asarray(saturate(scaled + int(quant.out_zero_bias), dtype)).astype(dtype)


def add_saturating(sums: Any, bias: Any) -> Any:
    """Sums, saturated to int32, and a bias, saturated again."""
    return saturate(saturate(integers(sums), np.int32) + integers(bias), np.int32)


def add(inp1: Any, inp2: Any, numbers: Mapping[str, int]) -> np.ndarray:
    """Sums of bytes by the keywords of elm_add."""
    total = sum(
        requantize(
            saturate(integers(x) + numbers[f"{at}_zero_bias"] << numbers["left_shift"], np.int32),
            numbers[f"{at}_multiplier"],
            numbers[f"{at}_shift"],
        )
        for at, x in (("inp1", inp1), ("inp2", inp2))
    )
    return _limited(total, numbers)


def multiply(inp1: Any, inp2: Any, numbers: Mapping[str, int]) -> np.ndarray:
    """Products of bytes by the keywords of elm_mul."""
    first, second = (
        integers(x) + numbers[f"{at}_zero_bias"] for at, x in (("inp1", inp1), ("inp2", inp2))
    )
    return _limited(first * second, numbers)


def _limited(total: Any, numbers: Mapping[str, int]) -> np.ndarray:
    scaled = requantize(total, numbers["out_multiplier"], numbers["out_shift"])
    bounds = numbers["out_activation_min"], numbers["out_activation_max"]
    return np.clip(scaled + numbers["out_zero_bias"], *bounds)


# Images.


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


# Operands.


def draw(rng, dtype, shape):
    """Random values of a type; of integers half are at the ends of the range or next to 0."""
    if dtype is np.float32:
        return (rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-4, 3, shape)).astype(dtype)
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    values = rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    edges = np.array([low, low + 1, max(low, -1), 0, 1, high - 1, high], dtype)
    return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values)


def draw_quant(rng, dtype, channels=()):
    """Zero biases of input and weight, multiplier, shift and zero point of the output; ends often.

    Scales put most results within the range of an output.
    """
    info = np.iinfo(dtype)
    low, high = (-127, 128) if dtype is np.int8 else (-255, 0)
    zero_biases = [low, low + 1, 0, high, int(rng.integers(low, high, endpoint=True))]
    weight = int(rng.choice(zero_biases)) if dtype is np.uint8 else 0
    multipliers = [1, 2**30, 2**31 - 1, *rng.integers(2**30, 2**31, 4).tolist()]
    return (
        int(rng.choice(zero_biases)),
        weight,
        rng.choice(multipliers, channels).astype(np.int32),
        rng.choice([-31, -14, -11, -10, -9, -8, -7, -6, 0, 2], channels).astype(np.int32),
        int(rng.choice([info.min, info.max, 0, 5])),
    )
