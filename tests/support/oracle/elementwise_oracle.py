"""Elementwise operators on single Python integers, and their float64 references and bounds.

Sources: the sections of the operators, and "Arithmetic Helpers" (TOSA 1.0.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from oracle.float_bounds import absolute_bound, normal_min, ulp


def over(function: Callable[..., int], dtype, *inputs: np.ndarray) -> np.ndarray:
    """Applies a function of Python integers to every element, as `dtype`."""
    results = [function(*(int(v) for v in values)) for values in zip(*inputs, strict=True)]
    return np.array(results, dtype)


def wrap(value: int, bits: int) -> int:
    """The signed number that the low bits of a value stand for."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def fits(value: int, bits: int = 32) -> bool:
    return wrap(value, bits) == value


def intdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def mul(a: int, b: int, shift: int) -> int:
    """The exact result, which may exceed int32 unless the shift is 0."""
    if shift == 0:
        return wrap(a * b, 32)
    return (a * b + (1 << (shift - 1))) >> shift


def arithmetic_right_shift(a: int, shift: int, round: bool) -> int:
    if round and shift > 0:
        return (a + (1 << (shift - 1))) >> shift
    return a >> shift


def logical_left_shift(a: int, shift: int, bits: int) -> int:
    return wrap(a << shift, bits)


def logical_right_shift(a: int, shift: int, bits: int) -> int:
    return wrap((a & ((1 << bits) - 1)) >> shift, bits)


def clz(a: int) -> int:
    return 0 if a < 0 else 32 - a.bit_length()


def negate(a: int, input_zp: int, output_zp: int, bits: int) -> int:
    limit = 1 << (bits - 1)
    return max(-limit, min(limit - 1, -(a - input_zp) + output_zp))


def lookup(entries: list[int], value: int) -> int:
    """int16: between the entries below and above value / 128, in 1/128 of an entry."""
    below, part = divmod(value + 32768, 128)
    return entries[below] * (128 - part) + entries[below + 1] * part


# float64 references


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def rsqrt(x):
    return np.where(x == 0, np.copysign(np.inf, x), 1 / np.sqrt(x))


def sine(x):
    return np.where(np.isfinite(x), np.sin(np.where(np.isfinite(x), x, 0)), np.nan)


def cosine(x):
    return np.where(np.isfinite(x), np.cos(np.where(np.isfinite(x), x, 0)), np.nan)


erf = np.vectorize(math.erf, otypes=[np.float64])


# Bounds: of the result's type, the reference, and the inputs.


def units(count: float) -> Callable[..., np.ndarray]:
    """A bound in units in the last place."""
    return lambda dtype, reference, *inputs: ulp(dtype, reference) * count


def exp_bound(dtype, reference, x):
    return absolute_bound(dtype, reference, _exp_base(dtype) + 2 * np.abs(x))


def log_bound(dtype, reference, x):
    return absolute_bound(dtype, reference, 5.0, lower=0.5)


def sigmoid_bound(dtype, reference, x):
    return absolute_bound(dtype, reference, 2 * (1 + np.abs(x)))


def tanh_bound(dtype, reference, x):
    return absolute_bound(dtype, reference, 4 * (_exp_base(dtype) + 2 * np.abs(x)), lower=0.5)


def sin_bound(dtype, reference, x):
    return np.maximum(absolute_bound(dtype, x, 2.0, divisor=2.0), math.pi * normal_min(dtype))


def cos_bound(dtype, reference, x):
    return absolute_bound(dtype, 1 + np.abs(x), 1.0, divisor=2.0)


def pow_bound(dtype, reference, x, y):
    exponent = np.where(x > 0, y * np.log(np.where(x > 0, x, 1.0)), -np.inf)
    mul_error = absolute_bound(dtype, exponent, 5.5, lower=np.abs(0.55 * y))
    exp_error = absolute_bound(
        dtype, reference, _exp_base(dtype) + 2 * np.abs(exponent + mul_error)
    )
    bound = reference * np.expm1(mul_error) + exp_error
    return np.where((x == 0) | (y == 0), 0.0, bound)


def _exp_base(dtype) -> int:
    return 3 if np.dtype(dtype) == np.float32 else 1
