"""Functions shared by the run-time rules of several operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.checks.values import ValueRule
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64
from tosajax.report import UnsupportedError

Flags = dict[str, jax.Array]


def flags(**broken: jax.Array) -> Flags:
    """Reduces bool arrays, true where an element breaks a rule, to one flag for each rule."""
    return {rule: jnp.any(elements) for rule, elements in broken.items()}


def broken_by(rules: Iterable[ValueRule], **operands: jax.Array) -> dict[str, jax.Array]:
    """Bool arrays by rule label, true where an element breaks a rule on a single operand."""
    broken: dict[str, jax.Array] = {}
    for rule in rules:
        elements = rule.is_broken(operands[rule.name], jnp)
        broken[rule.rule] = broken[rule.rule] | elements if rule.rule in broken else elements
    return broken


def add_overflows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Bool array, true where the sum of two int32 or int48 arrays does not fit their type."""
    with _x64.scope_of(a.dtype):
        total = a + b
    if total.dtype.itemsize == 8:
        return outside(total, DType.INT48.bits)
    # Overflow: the sum's sign differs from both operands'.
    return ((a ^ total) & (b ^ total)) < 0


def sub_overflows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Bool array, true where the difference of two int32 arrays does not fit int32."""
    return ((a ^ b) & (a ^ (a - b))) < 0


def has_lost_bits(wrapped: jax.Array, estimate: jax.Array) -> jax.Array:
    """Bool array, true where an exact result did not fit int32.

    A result that fits is within 2**30 of its estimate. A result that does not fit differs from its
    low 32 bits by a multiple of 2**32, and the estimate's error is at most a sixth of that
    difference.

    Args:
      wrapped: int32, the low 32 bits of the exact results.
      estimate: float32, the same shape; within a tenth of the exact results or 1.
    """
    return jnp.abs(estimate - wrapped.astype(jnp.float32)) > 2.0**31


def scale_estimate(value: jax.Array, other: jax.Array, shift: jax.Array) -> jax.Array:
    """Computes value * other / 2**shift in float32; integers, shapes broadcast."""
    with _x64.scope():
        value, other, shift = (
            lax.convert_element_type(x, np.float32) for x in (value, other, shift)
        )
    return value * other * jnp.exp2(-shift)


def outside(value: jax.Array, bits: int) -> jax.Array:
    """Bool array, true where an integer does not fit a signed type of `bits` bits."""
    with _x64.scope_of(value.dtype):
        limit = np.asarray(1 << (bits - 1), value.dtype)
        return (value < -limit) | (value >= limit)


def reach(dtype: np.dtype) -> int:
    """The bound of |element - zero point| for int8 or int16, whose zero point is 0."""
    return 255 if dtype == np.int8 else 1 << 15


def widen(value: jax.Array, zero_point: jax.Array, acc_type: DType) -> jax.Array:
    """Subtracts the zero point [1] from the elements, in the type of the accumulator."""
    dtype = acc_type.storage
    with _x64.scope_of(dtype):
        shape = (1,) * value.ndim
        zero_point = lax.convert_element_type(zero_point, dtype).reshape(shape)
        return lax.convert_element_type(value, dtype) - zero_point


def sum_overflows(
    add_up: Callable[[jax.Array], jax.Array],
    values: jax.Array,
    *,
    gain: int,
    width: int = 9,
    acc_type: DType = DType.INT32,
) -> jax.Array:
    """Bool array, true where an exact sum of values does not fit its accumulator.

    int32 accumulators do not need a wider type: the values are split into digits of so few bits
    that the sum of each digit, with the carry from the one before, is exact in int32. The sum of
    the most significant digit, which has the sign, shows whether the total fits.

    Args:
      add_up: sums `values`, or an array of their type and shape, with integer coefficients.
      values: int32 in [-2**(width - 1), 2**(width - 1)), or int48 stored in int64; any shape.
      gain: at least the sum of the absolute coefficients of every result, and at least
        2**(31 - width), below which a sum cannot overflow.
      width: bits of a value, more than 1; ignored for int48.
      acc_type: the accumulator type, INT32 or INT48.

    Returns:
      bool, the shape of the sums.

    Raises:
      UnsupportedError: `gain` is 2**30 or more, for INT32.
    """
    if acc_type is DType.INT48:
        return outside(add_up(values), acc_type.bits)
    digit = 31 - gain.bit_length()
    if digit < 1:
        raise UnsupportedError(f"sums with coefficients of up to {gain} in all are not checked")
    # A carry is at most gain, and gain * (2**digit - 1) + gain is less than 2**31.
    carry, shift = jnp.zeros((), jnp.int32), 0
    while width - shift > digit:
        part = (values >> shift) & ((1 << digit) - 1)
        carry = (add_up(part) + carry) >> digit
        shift += digit
    return outside(add_up(values >> shift) + carry, acc_type.bits - shift)
