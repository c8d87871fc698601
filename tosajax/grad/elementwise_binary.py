"""Gradients of elementwise operators of two tensors; floats have JAX's own gradients."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import ops
from tosajax.grad._exact import exact, payloads, without_gradient
from tosajax.grad._range import power_of_two, range_of
from tosajax.grad.estimators import Estimator, zero
from tosajax.grad.once import sums_once
from tosajax.grad.qtensor import QTensor, Value, follow, shadow, tie

logical_and, logical_or, logical_xor, pow = (
    ops.logical_and,
    ops.logical_or,
    ops.logical_xor,
    ops.pow,
)
# The number of entries on each side that the slope of an int8 table is fitted to.
_REACH = 4


@sums_once
@exact(ops.add)
def add(input1: QTensor, input2: QTensor) -> jax.Array:
    """Linear."""
    return tie(input1) + tie(input2)


@sums_once
@exact(ops.sub)
def sub(input1: QTensor, input2: QTensor) -> jax.Array:
    """Linear."""
    return tie(input1) - tie(input2)


def mul(input1: Value, input2: Value, shift: Value) -> Any:
    """The product rule, times 2**-shift."""
    result = ops.mul(*payloads((input1, input2, shift)))
    if not isinstance(input1, QTensor):
        return result
    amount = payloads(shift).reshape(()).astype(jnp.int32)
    return QTensor(result, tie(input1) * tie(input2) * power_of_two(-amount))


@exact(ops.intdiv, estimates=True)
def intdiv(input1: QTensor, input2: QTensor, *, estimate: Estimator) -> jax.Array:
    """The gradient of the quotient of real numbers, and the estimator."""
    divisor = tie(input2)
    value = tie(input1) / jnp.where(input2.q == 0, jnp.float32(1), divisor)
    # Truncation is rounding of the value moved half a step towards 0.
    nearest = value - lax.stop_gradient(jnp.clip(value, -0.5, 0.5))
    return follow(value, estimate(nearest, -jnp.inf, jnp.inf))


@exact(ops.arithmetic_right_shift, estimates=True)
def arithmetic_right_shift(
    input1: QTensor, input2: QTensor, *, round: bool, estimate: Estimator
) -> jax.Array:
    """2**-shift, and the estimator."""
    value = tie(input1) * power_of_two(-input2.q.astype(jnp.int32))
    nearest = value if round else value - 0.5
    return follow(value, estimate(nearest, -jnp.inf, jnp.inf))


def logical_left_shift(input1: QTensor, input2: QTensor, *, estimate: Estimator = zero) -> QTensor:
    """0; with an estimator of its own, 2**shift and the estimator."""
    result = ops.logical_left_shift(*payloads((input1, input2)))
    value = tie(input1) * power_of_two(input2.q.astype(jnp.int32))
    source = estimate(value, *range_of(result.dtype))
    return QTensor(result, follow(result.astype(jnp.float32), source))


@exact(ops.maximum)
def maximum(input1: QTensor, input2: QTensor, **attributes: Any) -> jax.Array:
    """To the larger shadow; equal ones share, NaN has none."""
    return ops.maximum(shadow(input1), shadow(input2), **attributes)


@exact(ops.minimum)
def minimum(input1: QTensor, input2: QTensor, **attributes: Any) -> jax.Array:
    """To the smaller shadow; equal ones share, NaN has none."""
    return ops.minimum(shadow(input1), shadow(input2), **attributes)


@exact(ops.table)
def table(input1: QTensor, table: QTensor) -> jax.Array:
    """The slope of a line through 9 entries (int8) or 2 (int16); to entries, their weights."""
    x, entries = tie(input1), tie(table)
    step = x - lax.stop_gradient(x)  # 0, with the gradient of x
    if input1.dtype == np.int8:
        at = input1.q.astype(jnp.int32) + 128
        slopes = lax.stop_gradient(jnp.asarray(_slopes()) @ entries)
        return entries[at] + slopes[at] * step
    position = input1.q.astype(jnp.int32) + 32768
    at, part = position >> 7, (position & 0x7F).astype(jnp.float32)
    base, following = entries[at], entries[at + 1]
    return base * 128 + (following - base) * (part + step)


bitwise_and = without_gradient(ops.bitwise_and)
bitwise_or = without_gradient(ops.bitwise_or)
bitwise_xor = without_gradient(ops.bitwise_xor)
logical_right_shift = without_gradient(ops.logical_right_shift)


@functools.cache
def _slopes() -> np.ndarray:
    """The matrix from 256 entries to the slope of the line fitted around each."""
    matrix = np.zeros((256, 256), np.float32)
    for row in range(256):
        near = np.arange(max(0, row - _REACH), min(256, row + _REACH + 1))
        centred = near - near.mean()
        matrix[row, near] = centred / (centred**2).sum()
    return matrix
