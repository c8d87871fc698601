"""Pooling as its definition reads, in Python integers and float64."""

from __future__ import annotations

from itertools import product

import numpy as np


def _windows(shape, kernel, stride, pad):
    """The spatial shape of the output, and each of its positions with the slices it covers."""
    lengths = []
    for length, size, step, pads in zip(
        shape[1:3], kernel, stride, (pad[:2], pad[2:]), strict=True
    ):
        whole = length + sum(pads) - size
        assert whole % step == 0, "the test case is not a valid graph"
        assert max(pads) < size, "the test case is not a valid graph"
        lengths.append(whole // step + 1)
    windows = []
    for oy, ox in product(*map(range, lengths)):
        y, x = oy * stride[0] - pad[0], ox * stride[1] - pad[2]
        rows = slice(max(y, 0), min(y + kernel[0], shape[1]))
        columns = slice(max(x, 0), min(x + kernel[1], shape[2]))
        windows.append((oy, ox, rows, columns))
    return lengths, windows


def divide(total, count):
    """`total` times the reciprocal of `count`, in Python integers."""
    k = (count - 1).bit_length()
    multiplier = (((1 << 30) + 1) << k) // count
    shift = 30 + k
    return (total * multiplier + (1 << (shift - 1))) >> shift


def avg_pool_int(x, input_zp, output_zp, low, high, *, kernel, stride, pad):
    """AVG_POOL2D of integers with the output range [low, high]."""
    lengths, windows = _windows(x.shape, kernel, stride, pad)
    result = np.zeros((x.shape[0], *lengths, x.shape[3]), np.int64)
    for oy, ox, rows, columns in windows:
        part = x[:, rows, columns].astype(np.int64)
        count = part.shape[1] * part.shape[2]
        for n, c in product(range(x.shape[0]), range(x.shape[3])):
            total = sum(int(v) - input_zp for v in part[n, :, :, c].flat)
            result[n, oy, ox, c] = min(max(divide(total, count) + output_zp, low), high)
    return result


def avg_pool_float(x, *, kernel, stride, pad):
    """AVG_POOL2D in float64."""
    lengths, windows = _windows(x.shape, kernel, stride, pad)
    result = np.zeros((x.shape[0], *lengths, x.shape[3]), np.float64)
    for oy, ox, rows, columns in windows:
        part = x[:, rows, columns].astype(np.float64)
        result[:, oy, ox] = part.sum(axis=(1, 2)) / (part.shape[1] * part.shape[2])
    return result


def max_pool(x, *, kernel, stride, pad, ignore_nan=False):
    """MAX_POOL2D in float64 (exact for every type)."""
    lengths, windows = _windows(x.shape, kernel, stride, pad)
    result = np.zeros((x.shape[0], *lengths, x.shape[3]), np.float64)
    for oy, ox, rows, columns in windows:
        part = x[:, rows, columns].astype(np.float64)
        for n, c in product(range(x.shape[0]), range(x.shape[3])):
            best = np.nan if ignore_nan else -np.inf
            for value in part[n, :, :, c].flat:
                if np.isnan(value):
                    best = best if ignore_nan else value
                elif np.isnan(best):
                    best = value if ignore_nan else best
                else:
                    best = max(best, value)
            result[n, oy, ox, c] = best
    return result
