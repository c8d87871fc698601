"""Activations of the HiFi 5 NN Library as their definitions read, in Python integers.

Real values are Decimals of 50 digits, or float64 where there are many.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Decimal, localcontext

import numpy as np

from oracle.hifi_oracle import requantize, round_half_away, round_half_up, saturate

ONE = 2**31


# Correctly rounded functions of Q6.25.


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def tanh(x):
    power = (2 * x).exp()
    return (power - 1) / (power + 1)


def rounded(value, fraction, dtype):
    half_up = (value * 2**fraction + Decimal("0.5")).to_integral_value(ROUND_FLOOR)
    return saturate(int(half_up), dtype)


def exact(function, x, fraction, dtype):
    """A function of an integer in Q6.25, correctly rounded."""
    with localcontext() as context:
        context.prec = 50
        return rounded(function(Decimal(x) / 2**25), fraction, dtype)


def real_softmax(row):
    """Softmax of integers in Q6.25, as Decimals."""
    with localcontext() as context:
        context.prec = 50
        most = max(row)
        powers = [(Decimal(x - most) / 2**25).exp() for x in row]
        total = sum(powers)
        return [power / total for power in powers]


def in_float64(name, x):
    """A function of Q6.25 in float64."""
    real = np.asarray(x, np.float64) / 2**25
    if name == "tanh":
        return np.tanh(real)
    # Powers of numbers up to 0 do not overflow.
    power = np.exp(-np.abs(real))
    return np.where(real < 0, power, 1) / (1 + power)


# Fixed point with coefficients (sigmoid_scale, tanh_scale, exponential, reciprocal).


def _product(a, b):
    return saturate(round_half_up(a * b, ONE), np.int32)


def _polynomial(coefficients, x):
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = saturate(round_half_up(value * x + coefficient * ONE, ONE), np.int32)
    return value


def exponential(x, scale, coefficients):
    """e**-|x|, or e**-2|x| by the scale of tanh, in Q31."""
    exponent = abs(x * scale // ONE)
    power = _polynomial(coefficients, exponent % 2**23 * 2**8)
    return round_half_up(power, 2 ** (exponent // 2**23))


def reciprocal_of_one_plus(t, seed):
    result = _polynomial(seed, t)
    for _ in range(2):
        error = saturate(round_half_up((ONE - result) * ONE - t * result, ONE), np.int32)
        result = saturate(round_half_up(result * ONE + result * error, ONE), np.int32)
    return result


def fixed_sigmoid(x, coefficients, fraction, dtype):
    scale, _, exponential_of, seed = coefficients
    result = reciprocal_of_one_plus(exponential(x, scale, exponential_of), seed)
    result = ONE - result if x < 0 else result
    return saturate(round_half_up(result, 2 ** (31 - fraction)), dtype)


def fixed_tanh(x, coefficients, fraction, dtype):
    _, scale, exponential_of, seed = coefficients
    t = exponential(x, scale, exponential_of)
    result = _product(ONE - 1 - t, reciprocal_of_one_plus(t, seed))
    result = -result if x < 0 else result
    return saturate(round_half_up(result, 2 ** (31 - fraction)), dtype)


def fixed_softmax(row, coefficients):
    scale, _, exponential_of, seed = coefficients
    most = max(row)
    below = [saturate(x - most, np.int32) for x in row]
    powers = [exponential(x, scale, exponential_of) for x in below]
    total = saturate(round_half_up(sum(powers), 2**8), np.int32)  # Q8.23
    bits = total.bit_length()
    t = (total << (32 - bits)) - ONE
    reciprocal = reciprocal_of_one_plus(t, seed)
    # total is (1 + t) * 2**(bits - 24).
    return [round_half_up(power * reciprocal, 2 ** (47 + bits - 24)) for power in powers]


# Quantized: gemmlowp's fixed point. One is 2**31 - 1 where 2**31 is out of range.


def _half_away(value, amount):
    return round_half_away(value, 1 << amount)


def exp_of_negative(x, integer_bits):
    """e**x in Q31, x <= 0 with `integer_bits` bits before the point."""
    if x == 0:
        return ONE - 1
    one = 1 << (31 - integer_bits)
    quarters, part = divmod(-x, one // 4)
    # e**-part is a series around 1/8, for a part in (0, 1/4].
    if part == 0:
        quarters, part = quarters - 1, one // 4
    value = _series(-part << integer_bits)
    for k in range(integer_bits + 2):
        if quarters >> k & 1:
            value = _product(value, round(math.exp(-(2.0 ** (k - 2))) * ONE))
    return value


def _series(x):
    x += ONE // 8
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    third = _product(_half_away(fourth, 2) + cube, round(ONE / 3))
    bow = _half_away(third + square, 1)
    middle = round(math.exp(-0.125) * ONE)
    return middle + _product(middle, x + bow)


def one_over_one_plus(t):
    half = (t + ONE) // 2
    value = round(48 / 17 * 2**29) + _product(half, round(-32 / 17 * 2**29))
    for _ in range(3):
        error = 2**29 - _product(half, value)
        value += saturate(_product(value, error) * 4, np.int32)
    return saturate(value * 2, np.int32)


def logistic(x):
    """Q4.27 to Q31."""
    if x == 0:
        return ONE // 2
    upper = one_over_one_plus(exp_of_negative(-abs(x), 4))
    return upper if x > 0 else ONE - 1 - upper


def sigmoid_asym8u(x, zero_point, radius, multiplier, shift):
    centred = x - zero_point
    if centred < -radius:
        return 0
    if centred > radius:
        return 255
    return min(_half_away(logistic(requantize(centred, multiplier, shift)), 23), 255)


def softmax_quantized(row, diffmin, shift, multiplier, dtype):
    bits = np.iinfo(dtype).bits
    most = max(row)
    powers = [
        exp_of_negative(requantize(x - most, multiplier, shift), 5) if x - most >= diffmin else 0
        for x in row
    ]
    total = sum(_half_away(power, 12) for power in powers)  # Q12.19
    scale = total.bit_length()
    reciprocal = one_over_one_plus((total << (32 - scale)) - ONE)
    amount = scale - 20 + 31 - bits
    least = int(np.iinfo(dtype).min)
    shares = [_half_away(_product(power, reciprocal), amount) for power in powers]
    return [saturate(share + least, dtype) for share in shares]
