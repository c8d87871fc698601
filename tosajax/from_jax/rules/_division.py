"""Quotients and remainders of floats and integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.from_jax.rules._wide import in_float32, in_wide_type, is_integer, widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value


def div(step: Step, x: Value, y: Value) -> Value:
    """MUL by RECIPROCAL for floats (narrow ones in float32), within 2 ulp; INTDIV for integers.

    As in JAX, an integer divided by 0 is -1, and the smallest integer divided by -1 is itself.
    """
    if is_integer(x):
        return _integer_div(step, x, y)
    if x.scalar == 1 and y.shape == step.out.shape:
        return in_wide_type(step, "RECIPROCAL", y)
    if _has_exact_inverse(y):
        return step.jax(lambda x, y: x * (1 / y), x, y)
    if not y.is_known and jnp.finfo(x.dtype).nexp == 8:
        step.note("MUL by RECIPROCAL", "0.0, or NaN of infinity, for divisors beyond 2**126")
    return in_float32(step, lambda x, y: x * (1 / y), x, y)


def _has_exact_inverse(y: Value) -> bool:
    """Whether all elements are powers of two (or negative ones) with a normal reciprocal."""
    if not y.is_known:
        return False
    numbers = np.abs(np.asarray(y.held, np.float64))
    fractions, _ = np.frexp(numbers)
    most = 1 / float(jnp.finfo(y.dtype).smallest_normal)
    return bool(((fractions == 0.5) & (numbers >= 1 / most) & (numbers <= most)).all())


def rem(step: Step, x: Value, y: Value) -> Value:
    """x minus y times the quotient, which is rounded towards zero; it has the sign of x.

    As in JAX, the remainder of an integer divided by 0 is the integer.
    """
    if is_integer(x):
        return _integer_rem(step, x, y)
    step.note(
        "the quotient by RECIPROCAL",
        "where x / y is beyond 4096, by up to 2**-22 of x, or by y more where that passes 0; "
        "NaN where x / y overflows or y is beyond 2**115; remainders of -0.0 are 0.0",
    )
    return in_float32(step, _float_rem, x, y)


def _float_rem(x: jax.Array, y: jax.Array) -> jax.Array:
    """The remainder of floats.

    The quotient may be off by one, which is corrected. The divisor is multiplied in two halves of
    12 bits, whose products are exact.
    """
    dividend, divisor = jnp.abs(x), jnp.abs(y)
    high = _upper_half(divisor)
    count = jnp.floor(dividend * (1 / divisor))
    rest = (dividend - count * high) - count * (divisor - high)
    rest = jnp.where(rest < 0, rest + divisor, rest)
    rest = jnp.where(rest >= divisor, rest - divisor, rest)
    rest = jnp.where(dividend < divisor, dividend, rest)
    return jnp.where(x < 0, -rest, rest)


def _upper_half(size: jax.Array) -> jax.Array:
    """The upper 12 bits of the mantissas of numbers below 2**115 (T. J. Dekker)."""
    spread = size * 4097
    return spread - (spread - size)


def _integer_div(step: Step, x: Value, y: Value) -> Value:
    numerator, divisor = widened(step, "INTDIV", x, y)
    safe = step.jax(_safe_divisor, divisor)
    quotient = step.op("INTDIV", numerator, safe)
    return step.cast(step.jax(_quotient, numerator, divisor, quotient), x.dtype)


def _integer_rem(step: Step, x: Value, y: Value) -> Value:
    numerator, divisor = widened(step, "INTDIV", x, y)
    safe = step.jax(_safe_divisor, divisor)
    quotient = step.op("INTDIV", numerator, safe)
    return step.cast(step.jax(_remainder, numerator, divisor, safe, quotient), x.dtype)


def _safe_divisor(y: jax.Array) -> jax.Array:
    """y with 1 in place of 0 and -1, divisors for which INTDIV can be unpredictable."""
    return jnp.where((y == 0) | (y == -1), np.int32(1), y)


def _quotient(x: jax.Array, y: jax.Array, of_safe: jax.Array) -> jax.Array:
    return jnp.where(y == 0, np.int32(-1), jnp.where(y == -1, x * y, of_safe))


def _remainder(x: jax.Array, y: jax.Array, safe: jax.Array, of_safe: jax.Array) -> jax.Array:
    return jnp.where(y == 0, x, x - of_safe * safe)
