"""Kernels of the HiFi 5 NN Library as their definitions read, in Python integers.

Arrays are of dtype object, so that nothing overflows; `integers` makes them. Functions of numbers
work on arrays, element by element.
"""

from __future__ import annotations

from itertools import product

import numpy as np


def integers(x):
    """Any array of integers, or numbers, as an array of Python integers."""
    return np.array(np.asarray(x).tolist(), object)


def saturate(value, dtype):
    info = np.iinfo(dtype)
    return min(max(value, int(info.min)), int(info.max))


def round_half_away(numerator, denominator):
    nearest = (2 * abs(numerator) + denominator) // (2 * denominator)
    return nearest if numerator >= 0 else -nearest


def round_half_up(numerator, denominator):
    return (2 * numerator + denominator) // (2 * denominator)


def shift_and_saturate(value, shift, dtype):
    """value * 2**shift, floored."""
    return saturate(value << shift if shift >= 0 else value >> -shift, dtype)


def shift_and_round(value, shift, dtype):
    """value * 2**shift, rounded half away from zero."""
    shifted = value << shift if shift >= 0 else round_half_away(value, 1 << -shift)
    return saturate(shifted, dtype)


def requantize(value, multiplier, shift):
    """TFLite's MultiplyByQuantizedMultiplier with two roundings."""
    value = saturate(value << max(shift, 0), np.int32)
    high = saturate(round_half_up(value * multiplier, 1 << 31), np.int32)
    return round_half_away(high, 1 << max(-shift, 0))


def by_element(function, *operands):
    return np.frompyfunc(function, len(operands), 1)(*operands)


def fixed(sums, bias, acc_shift, bias_shift, dtype):
    """Sums [..., N] and a bias [N] to an output."""

    def finish(total, bias):
        total += shift_and_saturate(bias, bias_shift, np.int64)
        finish = shift_and_saturate if dtype == np.int64 else shift_and_round
        return finish(total, acc_shift, dtype)

    return by_element(finish, sums, integers(bias)).astype(dtype)


def quantized(sums, bias, quant, dtype):
    """Sums [..., N] and a bias [N] to an output; one multiplier and shift, or N."""

    def finish(total, bias, multiplier, shift):
        scaled = requantize(total + bias, multiplier, shift)
        return saturate(scaled + int(quant.out_zero_bias), dtype)

    operands = (integers(x) for x in (bias, quant.out_multiplier, quant.out_shift))
    return by_element(finish, sums, *operands).astype(dtype)


def dot(matrix, vector, matrix_zero_bias=0, vector_zero_bias=0):
    """[N, K] times [K]."""
    return (integers(matrix) + matrix_zero_bias).dot(integers(vector) + vector_zero_bias)


def _windows(inp, kernel, strides, padding, out_size):
    """The reads of each output: its position, a tap and a pixel, padding left out."""
    height, width = inp.shape[:2]
    for at in product(*map(range, out_size)):
        for tap in product(*map(range, kernel)):
            y, x = (a * s + t - p for a, s, t, p in zip(at, strides, tap, padding, strict=True))
            if 0 <= y < height and 0 <= x < width:
                yield at, tap, inp[y, x]


def conv2d(inp, ker, strides, padding, out_size, input_zero_bias=0, kernel_zero_bias=0):
    """[H, W, C] by [OC, KH, KW, C]."""
    inp, ker = integers(inp) + input_zero_bias, integers(ker) + kernel_zero_bias
    sums = np.zeros((*out_size, ker.shape[0]), object)
    for at, tap, pixel in _windows(inp, ker.shape[1:3], strides, padding, out_size):
        sums[at] += ker[(slice(None), *tap)].dot(pixel)
    return sums


def depthwise(inp, ker, strides, padding, out_size, input_zero_bias=0, kernel_zero_bias=0):
    """[H, W, C] by [KH, KW, C * M]."""
    inp, ker = integers(inp) + input_zero_bias, integers(ker) + kernel_zero_bias
    sums = np.zeros((*out_size, ker.shape[2]), object)
    for at, tap, pixel in _windows(inp, ker.shape[:2], strides, padding, out_size):
        sums[at] += ker[tap] * pixel.repeat(ker.shape[2] // len(pixel))
    return sums


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
