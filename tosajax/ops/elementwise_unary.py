"""Elementwise operators of one tensor (TOSA 1.0.1, "Elementwise Unary Operators").

Narrow floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.fixedpoint import saturate
from tosajax.ops.recording import recorded


def in_float32(function: Callable[..., jax.Array], *inputs: jax.Array) -> jax.Array:
    """Applies a float32 function to floats of one type and rounds its result to that type."""
    return function(*(x.astype(jnp.float32) for x in inputs)).astype(inputs[0].dtype)


def flush(x: jax.Array) -> jax.Array:
    """Replaces subnormal float32 values by zeros, which the specification permits.

    XLA:CPU computes the same logarithm for all subnormal values, or the logarithm of 0, depending
    on the length of the array. The gradient is the gradient of `x`.
    """
    subnormal = lax.abs(x) < jnp.finfo(jnp.float32).smallest_normal
    return x + lax.stop_gradient(jnp.where(subnormal, -x, jnp.float32(0)))


@recorded
def abs(input1: jax.Array) -> jax.Array:
    """The absolute value (TOSA 1.0.1, "ABS").

    Args:
      input1: int32 (-2**31 is unpredictable), float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.abs(jnp.int32([-3, 3])).tolist()
      [3, 3]
    """
    return lax.abs(input1)


@recorded
def bitwise_not(input1: jax.Array) -> jax.Array:
    """Inverts every bit (TOSA 1.0.1, "BITWISE_NOT").

    Args:
      input1: int8, int16 or int32; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.bitwise_not(jnp.int8([0, 127])).tolist()
      [-1, -128]
    """
    return lax.bitwise_not(input1)


@recorded
def ceil(input1: jax.Array) -> jax.Array:
    """The smallest integer that is not smaller (TOSA 1.0.1, "CEIL").

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.ceil(jnp.float32([-1.5, 1.5])).tolist()
      [-1.0, 2.0]
    """
    return in_float32(lax.ceil, input1)


@recorded
def clz(input1: jax.Array) -> jax.Array:
    """The number of leading zero bits (TOSA 1.0.1, "CLZ").

    Args:
      input1: int32, any shape.

    Returns:
      int32 in [0, 32], the shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.clz(jnp.int32([0, 1, -1])).tolist()
      [32, 31, 0]
    """
    # XLA's constant folding gives -32 for negative numbers.
    return jnp.where(input1 < 0, jnp.int32(0), _leading_zeros(input1))


@recorded
def cos(input1: jax.Array) -> jax.Array:
    """The cosine (TOSA 1.0.1, "COS").

    Args:
      input1: float32, float16 or bfloat16, radians; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.cos(jnp.float32([0])).tolist()
      [1.0]
    """
    return in_float32(lax.cos, input1)


@recorded
def exp(input1: jax.Array) -> jax.Array:
    """E to the power of the value (TOSA 1.0.1, "EXP").

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.exp(jnp.float32([-jnp.inf, 0])).tolist()
      [0.0, 1.0]
    """
    return in_float32(_exp, input1)


def _exp(x: jax.Array) -> jax.Array:
    """The exponential of float32, with the same bits for any number of values.

    XLA:CPU has its own exponential, but calls the C library for 3, 5, 6 or 7 values that stand
    alone or follow 8 values.
    """
    missing = -x.size % 4
    if x.size >= 16 or not missing:
        return lax.exp(x)
    filled = lax.exp(lax.pad(x.reshape(-1), np.float32(0), [(0, missing, 0)]))
    return lax.optimization_barrier(filled)[: x.size].reshape(x.shape)


@recorded
def floor(input1: jax.Array) -> jax.Array:
    """The largest integer that is not larger (TOSA 1.0.1, "FLOOR").

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.floor(jnp.float32([-1.5, 1.5])).tolist()
      [-2.0, 1.0]
    """
    return in_float32(lax.floor, input1)


@recorded
def log(input1: jax.Array) -> jax.Array:
    """The natural logarithm, NaN below zero (TOSA 1.0.1, "LOG").

    Args:
      input1: float32, float16 or bfloat16, subnormal float32 and bfloat16 being 0; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.log(jnp.float32([-1, 0, 1])).tolist()
      [nan, -inf, 0.0]
    """
    return in_float32(lambda x: lax.log(flush(x)), input1)


@recorded
def logical_not(input1: jax.Array) -> jax.Array:
    """True where the value is false (TOSA 1.0.1, "LOGICAL_NOT").

    Args:
      input1: bool, any shape.

    Returns:
      bool, the shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_not(jnp.bool_([True, False])).tolist()
      [False, True]
    """
    return lax.bitwise_not(input1)


@recorded
def negate(input1: jax.Array, input1_zp: jax.Array, output_zp: jax.Array) -> jax.Array:
    """Output_zp - (input1 - input1_zp), saturated (TOSA 1.0.1, "NEGATE").

    Args:
      input1: int8, int16, int32, float32, float16 or bfloat16; any shape.
      input1_zp: (1,), the type of `input1`; any value for int8, zero for all other types.
      output_zp: (1,), the type of `input1`; any value for int8, zero for all other types.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.negate(jnp.int8([-128, 5]), jnp.int8([0]), jnp.int8([1])).tolist()
      [127, -4]
    """
    if jnp.issubdtype(input1.dtype, jnp.floating):
        return lax.neg(input1)
    wide, zero_in, zero_out = (x.astype(jnp.int32) for x in (input1, input1_zp, output_zp))
    value = zero_out.reshape(()) - (wide - zero_in.reshape(()))
    return saturate(value, input1.dtype)


@recorded
def reciprocal(input1: jax.Array) -> jax.Array:
    """One divided by the value (TOSA 1.0.1, "RECIPROCAL").

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.reciprocal(jnp.float32([4, 0])).tolist()
      [0.25, inf]
    """
    return in_float32(lambda x: jnp.float32(1) / x, input1)


@recorded
def rsqrt(input1: jax.Array) -> jax.Array:
    """One divided by the square root, NaN below zero (TOSA 1.0.1, "RSQRT").

    Args:
      input1: float32, float16 or bfloat16; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.rsqrt(jnp.float32([4, 0, -1])).tolist()
      [0.5, inf, nan]
    """
    return in_float32(lax.rsqrt, input1)


@recorded
def sin(input1: jax.Array) -> jax.Array:
    """The sine (TOSA 1.0.1, "SIN").

    Args:
      input1: float32, float16 or bfloat16, radians; any shape.

    Returns:
      The type and shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.sin(jnp.float32([0])).tolist()
      [0.0]
    """
    return in_float32(lax.sin, input1)


@jax.custom_jvp
def _leading_zeros(x: jax.Array) -> jax.Array:
    return lax.clz(x)


@_leading_zeros.defjvp
def _leading_zeros_jvp(primals: tuple[jax.Array], tangents: tuple[Any]) -> tuple[jax.Array, Any]:
    """JAX has no rule for CLZ, not even that integers have no gradient."""
    del tangents
    zeros = _leading_zeros(*primals)
    return zeros, np.zeros(zeros.shape, jax.dtypes.float0)
