"""EXP, SIGMOID, TANH and ERF of float32 vectors, within a few units in the last place.

e**x is 2**n * e**r with |r| <= log(2) / 2, of which seven terms of the power series suffice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tosajax.native.codegen import floats
from tosajax.native.codegen.builder import Value
from tosajax.native.codegen.floats import add, constant, divide, multiply, multiply_add, subtract

# log(2), as a number of few bits, whose multiples are exact, and the rest.
_LOG2_HIGH, _LOG2_LOW = 355 / 512, math.log(2) - 355 / 512
_SERIES = [1 / math.factorial(n) for n in range(1, 8)]
# Beyond, e**x is infinite, or no normal number.
_LARGEST, _LEAST = 88.72284, -87.33654
# A sum with it is rounded to an integer, which its lowest bits have.
_ROUNDER = 1.5 * 2**23
_TANH_IS_1 = 10.0
# erf(x) / x in powers of x**2, fitted for |x| <= 1.5; behind it the tail of Abramowitz and Stegun,
# 7.1.26: 1 - t * poly(t) * e**-x**2, with t = 1 / (1 + p * x).
_ERF_SPLIT, _ERF_IS_1 = 1.5, 4.0
_ERF = (
    *(1.1283792257, -0.3761263490, 0.1128372848, -0.0268632136, 0.0052170348),
    *(-0.0008455719, 0.0001131539, -0.0000113444, 0.0000006223),
)
_TAIL_P = 0.3275911
_TAIL = 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429


def exponential(x: Value) -> Value:
    """e**x; 0 instead of subnormal numbers, NaN of NaN."""
    power, rest = _split(x)
    near = floats.of_bits(floats.to_bits(add(rest, constant(x, 1.0))) + (power << 23))
    # Infinite, or NaN.
    far = add(x, constant(x, math.inf))
    result = floats.greater_or_nan(x, constant(x, _LARGEST)).select(far, near)
    return floats.greater(constant(x, _LEAST), x).select(constant(x, 0.0), result)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e**-x)."""
    one = constant(x, 1.0)
    return divide(one, add(one, exponential(floats.negate(x))))


def tanh(x: Value) -> Value:
    """The hyperbolic tangent, of z = e**2|x| - 1: z / (z + 2), with the sign of x."""
    size = floats.absolute(x)
    near = floats.clamp(size, constant(x, 0.0), constant(x, _TANH_IS_1))
    power, rest = _split(add(near, near))
    factor = _power_of_two(power)
    less = multiply_add(factor, rest, subtract(factor, constant(x, 1.0)))
    return floats.with_sign(divide(less, add(less, constant(x, 2.0))), x)


def erf(x: Value) -> Value:
    """The error function."""
    size = floats.clamp(floats.absolute(x), constant(x, 0.0), constant(x, _ERF_IS_1))
    square, one = multiply(size, size), constant(x, 1.0)
    near = multiply(_polynomial(square, _ERF), size)
    t = divide(one, multiply_add(size, constant(x, _TAIL_P), one))
    rest = multiply(multiply(_polynomial(t, _TAIL), t), exponential(floats.negate(square)))
    is_far = floats.greater(size, constant(x, _ERF_SPLIT))
    return floats.with_sign(is_far.select(subtract(one, rest), near), x)


def _split(x: Value) -> tuple[Value, Value]:
    """n, in the lowest 9 bits of i32, and e**r - 1 of x = n * log(2) + r."""
    rounder = constant(x, _ROUNDER)
    shifted = multiply_add(x, constant(x, 1 / math.log(2)), rounder)
    whole = subtract(shifted, rounder)
    rest = multiply_add(whole, constant(x, -_LOG2_HIGH), x)
    rest = multiply_add(whole, constant(x, -_LOG2_LOW), rest)
    return floats.to_bits(shifted), multiply(_polynomial(rest, _SERIES), rest)


def _polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial, by Horner's rule; coefficients from the constant on."""
    *others, total = (constant(x, c) for c in coefficients)
    for coefficient in reversed(others):
        total = multiply_add(total, x, coefficient)
    return total


def _power_of_two(power: Value) -> Value:
    """2**n of the lowest 9 bits of i32, in [-126, 127]."""
    return floats.of_bits((power + 127) << 23)
