"""Elementwise operators of one tensor (TOSA 1.0.1, "Elementwise Unary Operators").

Narrow floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.fixedpoint import saturate


def in_float32(function: Callable[..., jax.Array], *inputs: jax.Array) -> jax.Array:
    """Applies a float32 function to floats of one type and rounds its result to that type."""
    return function(*(x.astype(jnp.float32) for x in inputs)).astype(inputs[0].dtype)


def abs(input1: jax.Array) -> jax.Array:
    """ABS: the absolute value.

    Args:
      input1: int32 (-2**31 is unpredictable), float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "ABS").
    """
    return lax.abs(input1)


def bitwise_not(input1: jax.Array) -> jax.Array:
    """BITWISE_NOT: inverts every bit.

    Args:
      input1: int8, int16 or int32; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "BITWISE_NOT").
    """
    return lax.bitwise_not(input1)


def ceil(input1: jax.Array) -> jax.Array:
    """CEIL: the smallest integer that is not smaller.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "CEIL").
    """
    return in_float32(lax.ceil, input1)


def clz(input1: jax.Array) -> jax.Array:
    """CLZ: the number of leading zero bits.

    Args:
      input1: int32, any shape.

    Returns:
      int32 in [0, 32], the shape of `input1`.
    Source: (TOSA 1.0.1, "CLZ").
    """
    return lax.clz(input1)


def cos(input1: jax.Array) -> jax.Array:
    """COS: the cosine.

    Args:
      input1: float32, float16 or bfloat16, radians; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "COS").
    """
    return in_float32(lax.cos, input1)


def exp(input1: jax.Array) -> jax.Array:
    """EXP: e to the power of the value.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "EXP").
    """
    return in_float32(lax.exp, input1)


def floor(input1: jax.Array) -> jax.Array:
    """FLOOR: the largest integer that is not larger.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "FLOOR").
    """
    return in_float32(lax.floor, input1)


def log(input1: jax.Array) -> jax.Array:
    """LOG: the natural logarithm, NaN below zero.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "LOG").
    """
    return in_float32(lax.log, input1)


def logical_not(input1: jax.Array) -> jax.Array:
    """LOGICAL_NOT: true where the value is false.

    Args:
      input1: bool, any shape.

    Returns:
      bool, the shape of `input1`.
    Source: (TOSA 1.0.1, "LOGICAL_NOT").
    """
    return lax.bitwise_not(input1)


def negate(input1: jax.Array, input1_zp: jax.Array, output_zp: jax.Array) -> jax.Array:
    """NEGATE: output_zp - (input1 - input1_zp), saturated.

    Args:
      input1: int8, int16, int32, float32, float16 or bfloat16; any shape.
      input1_zp: (1,), the type of `input1`; any int8, zero for the other types.
      output_zp: (1,), the type of `input1`; any int8, zero for the other types.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "NEGATE").
    """
    if jnp.issubdtype(input1.dtype, jnp.floating):
        return lax.neg(input1)
    wide, zero_in, zero_out = (x.astype(jnp.int32) for x in (input1, input1_zp, output_zp))
    value = zero_out.reshape(()) - (wide - zero_in.reshape(()))
    return saturate(value, input1.dtype)


def reciprocal(input1: jax.Array) -> jax.Array:
    """RECIPROCAL: one divided by the value.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "RECIPROCAL").
    """
    return in_float32(lambda x: jnp.float32(1) / x, input1)


def rsqrt(input1: jax.Array) -> jax.Array:
    """RSQRT: one divided by the square root, NaN below zero.

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "RSQRT").
    """
    return in_float32(lax.rsqrt, input1)


def sin(input1: jax.Array) -> jax.Array:
    """SIN: the sine.

    Args:
      input1: float32, float16 or bfloat16, radians; any shape.

    Returns:
      The type and shape of `input1`.
    Source: (TOSA 1.0.1, "SIN").
    """
    return in_float32(lax.sin, input1)
