"""64-bit arithmetic built from operators of at most 32 bits, which TOSA has.

Kernels and layers use it while their calls are recorded for export as graphs of TOSA's operators.
Results are equal to their usual arithmetic. Sums of int16 products are computed from bytes, whose
products have int32 sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.hifi.kernels._precision import Array, Integers, Shift
from tosajax.report import UnsupportedError

_MINIMUM, _MAXIMUM = -(2**31), 2**31 - 1
# The largest number of int16 products in a sum, for which sums of byte products fit int32.
MOST_PRODUCTS = 2**15
_BYTE = 8
_WORD = 16
# A function that sums products of bytes: (x, weight, x_zp, weight_zp), int8 to int32.
Sums = Callable[[Array, Array, int, int], jax.Array]


class Wide(NamedTuple):
    """48-bit integers, represented as high * 2**16 + low.

    Args:
      high: int32, any shape.
      low: int32 in [0, 2**16), the shape of `high`.
    """

    high: jax.Array
    low: jax.Array


# Products of fractions.


def multiply_floor(a: Array, b: Integers) -> jax.Array:
    """Computes `_q31.multiply_floor` from products of 16-bit and 15-bit halves."""
    is_static = _is_number(b)
    xp: Any = np if is_static else jnp
    # b = rest + whole * 2**31, with rest in [-2**30, 2**30], so that no product overflows.
    whole = xp.where(b >= 2**30, 1, xp.where(b < -(2**30), -1, 0)).astype(np.int32)
    rest = xp.int32(b - whole * 2**30) - xp.int32(whole * 2**30)
    a_high, a_low = a >> 16, a & 0xFFFF
    b_high, b_low = rest >> 15, rest & 0x7FFF
    of_low = (a_low * b_high + (a_low * b_low >> 15)) >> 1
    of_rest = a_high * b_high + ((a_high * b_low + of_low) >> 15)
    if is_static and whole == 0:
        return of_rest
    of_both = (a + of_rest * whole) * whole
    return of_both if is_static else jnp.where(whole == 0, of_rest, of_both)


def multiply_q31_half_up(a: Array, b: Array) -> jax.Array:
    """Computes `qformat.multiply_q31_half_up` with MUL; one of `a` and `b` may be a scalar."""
    a, b = _same_rank(a, b)
    return ops.mul(a, _but_minima(a, b), jnp.asarray([31], jnp.int8))


def multiply_q31_half_away(a: Array, b: Array) -> jax.Array:
    """Computes `qformat.multiply_q31_half_away`; as MUL rounds ties up, it negates products < 0."""
    flips = ((a ^ b) < 0) & (a > _MINIMUM)  # products of the minimum are never ties
    result = multiply_q31_half_up(jnp.where(flips, -jnp.maximum(a, -_MAXIMUM), a), b)
    return jnp.where(flips, -result, result)


def multiply_add(a: Array, b: Array, c: Integers) -> jax.Array:
    """Computes `_q31.multiply_add`; `a` and `b` are not both -2**31."""
    a, b = _same_rank(a, b)
    return saturating_add(ops.mul(a, b, jnp.asarray([31], jnp.int8)), c)


def saturating_add(a: jax.Array, b: Integers) -> jax.Array:
    """Computes a + b in int32, saturated; for a constant `b` only one bound is needed."""
    if _is_number(b):
        limited = jnp.minimum(a, _MAXIMUM - int(b)) if b >= 0 else jnp.maximum(a, _MINIMUM - int(b))
        return limited + np.int32(b)
    low = _MINIMUM - jnp.minimum(b, 0)
    high = _MAXIMUM - jnp.maximum(b, 0)
    return jnp.minimum(jnp.maximum(a, low), high) + b


def _is_number(x: Any) -> bool:
    return not isinstance(x, jax.Array) and np.ndim(x) == 0


def _same_rank(a: Array, b: Array) -> tuple[jax.Array, jax.Array]:
    rank = max(np.ndim(a), np.ndim(b))
    first, second = (
        jnp.asarray(x).reshape((1,) * (rank - np.ndim(x)) + np.shape(x)) for x in (a, b)
    )
    return first, second


def _but_minima(a: Array, b: jax.Array) -> jax.Array:
    """Replaces b by -(2**31 - 1) where a and b are -2**31, which gives the saturated product."""
    return jnp.where((a == _MINIMUM) & (b == _MINIMUM), -_MAXIMUM, b)


# Sums of products.


def products(x: Array, weight: Array, count: int, sums: Sums) -> Wide:
    """Computes sums of `count` products of int16 or int8; at least one operand is int16.

    Raises:
      UnsupportedError: `count` is so large that sums of byte products could overflow.
    """
    if count > MOST_PRODUCTS:
        wanted = f"at most {MOST_PRODUCTS}"
        raise UnsupportedError(f"sums of {count} products of int16, expected {wanted}")
    totals: list[Any] = [0, 0, 0]  # the sums with weights 2**0, 2**8 and 2**16
    for i, (x_byte, x_zp) in enumerate(_bytes(x)):
        for j, (weight_byte, weight_zp) in enumerate(_bytes(weight)):
            totals[i + j] += sums(x_byte, weight_byte, x_zp, weight_zp)
    first = totals[0]
    second = totals[1] + (first >> _BYTE)
    third = totals[2] + (second >> _BYTE)
    return Wide(third, (second & 0xFF) << _BYTE | first & 0xFF)


def _bytes(x: Array) -> list[tuple[Array, int]]:
    """Splits integers into bytes, lowest first, each as int8 with a zero point."""
    if x.dtype == np.int8:
        return [(x, 0)]
    low = ((x & np.int16(0xFF)) - np.int16(128)).astype(np.int8)
    return [(low, -128), ((x >> np.int16(_BYTE)).astype(np.int8), 0)]


def rows(weight: Array, inputs: Array) -> Wide:
    """Sums weight [N, K] * inputs [M, K] over the last axis of both; [M, N]."""

    def sums(x: Array, weight: Array, x_zp: int, weight_zp: int) -> jax.Array:
        operands = jnp.asarray(x)[None, :, None], jnp.asarray(weight)[:, None, None]
        return convolved(*operands, x_zp, weight_zp, (1, 1), (0, 0, 0, 0))[0, :, 0]

    return products(inputs, weight, weight.shape[1], sums)


def convolved(
    x: Array,
    weight: Array,
    x_zp: int,
    weight_zp: int,
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    *,
    convolution: Callable[..., jax.Array] = ops.conv2d,
) -> jax.Array:
    """Computes an int8 convolution without bias, by default CONV2D; int32."""
    return convolution(
        jnp.asarray(x),
        jnp.asarray(weight),
        np.zeros(1, np.int32),
        np.asarray([x_zp], np.int8),
        np.asarray([weight_zp], np.int8),
        pad=pad,
        stride=stride,
        dilation=(1, 1),
        acc_type=DType.INT32,
    )


# Rescaling of sums to results.


def wide(value: jax.Array) -> Wide:
    """Converts int32 to `Wide`."""
    return Wide(value >> _WORD, value & 0xFFFF)


def add(a: Wide, b: Wide) -> Wide:
    """Computes a + b."""
    low = a.low + b.low
    return Wide(a.high + b.high + (low >> _WORD), low & 0xFFFF)


def finish_fixed(
    acc: Wide | jax.Array, bias: Array, acc_shift: Shift, bias_shift: Shift, out: type
) -> jax.Array:
    """Computes `_sums.finish_fixed` for int8, int16 or int32 results.

    Raises:
      UnsupportedError: TOSA cannot express a type, or a shift is not constant.
    """
    if out is np.int64 or bias.dtype.itemsize > 2:
        types = f"a bias of {bias.dtype} and results of {np.dtype(out)}"
        raise UnsupportedError(f"{types}, expected a bias of int8 or int16, and at most int32")
    total = acc if isinstance(acc, Wide) else wide(acc)
    row = jnp.asarray(bias).reshape((1,) * (total.high.ndim - 1) + (-1,))
    total = add(total, _shifted(row, _number("bias_shift", bias_shift)))
    info = np.iinfo(out)
    result = _rounded(total, _number("acc_shift", acc_shift))
    return result if out is np.int32 else jnp.clip(result, info.min, info.max).astype(out)


def _number(name: str, shift: Shift) -> int:
    if isinstance(shift, Tracer):
        raise UnsupportedError(f"{name} is computed, expected a constant")
    return int(shift)


def _shifted(bias: jax.Array, shift: int) -> Wide:
    """Computes bias * 2**shift for a bias of at most 16 bits; rounded down."""
    value = bias.astype(jnp.int32)
    if shift < _WORD:
        return wide(value << shift if shift >= 0 else value >> -shift)
    return Wide(value << (shift - _WORD), jnp.zeros_like(value))


def _rounded(value: Wide, shift: int) -> jax.Array:
    """Computes value * 2**shift as int32, rounded half away from zero and saturated."""
    if shift >= 0:
        return _shifted_left(_narrowed(value, 0), shift)
    amount = -shift
    half = 1 << (amount - 1)
    # Subtracts 1 from negative values, so that negative ties round down.
    low = value.low + ((half & 0xFFFF) + (value.high >> 31))
    high = value.high + (half >> _WORD) + (low >> _WORD)
    if amount >= _WORD:
        return high >> (amount - _WORD)
    return _narrowed(Wide(high, low & 0xFFFF), amount)


def _narrowed(value: Wide, amount: int) -> jax.Array:
    """Computes value / 2**amount as int32, rounded down and saturated; `amount` is below 16."""
    rest = _WORD - amount
    limit = 1 << (31 - rest)
    high = jnp.clip(value.high, -limit, limit - 1)
    low = jnp.where(value.high > high, (1 << rest) - 1, value.low >> amount)
    return (high << rest) + jnp.where(value.high < high, 0, low)


def _shifted_left(value: jax.Array, amount: int) -> jax.Array:
    """Computes value * 2**amount in int32, saturated."""
    if amount == 0:
        return value
    limit = 1 << (31 - amount)
    clamped = lax.clamp(jnp.int32(-limit), value, jnp.int32(limit - 1))
    return jnp.where(value > clamped, _MAXIMUM, clamped << amount)
