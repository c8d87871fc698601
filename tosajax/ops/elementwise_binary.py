"""Elementwise operators of two tensors (TOSA 1.0.1, "Elementwise Binary Operators").

Both inputs have one rank; an axis of size 1 is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from tosajax.fixedpoint import apply_lookup
from tosajax.fixedpoint.scale import multiply_and_shift
from tosajax.ops.elementwise_unary import flush, in_float32
from tosajax.ops.recording import recorded
from tosajax.spec.enums import NanMode


@recorded
def add(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The sum (TOSA 1.0.1, "ADD").

    Args:
      input1: int32 (overflow is unpredictable), float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.add(jnp.int32([[1], [2]]), jnp.int32([[10, 20]])).tolist()
      [[11, 21], [12, 22]]
    """
    return _arithmetic(jnp.add, input1, input2)


@recorded
def arithmetic_right_shift(input1: jax.Array, input2: jax.Array, *, round: bool) -> jax.Array:
    """Shifts right and keeps the sign (TOSA 1.0.1, "ARITHMETIC_RIGHT_SHIFT").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, bits in [0, width); a shape that broadcasts with it.
      round: rounds half up instead of down.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> x, bits = jnp.int32([-6, -5, 5, 6]), jnp.int32([2])
      >>> tosajax.ops.arithmetic_right_shift(x, bits, round=False).tolist()
      [-2, -2, 1, 1]
      >>> tosajax.ops.arithmetic_right_shift(x, bits, round=True).tolist()
      [-1, -1, 1, 2]
    """
    result = jnp.right_shift(input1, input2)
    if round:
        one, zero = (jnp.asarray(n, input1.dtype) for n in (1, 0))
        last_out = jnp.right_shift(input1, input2 - one) & one
        result = result + jnp.where(input2 > zero, last_out, zero)
    return result


@recorded
def bitwise_and(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The bits set in both (TOSA 1.0.1, "BITWISE_AND").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.bitwise_and(jnp.int8([0b1100]), jnp.int8([0b1010])).tolist()
      [8]
    """
    return jnp.bitwise_and(input1, input2)


@recorded
def bitwise_or(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The bits set in either (TOSA 1.0.1, "BITWISE_OR").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.bitwise_or(jnp.int8([0b1100]), jnp.int8([0b1010])).tolist()
      [14]
    """
    return jnp.bitwise_or(input1, input2)


@recorded
def bitwise_xor(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The bits that differ (TOSA 1.0.1, "BITWISE_XOR").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.bitwise_xor(jnp.int8([0b1100]), jnp.int8([0b1010])).tolist()
      [6]
    """
    return jnp.bitwise_xor(input1, input2)


@recorded
def intdiv(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The quotient, truncated toward zero (TOSA 1.0.1, "INTDIV").

    Args:
      input1: int32.
      input2: int32, a shape that broadcasts with `input1`; 0, and -1 under -2**31, are
        unpredictable.

    Returns:
      int32, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.intdiv(jnp.int32([-7, 7]), jnp.int32([2])).tolist()
      [-3, 3]
    """
    return lax.div(*jnp.broadcast_arrays(input1, input2))


@recorded
def logical_and(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """True where both are true (TOSA 1.0.1, "LOGICAL_AND").

    Args:
      input1: bool.
      input2: bool, a shape that broadcasts with `input1`.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_and(jnp.bool_([True, True]), jnp.bool_([True, False])).tolist()
      [True, False]
    """
    return jnp.logical_and(input1, input2)


@recorded
def logical_left_shift(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Shifts left within the width of the type (TOSA 1.0.1, "LOGICAL_LEFT_SHIFT").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, bits in [0, width); a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_left_shift(jnp.int8([1, 127]), jnp.int8([1])).tolist()
      [2, -2]
    """
    return jnp.left_shift(input1, input2)


@recorded
def logical_right_shift(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Shifts right within the type and fills with zeros (TOSA 1.0.1, "LOGICAL_RIGHT_SHIFT").

    Args:
      input1: int8, int16 or int32.
      input2: the type of `input1`, bits in [0, width); a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_right_shift(jnp.int8([8, -1]), jnp.int8([1])).tolist()
      [4, 127]
    """
    return lax.shift_right_logical(*jnp.broadcast_arrays(input1, input2))


@recorded
def logical_or(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """True where either is true (TOSA 1.0.1, "LOGICAL_OR").

    Args:
      input1: bool.
      input2: bool, a shape that broadcasts with `input1`.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_or(jnp.bool_([True, False]), jnp.bool_([False])).tolist()
      [True, False]
    """
    return jnp.logical_or(input1, input2)


@recorded
def logical_xor(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """True where the two differ (TOSA 1.0.1, "LOGICAL_XOR").

    Args:
      input1: bool.
      input2: bool, a shape that broadcasts with `input1`.

    Returns:
      bool, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.logical_xor(jnp.bool_([True, False]), jnp.bool_([True])).tolist()
      [False, True]
    """
    return jnp.logical_xor(input1, input2)


@recorded
def maximum(
    input1: jax.Array, input2: jax.Array, *, nan_mode: NanMode = NanMode.PROPAGATE
) -> jax.Array:
    """The larger value (TOSA 1.0.1, "MAXIMUM").

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.
      nan_mode: whether a NaN operand gives NaN or the value that is a number.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> from tosajax.spec import NanMode
      >>> x, y = jnp.float32([1, jnp.nan]), jnp.float32([2, 2])
      >>> tosajax.ops.maximum(x, y).tolist()
      [2.0, nan]
      >>> tosajax.ops.maximum(x, y, nan_mode=NanMode.IGNORE).tolist()
      [2.0, 2.0]
    """
    if nan_mode == NanMode.IGNORE and jnp.issubdtype(input1.dtype, jnp.floating):
        input1, input2 = _other_where_nan(input1, input2)
    return jnp.maximum(input1, input2)


@recorded
def minimum(
    input1: jax.Array, input2: jax.Array, *, nan_mode: NanMode = NanMode.PROPAGATE
) -> jax.Array:
    """The smaller value (TOSA 1.0.1, "MINIMUM").

    Args:
      input1: int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.
      nan_mode: whether a NaN operand gives NaN or the value that is a number.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> from tosajax.spec import NanMode
      >>> x, y = jnp.float32([1, jnp.nan]), jnp.float32([2, 2])
      >>> tosajax.ops.minimum(x, y).tolist()
      [1.0, nan]
      >>> tosajax.ops.minimum(x, y, nan_mode=NanMode.IGNORE).tolist()
      [1.0, 2.0]
    """
    if nan_mode == NanMode.IGNORE and jnp.issubdtype(input1.dtype, jnp.floating):
        input1, input2 = _other_where_nan(input1, input2)
    return jnp.minimum(input1, input2)


@recorded
def mul(input1: jax.Array, input2: jax.Array, shift: jax.Array) -> jax.Array:
    """The product, for int32 shifted right with rounding half up (TOSA 1.0.1, "MUL").

    Args:
      input1: int8, int16, int32, float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.
      shift: int8, (1,), in [0, 63], 0 but for int32; 0 gives the low 32 bits of the product, else
        a result beyond int32 is unpredictable.

    Returns:
      int32, or the type of `input1` for floats; the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.mul(jnp.int8([100]), jnp.int8([100]), jnp.int8([0])).tolist()
      [10000]
      >>> tosajax.ops.mul(jnp.int32([2**20]), jnp.int32([2**20]), jnp.int8([30])).tolist()
      [1024]
    """
    if input1.dtype == jnp.int32:
        return multiply_and_shift(input1, input2, shift.reshape(()))
    if jnp.issubdtype(input1.dtype, jnp.integer):
        return input1.astype(jnp.int32) * input2.astype(jnp.int32)
    return _arithmetic(jnp.multiply, input1, input2)


@recorded
def pow(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """Input1 to the power of input2 (TOSA 1.0.1, "POW").

    Args:
      input1: float32, float16 or bfloat16; finite, not negative; subnormal float32 and bfloat16
        are 0.
      input2: the type of `input1`, finite, positive where `input1` is zero; a shape that broadcasts
        with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.pow(jnp.float32([2, 4]), jnp.float32([3])).tolist()
      [8.0, 64.0]
    """
    return in_float32(lambda x, y: jnp.power(flush(x), y), input1, input2)


@recorded
def sub(input1: jax.Array, input2: jax.Array) -> jax.Array:
    """The difference (TOSA 1.0.1, "SUB").

    Args:
      input1: int32 (overflow is unpredictable), float32, float16 or bfloat16.
      input2: the type of `input1`, a shape that broadcasts with it.

    Returns:
      The type of `input1`, the broadcast shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> tosajax.ops.sub(jnp.int32([1, 2]), jnp.int32([10])).tolist()
      [-9, -8]
    """
    return _arithmetic(jnp.subtract, input1, input2)


@recorded
def table(input1: jax.Array, table: jax.Array) -> jax.Array:
    """Looks up int8 values; int16 values are interpolated between entries (TOSA 1.0.1, "TABLE").

    Args:
      input1: int8 or int16, any shape.
      table: int8, (256,); or int16, (513,), neighbours less than 2**15 apart.

    Returns:
      int8; or int32, 16.7 fixed point; the shape of `input1`.

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> entries = jnp.arange(127, -129, -1).astype(jnp.int8)  # for -128, -127, ... 127
      >>> tosajax.ops.table(jnp.int8([-128, 0, 5]), entries).tolist()
      [127, -1, -6]
    """
    if input1.dtype == jnp.int16:
        return apply_lookup(table, input1)
    index = input1.astype(jnp.int32) + 128
    # The index is in [0, 255] by construction.
    return table.at[index].get(mode="promise_in_bounds")


def _arithmetic(
    function: Callable[..., jax.Array], input1: jax.Array, input2: jax.Array
) -> jax.Array:
    if input1.dtype == jnp.int32:
        return function(input1, input2)
    return in_float32(function, input1, input2)


def _other_where_nan(input1: jax.Array, input2: jax.Array) -> tuple[jax.Array, jax.Array]:
    return (
        jnp.where(jnp.isnan(input1), input2, input1),
        jnp.where(jnp.isnan(input2), input1, input2),
    )
