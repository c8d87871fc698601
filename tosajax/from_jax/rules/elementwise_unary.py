"""Elementwise primitives of one operand ("Elementwise Unary Operators", TOSA 1.0.1)."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.from_jax.rules import _functions
from tosajax.from_jax.rules._wide import in_float32, in_wide_type, is_integer, widened
from tosajax.from_jax.rules.elementwise_binary import mul
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value, known
from tosajax.spec import NanMode

_OPERATORS = {
    "ceil": "CEIL",
    "cos": "COS",
    "erf": "ERF",
    "exp": "EXP",
    "floor": "FLOOR",
    "log": "LOG",
    "logistic": "SIGMOID",
    "rsqrt": "RSQRT",
    "sin": "SIN",
    "tanh": "TANH",
}


def operator(step: Step, x: Value) -> Value:
    """The TOSA operator for the same function."""
    return in_wide_type(step, _OPERATORS[step.primitive], x)


_COMPOSED = {
    "acos": _functions.acos,
    "acosh": _functions.acosh,
    "asin": _functions.asin,
    "asinh": _functions.asinh,
    "atan": _functions.atan,
    "atanh": _functions.atanh,
    "cbrt": _functions.cbrt,
    "cosh": _functions.cosh,
    "erf_inv": _functions.erf_inv,
    "erfc": _functions.erfc,
    "expm1": _functions.expm1,
    "log1p": _functions.log1p,
    "sinh": _functions.sinh,
    "sqrt": _functions.sqrt,
    "tan": _functions.tan,
}

# Differences from JAX beyond the rounding of the last few bits.
_DIFFERENCES = {
    "atanh": ("the difference of two logarithms", "-0.0 gives 0.0"),
    "erfc": ("1 - ERF", "by up to 2**-22, so that results below that are lost"),
    "log1p": ("LOG of the sum, and what the sum lost", "-0.0 gives 0.0"),
    "round": ("CAST to integers and back", "what rounds to -0.0 gives 0.0"),
}


def composed(step: Step, x: Value) -> Value:
    """Several operators, in float32."""
    _note(step)
    return in_float32(step, _COMPOSED[step.primitive], x)


def _note(step: Step) -> None:
    if step.primitive in _DIFFERENCES:
        step.note(*_DIFFERENCES[step.primitive])


def exp2(step: Step, x: Value) -> Value:
    """POW with base 2."""
    return in_float32(step, lambda x: lax.pow(jnp.full_like(x, 2), x), x)


def neg(step: Step, x: Value) -> Value:
    """NEGATE for floats; MUL by -1 for integers, which wraps (NEGATE saturates)."""
    if is_integer(x):
        return mul(step, x, step.like(-1, x))
    (wide,) = widened(step, "NEGATE", x)
    zero = step.constant([0], wide.dtype)
    return step.cast(step.op("NEGATE", wide, zero, zero), x.dtype)


def abs(step: Step, x: Value) -> Value:
    """ABS; the larger of x and -x for int32, as ABS does not take the smallest integer."""
    if x.dtype == np.int32:
        return step.jax(lambda x: lax.max(x, -x), x)
    return in_wide_type(step, "ABS", x)


def sign(step: Step, x: Value) -> Value:
    """CLAMP to [-1, 1] for integers; comparisons with 0 for floats, where zeros and NaN stay."""
    if is_integer(x):
        return step.jax(lambda x: lax.clamp(x.dtype.type(-1), x, x.dtype.type(1)), x)
    one = x.dtype.type(1)
    return step.jax(lambda x: jnp.where(x > 0, one, jnp.where(x < 0, -one, x)), x)


def round(step: Step, x: Value) -> Value:
    """CAST to int32 and back for ties to even; FLOOR of the magnitude for ties away from zero."""
    _note(step)
    if step.params["rounding_method"] is lax.RoundingMethod.AWAY_FROM_ZERO:
        return in_float32(step, _rounded_away, x)
    (wide,) = widened(step, "CLAMP", x)
    most = wide.dtype.type(2.0 ** jnp.finfo(wide.dtype).nmant)
    ends = {"min_val": -most, "max_val": most}
    inside = step.op("CLAMP", wide, nan_mode=NanMode.IGNORE, **ends)
    rounded = step.cast(step.cast(inside, np.int32), wide.dtype)
    is_inside = step.op("EQUAL", inside, wide)
    return step.cast(step.op("SELECT", is_inside, rounded, wide), x.dtype)


def _rounded_away(x: jax.Array) -> jax.Array:
    size = jnp.abs(x)
    whole = jnp.floor(size)
    result = jnp.where(size - whole >= 0.5, whole + 1, whole)
    return jnp.where(x < 0, -result, result)


def is_finite(step: Step, x: Value) -> Value:
    """GREATER of infinity and ABS, which is false for NaN."""
    (wide,) = widened(step, "ABS", x)
    return step.op("GREATER", step.like(np.inf, wide), step.op("ABS", wide))


def not_(step: Step, x: Value) -> Value:
    """LOGICAL_NOT or BITWISE_NOT."""
    return in_wide_type(step, "LOGICAL_NOT" if x.dtype == np.bool_ else "BITWISE_NOT", x)


def square(step: Step, x: Value) -> Value:
    """MUL by itself."""
    return mul(step, x, x)


def one_minus_square(step: Step, x: Value) -> Value:
    """1 minus the square, which JAX 0.12 uses in the derivative of tanh."""
    return step.jax(lambda x: 1 - x * x, x)


def integer_pow(step: Step, x: Value) -> Value:
    """MULs by repeated squaring, in JAX's order; RECIPROCAL of the product for negative powers."""
    power = step.params["y"]
    if power == 0:
        return step.broadcast(step.like(1, x), x.shape, ())
    product = _product(step, x, max(power, -power))
    return product if power > 0 else in_wide_type(step, "RECIPROCAL", product)


def _product(step: Step, x: Value, count: int) -> Value:
    """The product of `count` factors x, by repeated squaring."""
    squares = [x]
    for _ in range(count.bit_length() - 1):
        squares.append(mul(step, squares[-1], squares[-1]))
    factors = [square for at, square in enumerate(squares) if count >> at & 1]
    return functools.reduce(functools.partial(mul, step), factors)


def population_count(step: Step, x: Value) -> Value:
    """TABLE for int8, else sums of neighbouring bits."""
    if x.dtype == np.int8:
        return _looked_up(step, x)
    if x.dtype == np.int16:
        return step.jax(lambda v: _set_bits(v.astype(np.int32) & 0xFFFF).astype(np.int16), x)
    return step.jax(_set_bits, x)


def clz(step: Step, x: Value) -> Value:
    """CLZ; TABLE for int8; CLZ in int32 minus 16 for int16."""
    if x.dtype == np.int8:
        return _looked_up(step, x)
    if x.dtype == np.int16:
        return step.jax(lambda v: (lax.clz(v.astype(np.int32) & 0xFFFF) - 16).astype(np.int16), x)
    return in_wide_type(step, "CLZ", x)


def _looked_up(step: Step, x: Value) -> Value:
    """A TABLE of the primitive's results for all values of int8."""
    results = getattr(lax, step.primitive)(np.arange(-128, 128, dtype=np.int8))
    return step.op("TABLE", x, known(results))


def _set_bits(v: jax.Array) -> jax.Array:
    """The number of set bits of an int32, by sums that do not overflow."""
    shift = lax.shift_right_logical
    above = shift(v, jnp.full_like(v, 1))
    pairs = ((above ^ v) & 0x55555555) | ((above & v & 0x55555555) << 1)
    fours = (pairs & 0x33333333) + (shift(pairs, jnp.full_like(v, 2)) & 0x33333333)
    eights = (fours + shift(fours, jnp.full_like(v, 4))) & 0x0F0F0F0F
    return shift(eights * 0x01010101, jnp.full_like(v, 24))


RULES = {
    **dict.fromkeys(_OPERATORS, operator),
    **dict.fromkeys(_COMPOSED, composed),
    "abs": abs,
    "clz": clz,
    "exp2": exp2,
    "integer_pow": integer_pow,
    "is_finite": is_finite,
    "neg": neg,
    "not": not_,
    "one_minus_square": one_minus_square,
    "population_count": population_count,
    "round": round,
    "sign": sign,
    "square": square,
}
