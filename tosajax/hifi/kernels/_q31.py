"""Products of int32 with Q31 fractions, and polynomials and reciprocals in Q31.

Products have 63 bits and are computed in int64: CPUs and GPUs have an instruction that multiplies
two int32 to an int64.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import _x64, qformat
from tosajax.hifi.kernels import _narrow
from tosajax.hifi.kernels._precision import Integers, as_int32
from tosajax.ops.recording import is_recording

_NEWTON_STEPS = 2


def multiply_floor(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes a * b / 2**31, rounded down: an integer times a Q31 fraction.

    Args:
      a: int32, any shape.
      b: int32, a scalar or the shape of `a`; `a` and `b` are not both -2**31.

    Returns:
      int32, the shape of `a`.
    """
    if is_recording():
        return _narrow.multiply_floor(a, b)
    with _x64.scope():
        product = _x64.widen(a) * _x64.widen(b)
        return lax.convert_element_type(product >> np.int64(31), np.int32)


def multiply_half_up(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes `qformat.multiply_q31_half_up`."""
    return (_narrow if is_recording() else qformat).multiply_q31_half_up(a, b)


def multiply_half_away(a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes `qformat.multiply_q31_half_away`."""
    return (_narrow if is_recording() else qformat).multiply_q31_half_away(a, b)


def multiply_add(a: jax.Array, b: jax.Array, c: Integers) -> jax.Array:
    """Computes c + a * b / 2**31, rounded half up and saturated once.

    Args:
      a: int32, any shape.
      b: int32, the shape of `a`.
      c: int32, a scalar or the shape of `a`.

    Returns:
      int32, the shape of `a`.
    """
    if is_recording():
        return _narrow.multiply_add(a, b, c)
    with _x64.scope():
        start = (_x64.widen(jnp.asarray(c)) << np.int64(31)) + np.int64(1 << 30)
        total = (_x64.widen(a) * _x64.widen(b) + start) >> np.int64(31)
        return qformat.saturate_to(total, np.int32)


def polynomial(coefficients: Iterable[Integers], x: jax.Array) -> jax.Array:
    """Evaluates a polynomial in Q31 by Horner's rule, rounded and saturated after each step.

    Args:
      coefficients: int32 scalars in Q31, highest power first.
      x: int32 in Q31, any shape.

    Returns:
      int32 in Q31, the shape of `x`.
    """
    first, *others = map(as_int32, coefficients)
    value = jnp.broadcast_to(first, x.shape)
    for coefficient in others:
        value = multiply_add(value, x, coefficient)
    return value


def reciprocal_of_one_plus(t: jax.Array, seed: Iterable[Integers]) -> jax.Array:
    """Computes 1 / (1 + t) by two steps of Newton's method.

    Args:
      t: int32 in Q31, not negative; any shape.
      seed: int32 scalars in Q31, highest power first: a polynomial that approximates 1 / (1 + t).

    Returns:
      int32 in Q31, the shape of `t`.
    """
    result = polynomial(seed, t)
    for _ in range(_NEWTON_STEPS):
        error = multiply_add(-t, result, one_less(result))
        result = multiply_add(result, error, result)
    return result


def one_less(x: jax.Array) -> jax.Array:
    """Computes 1 - x in Q31, for int32 x above 0."""
    return jnp.int32(2**31 - 1) - x + jnp.int32(1)
