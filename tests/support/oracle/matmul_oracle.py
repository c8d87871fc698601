"""MATMUL and MATMUL_T as defined, data for tests of dot products, and their accuracy check."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tosajax.dtypes import DType


def matmul(a, b, a_zp=0, b_zp=0):
    """[N, H, C] times [N, C, W] in the type of the operands: int64 or float64."""
    n, h, c = a.shape
    w = b.shape[2]
    out = np.zeros((n, h, w), a.dtype)
    for i in range(n):
        for y in range(h):
            for x in range(w):
                for k in range(c):
                    out[i, y, x] += (a[i, y, k] - a_zp) * (b[i, k, x] - b_zp)
    return out


def matmul_t(a, b, a_zp=0, b_zp=0):
    """[N, H, C] times [D, W, C] in the type of the operands: int64 or float64; D is N or 1."""
    n, h, c = a.shape
    d, w, _ = b.shape
    out = np.zeros((n, h, w), a.dtype)
    for i in range(n):
        for y in range(h):
            for x in range(w):
                for k in range(c):
                    out[i, y, x] += (a[i, y, k] - a_zp) * (b[0 if d == 1 else i, x, k] - b_zp)
    return out


def draw(rng, dtype, shape):
    """Random values; of integers half are boundaries, of floats all sizes near 1 occur."""
    if dtype.is_float:
        values = rng.uniform(-1, 1, shape) * 2.0 ** rng.integers(-4, 2, shape)
        return values.astype(dtype.storage)
    low, high = dtype.minimum, dtype.maximum
    values = rng.integers(low, high + 1, shape, dtype=np.int64)
    edges = np.array([low, low + 1, -1, 0, 1, high - 1, high], np.int64)
    values = np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values)
    return values.astype(dtype.storage)


def draw_bias(rng, dtype, shape):
    """A bias that stays clear of overflow when the sums of a small test are added."""
    if dtype.is_float:
        return draw(rng, dtype, shape)
    margin = (1 << (dtype.bits - 1)) - (1 << (dtype.bits - 6))
    values = rng.integers(-margin, margin + 1, shape, dtype=np.int64)
    edges = np.array([-margin, -1, 0, 1, margin], np.int64)
    return np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), values).astype(dtype.storage)


def zero_points(dtype):
    """The zero points to try: only int8 has other ones than 0."""
    return (0, -128, 127, 3) if dtype is DType.INT8 else (0,)


def fraction_bits(dtype):
    return {
        DType.FP32: 23,
        DType.FP16: 10,
        DType.BF16: 7,
        DType.FP8E4M3: 3,
        DType.FP8E5M2: 2,
    }[dtype]


def normal_min(dtype):
    return float(ml_dtypes.finfo(dtype.storage).smallest_normal)


def magnitude(values, dtype):
    """|values| in float64, not below the smallest normal number of the type."""
    return np.maximum(np.abs(values.astype(np.float64)), normal_min(dtype))


def check_dot_product(actual, reference, bound, *, size, out, acc, bias=True):
    """Asserts the accuracy of dot products (TOSA 1.0.1, "Dot product accuracy requirements").

    Args:
      actual: the result under test.
      reference: the result in float64.
      bound: the result in float64 of the magnitudes of all operands.
      size: how many products each element adds up.
      out: the output type.
      acc: the accumulator type.
      bias: whether a bias is added.
    """
    assert actual.dtype == out.storage
    assert actual.shape == reference.shape
    actual = np.asarray(actual).astype(np.float64)
    lost = (fraction_bits(acc) - fraction_bits(out)) / 2
    steps = math.ceil(size / 2**lost) + (1 if bias else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        unit = 2.0 ** (-1 - fraction_bits(out))
        overflows = np.isinf(
            (bound * (1 + 2 * steps * unit)).astype(out.storage).astype(np.float64)
        )
    np.testing.assert_array_equal(np.isnan(actual[np.isnan(reference)]), True)
    counts = ~np.isnan(reference) & ~np.isnan(bound) & ~overflows
    assert np.isfinite(actual[counts]).all()
    if out is DType.FP8E4M3:  # no infinity: overflow is NaN
        counts &= ~np.isnan(bound.astype(out.storage).astype(np.float64))
    error = (actual[counts] - reference[counts]) / np.maximum(bound[counts] * unit, normal_min(out))
    assert np.abs(error).max(initial=0) <= 2 * steps
    assert (error**2).sum() <= 4 * 0.4 * steps * actual.size
