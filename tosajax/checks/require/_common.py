"""Parts that the run-time rules of several operators share."""

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
    """One flag for each rule, from the elements that break it."""
    return {rule: jnp.any(elements) for rule, elements in broken.items()}


def broken_by(rules: Iterable[ValueRule], **operands: jax.Array) -> dict[str, jax.Array]:
    """The elements that break rules on single operands, by label; shapes broadcast."""
    broken: dict[str, jax.Array] = {}
    for rule in rules:
        elements = rule.is_broken(operands[rule.name], jnp)
        broken[rule.rule] = broken[rule.rule] | elements if rule.rule in broken else elements
    return broken


def add_overflows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Where the sum of two int32, or of two int48, of shapes that broadcast, does not fit them."""
    with _x64.scope_of(a.dtype):
        total = a + b
    if total.dtype.itemsize == 8:
        return outside(total, DType.INT48.bits)
    # Overflow: the sum's sign differs from both operands'.
    return ((a ^ total) & (b ^ total)) < 0


def sub_overflows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Where the difference of two int32, of shapes that broadcast, does not fit int32."""
    return ((a ^ b) & (a ^ (a - b))) < 0


def has_lost_bits(wrapped: jax.Array, estimate: jax.Array) -> jax.Array:
    """Where an exact result did not fit int32.

    A result that fits is within 2**30 of its estimate. One that does not is a multiple of 2**32
    away from its low 32 bits, and the error of its estimate is at most a sixth of that.

    Args:
      wrapped: int32, the low 32 bits of the exact results.
      estimate: float32, the same shape; within a tenth of the exact results or 1.
    """
    return jnp.abs(estimate - wrapped.astype(jnp.float32)) > 2.0**31


def scale_estimate(value: jax.Array, other: jax.Array, shift: jax.Array) -> jax.Array:
    """value * other / 2**shift in float32, of integers and shapes that broadcast."""
    with _x64.scope():
        value, other, shift = (
            lax.convert_element_type(x, np.float32) for x in (value, other, shift)
        )
    return value * other * jnp.exp2(-shift)


def outside(value: jax.Array, bits: int) -> jax.Array:
    """Where an integer does not fit a narrower signed type of this many bits."""
    with _x64.scope_of(value.dtype):
        limit = np.asarray(1 << (bits - 1), value.dtype)
        return (value < -limit) | (value >= limit)


def reach(dtype: np.dtype) -> int:
    """Bound of |element - zero point| for int8 and int16, which has no zero point but 0."""
    return 255 if dtype == np.int8 else 1 << 15


def widen(value: jax.Array, zero_point: jax.Array, acc_type: DType) -> jax.Array:
    """Elements less their zero point [1], in the type of the accumulator."""
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
    """Where an exact sum of values does not fit its accumulator.

    For int32 accumulators no wider type is needed. The values are taken apart into digits, so few
    bits at a time that their sums, and the carries from one to the next, are exact; the last sum,
    which has the sign, tells whether the total fits.

    Args:
      add_up: sums `values`, or an array of their type and shape, with integer coefficients.
      values: int32 in [-2**(width - 1), 2**(width - 1)), or int48 held in int64; any shape.
      gain: at least the sum of the absolute coefficients of every result, and 2**(31 - width): no
        smaller one lets a sum overflow.
      width: bits of a value, more than 1; no matter for int48.
      acc_type: INT32 or INT48, the type of the accumulators.

    Returns:
      bool, the shape of the sums.

    Raises:
      UnsupportedError: `gain` is 2**30 or more, with int32.
    """
    if acc_type is DType.INT48:
        return outside(add_up(values), acc_type.bits)
    digit = 31 - gain.bit_length()
    if digit < 1:
        raise UnsupportedError(f"sums with coefficients of up to {gain} in all are not checked")
    # A carry is at most gain, and gain * (2**digit - 1) + gain less than 2**31.
    carry, shift = jnp.zeros((), jnp.int32), 0
    while width - shift > digit:
        part = (values >> shift) & ((1 << digit) - 1)
        carry = (add_up(part) + carry) >> digit
        shift += digit
    return outside(add_up(values >> shift) + carry, acc_type.bits - shift)
