"""Activations: of real numbers in float64, of fixed point and bytes in Q31.

Functions of Q6.25 are those of "fixed" activations, by `ActivationCoefficients`; those of bytes are
gemmlowp's. 2**31 - 1 stands for 1 where 2**31 is out of range. int64 holds products of Q31.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oracle.hifi_oracle import (
    requantize,
    round_half_away,
    round_half_up,
    saturate,
    wide,
)
from tosajax.hifi.kernels import ActivationCoefficients

_ONE = 2**31


def real(name: str, x: np.ndarray) -> np.ndarray:
    """sigmoid, tanh or softmax."""
    if name == "tanh":
        return np.tanh(x)
    if name == "softmax":
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
    # Powers of numbers up to 0 do not overflow.
    power = np.exp(-np.abs(x))
    return np.where(x < 0, power, 1) / (1 + power)


def in_float64(name: str, x: Any) -> np.ndarray:
    """`real` of Q6.25."""
    return real(name, np.asarray(x, np.float64) / 2**25)


# Q6.25.


def fixed_sigmoid(x: Any, coefficients: ActivationCoefficients, fraction: int, dtype: Any) -> Any:
    """With `fraction` fraction bits, in the range of a type."""
    t = _exponential(x, coefficients.sigmoid_scale, coefficients.exponential)
    upper = _reciprocal_of_one_plus(t, coefficients.reciprocal)
    return _from_q31(np.where(wide(x) < 0, _ONE - upper, upper), fraction, dtype)


def fixed_tanh(x: Any, coefficients: ActivationCoefficients, fraction: int, dtype: Any) -> Any:
    """With `fraction` fraction bits, in the range of a type."""
    t = _exponential(x, coefficients.tanh_scale, coefficients.exponential)
    upper = _product(_ONE - 1 - t, _reciprocal_of_one_plus(t, coefficients.reciprocal))
    return _from_q31(np.where(wide(x) < 0, -upper, upper), fraction, dtype)


def fixed_softmax(x: Any, coefficients: ActivationCoefficients) -> np.ndarray:
    """Of vectors [..., N], with 15 fraction bits."""
    below = saturate(wide(x) - wide(x).max(axis=-1, keepdims=True), np.int32)
    powers = _exponential(below, coefficients.sigmoid_scale, coefficients.exponential)
    # Q8.23.
    total = saturate(round_half_up(powers.sum(axis=-1, keepdims=True), 2**8), np.int32)
    bits = _bit_length(total)
    # The total is (1 + t) * 2**(bits - 24).
    reciprocal = _reciprocal_of_one_plus((total << 32 - bits) - _ONE, coefficients.reciprocal)
    return round_half_up(powers * reciprocal, 1 << bits + 23)


def _exponential(x: Any, scale: Any, coefficients: Any) -> np.ndarray:
    """e**-|x|, or e**-2|x| by the scale of tanh, in Q31."""
    exponent = abs(wide(x) * int(scale) // _ONE)
    power = _polynomial(coefficients, exponent % 2**23 * 2**8)
    # A shift by 40 bits leaves nothing.
    return round_half_up(power, 1 << np.minimum(exponent // 2**23, 40))


def _reciprocal_of_one_plus(t: Any, seed: Any) -> Any:
    result = _polynomial(seed, t)
    for _ in range(2):
        error = saturate(round_half_up((_ONE - result) * _ONE - t * result, _ONE), np.int32)
        result = saturate(round_half_up(result * _ONE + result * error, _ONE), np.int32)
    return result


def _polynomial(coefficients: Any, x: Any) -> Any:
    value, *others = (int(c) for c in coefficients)
    for coefficient in others:
        value = saturate(round_half_up(value * x + coefficient * _ONE, _ONE), np.int32)
    return value


def _from_q31(value: Any, fraction: int, dtype: Any) -> Any:
    return saturate(round_half_up(value, 2 ** (31 - fraction)), dtype)


# Bytes.


def sigmoid_asym8u(x: Any, zero_point: int, radius: int, multiplier: int, shift: int) -> Any:
    """sigmoid of uint8 in units of 1 / 256."""
    centred = wide(x) - zero_point
    share = _half_away(logistic(wide(requantize(centred, multiplier, shift))), 23)
    share = np.where(centred < -radius, 0, np.minimum(share, 255))
    return np.where(centred > radius, 255, share)


def softmax_quantized(x: Any, diffmin: int, shift: int, multiplier: int, dtype: Any) -> Any:
    """softmax of vectors [..., N] of bytes in units of 1 / 256 or 1 / 65536."""
    below = wide(x) - wide(x).max(axis=-1, keepdims=True)
    powers = exp_of_negative(wide(requantize(below, multiplier, shift)), 5)
    powers = np.where(below < diffmin, 0, powers)
    # Q12.19.
    total = _half_away(powers, 12).sum(axis=-1, keepdims=True)
    bits, info = _bit_length(total), np.iinfo(dtype)
    reciprocal = one_over_one_plus((total << 32 - bits) - _ONE)
    share = _half_away(_product(powers, reciprocal), bits + 11 - info.bits)
    return saturate(share + int(info.min), dtype)


def logistic(x: Any) -> np.ndarray:
    """1 / (1 + e**-x), Q4.27 to Q31."""
    x = wide(x)
    upper = one_over_one_plus(exp_of_negative(-abs(x), 4))
    return np.where(x == 0, _ONE // 2, np.where(x > 0, upper, _ONE - 1 - upper))


def exp_of_negative(x: Any, integer_bits: int) -> np.ndarray:
    """e**x in Q31, for x <= 0 with `integer_bits` bits before the point."""
    x, quarter = wide(x), 1 << 29 - integer_bits
    # x is -quarters / 4 - part, with a part in (0, 1/4].
    quarters = (-x - 1) // quarter
    value = _exp_within_quarter(x + quarters * quarter << integer_bits)
    for k in range(integer_bits + 2):
        factor = round(math.exp(-(2.0 ** (k - 2))) * _ONE)
        value = np.where(quarters >> k & 1, _product(value, factor), value)
    return np.where(x == 0, _ONE - 1, value)


def one_over_one_plus(t: Any) -> Any:
    """1 / (1 + t) for t in [0, 1], Q31."""
    half = (wide(t) + _ONE) // 2
    value = round(48 / 17 * 2**29) + _product(half, round(-32 / 17 * 2**29))
    for _ in range(3):
        error = 2**29 - _product(half, value)
        value = value + saturate(_product(value, error) * 4, np.int32)
    return saturate(value * 2, np.int32)


def _exp_within_quarter(x: Any) -> Any:
    """e**x for x in [-1/4, 0), Q31: a series around -1/8."""
    x = x + _ONE // 8
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_half_away(fourth, 2) + cube, round(_ONE / 3))
    bow = _half_away(third + square, 1)
    middle = round(math.exp(-0.125) * _ONE)
    return middle + _product(middle, x + bow)


def _half_away(value: Any, amount: Any) -> Any:
    return round_half_away(value, 1 << np.asarray(amount))


def _product(a: Any, b: Any) -> Any:
    return saturate(round_half_up(a * b, _ONE), np.int32)


def _bit_length(x: Any) -> np.ndarray:
    return np.vectorize(int.bit_length, otypes=[np.int64])(x.astype(object))
