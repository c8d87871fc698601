"""Pooling and basic kernels of the HiFi 5 NN Library as their definitions read.

In Python integers, and float64 for floats.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from oracle.hifi_oracle import requantize, round_half_away, saturate


def windows(shape, kernel, strides, padding, out_size):
    """Each position of the output with the slices of the image [H, W, C] that it covers."""
    for at in product(*map(range, out_size)):
        covered = []
        for i in range(2):
            first = at[i] * strides[i] - padding[i]
            covered.append(slice(max(first, 0), max(min(first + kernel[i], shape[i]), 0)))
        yield at, *covered


def reciprocal(n):
    """2**31 / n rounded to float32, half to even, then down to an integer."""
    if n == 0:
        return 0
    quotient = Fraction(2**31, n)
    # The last of 24 significant bits.
    unit = Fraction(2) ** (int(quotient).bit_length() - 24)
    return int(round(quotient / unit) * unit)


def average(total, rows, columns, dtype):
    share = min(reciprocal(rows) * reciprocal(columns) // 2**31, 2**31 - 1)
    return saturate(round_half_away(total * share, 2**31), dtype)


def avgpool(inp, *where):
    """[H, W, C]; `where` is kernel, strides, padding and size of the output."""
    is_float = inp.dtype == np.float32
    result = np.zeros((*where[-1], inp.shape[2]), inp.dtype)
    for at, rows, columns in windows(inp.shape, *where):
        part = inp[rows, columns]
        height, width = part.shape[:2]
        for channel in range(inp.shape[2]):
            values = part[..., channel].ravel().tolist()
            if is_float:
                mean = sum(values) / max(len(values), 1)
            else:
                mean = average(sum(values), height, width, inp.dtype)
            result[(*at, channel)] = mean
    return result


def maxpool(inp, *where):
    """[H, W, C]; `where` is kernel, strides, padding and size of the output."""
    least = -np.inf if inp.dtype == np.float32 else np.iinfo(inp.dtype).min
    result = np.full((*where[-1], inp.shape[2]), least, inp.dtype)
    for at, rows, columns in windows(inp.shape, *where):
        part = inp[rows, columns]
        if part.size:
            result[at] = part.max(axis=(0, 1))
    return result


def interpolate(factor, first, second):
    rest = saturate(32767 - factor, np.int16)
    products = (saturate(a * b >> 15, np.int16) for a, b in ((factor, first), (rest, second)))
    return saturate(sum(products), np.int16)


def dot(first, second, bias, multiplier, shift, zero_point):
    total = saturate(sum(a * b for a, b in zip(first, second, strict=True)), np.int32)
    total = saturate(total + bias, np.int32)
    return saturate(requantize(total, multiplier, shift) + zero_point, np.int8)


def quantize(x, inp_zero_bias, out_zero_bias, out_shift, out_multiplier):
    value = requantize(x - inp_zero_bias, out_multiplier, out_shift)
    return saturate(value + out_zero_bias, np.int8)


def add(a, b, p):
    """`p` are the parameters by their names."""
    scaled = [
        requantize(
            saturate((x + p[f"{of}_zero_bias"]) << p["left_shift"], np.int32),
            p[f"{of}_multiplier"],
            p[f"{of}_shift"],
        )
        for of, x in (("inp1", a), ("inp2", b))
    ]
    return _limited(sum(scaled), p)


def mul(a, b, p):
    return _limited((a + p["inp1_zero_bias"]) * (b + p["inp2_zero_bias"]), p)


def _limited(value, p):
    value = requantize(value, p["out_multiplier"], p["out_shift"]) + p["out_zero_bias"]
    return min(max(value, p["out_activation_min"]), p["out_activation_max"])
