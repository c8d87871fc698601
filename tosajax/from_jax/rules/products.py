"""Matrix products ("Tensor Operators", MATMUL, TOSA 1.0.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import lax

from tosajax.from_jax.ranks import MAX_RANK
from tosajax.from_jax.rules._multiply import Factor, Multiply, check_operands, product, sum_type
from tosajax.from_jax.rules.conv import Convolution
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value

_INTEGERS = frozenset(map(np.dtype, (bool, np.int8, np.int16, np.int32)))
# The most products to compute elementwise, for integers that MATMUL lacks.
_SMALL = 2**16


class Side(NamedTuple):
    """An operand of dot_general.

    Args:
      value: the array.
      batch: the batch axes, which both operands and the result have.
      free: the axes that only this operand has.
      summed: the contracted axes, in the same order on both sides.
    """

    value: Value
    batch: tuple[int, ...]
    free: tuple[int, ...]
    summed: tuple[int, ...]

    def shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The sizes of axes."""
        return tuple(self.value.shape[axis] for axis in axes)

    def size(self, axes: Sequence[int]) -> int:
        """The product of the sizes of axes."""
        return math.prod(self.shape(axes))

    def needs_transpose(self, *order: tuple[int, ...]) -> bool:
        """Whether bringing axes into this order needs a TRANSPOSE node."""
        long = [axis for axes in order for axis in axes if self.value.held_shape[axis] != 1]
        return not self.value.is_known and long != sorted(long)

    def laid_out(self, step: Step, shape: Sequence[int], *order: tuple[int, ...]) -> Value:
        """The array with its axes transposed to an order, then reshaped."""
        return step.reshape(step.transpose(self.value, [i for axes in order for i in axes]), shape)


def dot_general(step: Step, lhs: Value, rhs: Value) -> Value:
    """MATMUL; CONV2D with 1x1 kernels for constant weights; MUL if nothing is summed."""
    check_operands(step, lhs, rhs)
    if isinstance(step.params["precision"], lax.DotAlgorithm | lax.DotAlgorithmPreset):
        step.note("leaves out the algorithm", "operands are not rounded to its types")
    a, b = _sides(step, lhs, rhs)
    if a.size(a.summed) == 1 or _is_small(step, a, b):
        return _elementwise(step, a, b)
    if rhs.is_known and not a.batch:
        return _linear(step, a, b)
    if lhs.is_known and not a.batch:
        return _move_axes_last(step, _linear(step, b, a), 0, len(b.free))
    return _matmul(step, a, b)


def _sides(step: Step, lhs: Value, rhs: Value) -> tuple[Side, Side]:
    """The operands, contracted axes in the order of the first operand that is not constant."""
    (left, right), (left_batch, right_batch) = step.params["dimension_numbers"]
    pairs = sorted(zip(left, right, strict=True), key=lambda pair: pair[lhs.is_known])
    left, right = (tuple(pair[i] for pair in pairs) for i in (0, 1))
    return _side(lhs, left_batch, left), _side(rhs, right_batch, right)


def _side(value: Value, batch: Sequence[int], summed: tuple[int, ...]) -> Side:
    free = (axis for axis in range(value.rank) if axis not in {*batch, *summed})
    return Side(value, tuple(batch), tuple(free), summed)


def _is_small(step: Step, a: Side, b: Side) -> bool:
    """Whether the products are few, and of integers that MATMUL lacks."""
    dtypes = {a.value.dtype, b.value.dtype, step.out.dtype}
    is_wide = max(a.value.dtype.itemsize, b.value.dtype.itemsize) > 1
    return dtypes <= _INTEGERS and is_wide and a.value.size * b.size(b.free) <= _SMALL


def _elementwise(step: Step, a: Side, b: Side) -> Value:
    """MUL, and REDUCE_SUM over the contracted axes."""
    batch, left, right = a.shape(a.batch), a.shape(a.free), b.shape(b.free)
    if len(step.out.shape) >= MAX_RANK:
        batch, left, right = ((math.prod(dims),) for dims in (batch, left, right))
    last = (a.size(a.summed),) if a.size(a.summed) > 1 else ()
    x_shape = (*batch, *left, *last, *(1 for _ in right))
    y_shape = (*batch, *(1 for _ in left), *last, *right)
    axis = len(batch) + len(left)

    def write(x: Factor, y: Factor) -> Value:
        shift = step.constant([0], np.int8)
        products = step.op("MUL", x.value, y.value, shift, dtype=sum_type("MUL", x.value.dtype))
        if not last:
            return products
        if step.out.dtype == np.int16:  # The low 16 bits suffice, and their sum cannot overflow.
            products = step.op("BITWISE_AND", products, step.like(0xFFFF, products))
        return step.op("REDUCE_SUM", products, axis=axis)

    x = a.laid_out(step, x_shape, a.batch, a.free, a.summed)
    y = b.laid_out(step, y_shape, b.batch, b.summed, b.free)
    multiply = Multiply("MUL", a.size(a.summed), write)
    return step.reshape(product(step, x, y, multiply), step.out.shape)


def _linear(step: Step, x: Side, weights: Side) -> Value:
    """CONV2D with a 1x1 kernel: the first axis stays the batch, the rest are rows."""
    shape = (*x.shape(x.free), *weights.shape(weights.free))
    first, *rows = x.shape(x.free) or (1,)
    count = x.size(x.summed)
    images = x.laid_out(step, (first, math.prod(rows), 1, count), x.free, x.summed)
    outputs = weights.size(weights.free)
    kernel = weights.laid_out(step, (outputs, 1, 1, count), weights.free, weights.summed)
    return step.reshape(Convolution().of(step, images, kernel), shape)


def _matmul(step: Step, a: Side, b: Side) -> Value:
    """MATMUL; with operands swapped if that needs fewer TRANSPOSEs."""
    straight = a.needs_transpose(a.batch, a.free, a.summed)
    straight += b.needs_transpose(b.batch, b.summed, b.free)
    swapped = b.needs_transpose(b.batch, b.free, b.summed)
    swapped += a.needs_transpose(a.batch, a.summed, a.free)
    swapped += 1 not in (a.size(a.free), b.size(b.free))  # The result is transposed.
    # A TRANSPOSE of the result often cancels one that JAX writes after it.
    is_swapped = swapped < straight or swapped == straight == 2
    first, second = (b, a) if is_swapped else (a, b)
    n, h, w = first.size(first.batch), first.size(first.free), second.size(second.free)
    c = first.size(first.summed)
    x = first.laid_out(step, (n, h, c), first.batch, first.free, first.summed)
    y = second.laid_out(step, (n, c, w), second.batch, second.summed, second.free)

    def write(x: Factor, y: Factor) -> Value:
        zeros = x.zero_point(step), y.zero_point(step)
        dtype = sum_type("MATMUL", x.value.dtype)
        return step.op("MATMUL", x.value, y.value, *zeros, dtype=dtype)

    shapes = (
        side.shape(axes)
        for side, axes in ((a, a.batch), (first, first.free), (second, second.free))
    )
    result = product(step, x, y, Multiply("MATMUL", c, write))
    result = step.reshape(result, [n for shape in shapes for n in shape])
    return _move_axes_last(step, result, len(a.batch), len(b.free)) if is_swapped else result


def _move_axes_last(step: Step, result: Value, batch: int, count: int) -> Value:
    """Moves the first `count` axes after the batch axes to the end."""
    at = batch + count
    return step.transpose(result, (*range(batch), *range(at, result.rank), *range(batch, at)))


RULES = {"dot_general": dot_general}
