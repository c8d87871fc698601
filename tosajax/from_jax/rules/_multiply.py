"""Writes sums of products of any two dtypes by operators that support few."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import ARRAY_TYPES, TOSA_TYPES, Value

_FP8 = (DType.FP8E4M3, DType.FP8E5M2)
_INTEGERS = (DType.BOOL, DType.INT4, DType.INT8, DType.INT16, DType.INT32)
_NARROW = (DType.BOOL, DType.INT4, DType.INT8)


class Factor(NamedTuple):
    """An operand of a product.

    Args:
      value: the operand, in a dtype that the operator has.
      zero: the zero point that the operator subtracts.
    """

    value: Value
    zero: int = 0

    def zero_point(self, step: Step) -> Value:
        """The zero point as an operand: a constant of shape (1,)."""
        return step.constant([self.zero], self.value.dtype)


class Multiply(NamedTuple):
    """An operator that sums products.

    Args:
      op: the operator's name in `spec.OPERATORS`.
      terms: the number of products in each sum.
      write: adds the operator; the result has the output type of `row_of`.
    """

    op: str
    terms: int
    write: Callable[[Factor, Factor], Value]


def row_of(op: str, dtype: Any) -> Mapping[str, Any] | None:
    """The type row of an operator for operands of one dtype, the widest of several, or None."""
    kind, types_of_row = TOSA_TYPES[np.dtype(dtype)], None
    for row in spec.OPERATORS[op].types:
        types = {row.types.get(name, kind) for name in ("in_t", "weight_t", "in_out_t")}
        if types == {kind}:
            types_of_row = row.types
    return types_of_row


def sum_type(op: str, dtype: Any) -> np.dtype:
    """The output dtype of an operator, for a supported dtype of its operands."""
    row = row_of(op, dtype)
    assert row is not None
    return ARRAY_TYPES[row["out_t"]]


def convert(step: Step, x: Value, dtype: Any) -> Value:
    """Converts a value to another dtype as JAX does."""
    if x.dtype == dtype:
        return x
    return step.jax(lambda v: lax.convert_element_type(v, np.dtype(dtype)), x)


def check_operands(step: Step, x: Value, y: Value) -> None:
    """Raises UnsupportedError for operands that no operator supports.

    Args:
      step: the equation.
      x: the first operand.
      y: the second operand.
    """
    for each in (x, y):
        if step.tosa_type(each.dtype) is DType.INT4 and not each.is_known:
            raise step.unsupported("operands of int4", "constants, or int8", "use int8")


def product(step: Step, x: Value, y: Value, multiply: Multiply) -> Value:
    """The sum of products in the dtype of the step's result.

    Operands of different dtypes are converted to the result's dtype, as JAX does on CPU and GPU.
    """
    out, wanted = step.out.dtype, step.tosa_type(step.out.dtype)
    kinds = {step.tosa_type(v.dtype) for v in (x, y)}
    is_converted = len(kinds) == 2 and not kinds <= {*_FP8}
    if kinds <= {*_INTEGERS} and wanted not in _INTEGERS:
        # JAX rounds operands to the result's dtype first: exact for 8 bits, except in FP8.
        is_converted = not kinds <= {*_NARROW} or wanted in _FP8
    if is_converted:
        x, y = convert(step, x, out), convert(step, y, out)
    are_integers = {step.tosa_type(v.dtype) for v in (x, y)} <= {*_INTEGERS}
    return convert(step, (_integers if are_integers else _floats)(step, x, y, multiply), out)


def _floats(step: Step, x: Value, y: Value, multiply: Multiply) -> Value:
    """Sums products of floats, in float32 if the operator rounds to a narrower type than wanted."""
    wanted = step.tosa_type(step.out.dtype)
    if wanted in _INTEGERS:  # JAX rounds to the operands' dtype first.
        wanted = step.tosa_type(x.dtype)
    row = row_of(multiply.op, x.dtype)
    sums = row["out_t"] if row is not None and x.dtype == y.dtype else None
    if sums is DType.FP16 and wanted in _FP8:
        step.note(f"{multiply.op} of {x.dtype}", "sums are rounded to float16")
    elif sums not in (wanted, DType.FP32):
        x, y = convert(step, x, np.float32), convert(step, y, np.float32)
    return convert(step, multiply.write(Factor(x), Factor(y)), ARRAY_TYPES[wanted])


def _integers(step: Step, x: Value, y: Value, multiply: Multiply) -> Value:
    """Sums products of integers, as int32; exact modulo 2**(bits of the result), or 2**32."""
    x, y = _in_narrow_type(step, x), _in_narrow_type(step, y)
    wide = max(x.dtype, y.dtype, key=lambda dtype: dtype.itemsize)
    row = row_of(multiply.op, wide)
    if row is not None and row["out_t"] is DType.INT32:
        x, y = convert(step, x, wide), convert(step, y, wide)
        return multiply.write(Factor(x), Factor(y))
    out = step.out.dtype
    count = out.itemsize if step.tosa_type(out) in _INTEGERS and out != np.bool_ else 4
    sums: list[list[Value]] = [[] for _ in range(count)]
    ys = _byte_factors(step, y)
    for i, low in enumerate(_byte_factors(step, x)):
        for j, other in enumerate(ys[: count - i]):
            sums[i + j].append(multiply.write(low, other))
    return _total(step, sums, multiply.terms)


def _in_narrow_type(step: Step, x: Value) -> Value:
    """The integers as int8, int16 or int32: constants in the narrowest type that holds them."""
    if x.is_known:
        held = np.asarray(x.held).astype(np.int32)
        fits = (t for t in (np.int8, np.int16, np.int32) if (held.astype(t) == held).all())
        return convert(step, x, next(fits))
    return step.cast(x, np.int8) if x.dtype == np.bool_ else x


def _byte_factors(step: Step, x: Value) -> list[Factor]:
    """The bytes of integers, lowest first: all but the highest are int8 with zero point -128."""
    count = x.dtype.itemsize
    lower = [
        step.jax(lambda v, at=8 * i: lax.convert_element_type(v >> at ^ 128, np.int8), x)
        for i in range(count - 1)
    ]
    highest = step.jax(lambda v: lax.convert_element_type(v >> 8 * (count - 1), np.int8), x)
    return [*(Factor(each, -128) for each in lower), Factor(highest)]


def _total(step: Step, sums: list[list[Value]], terms: int) -> Value:
    """The weighted sum of all values; the values in sums[i] have weight 256**i.

    Overflow of ADD is unpredictable in TOSA, so low and high 16 bits are added separately.
    """
    most = max(map(len, sums)) * terms * 255**2
    bits = 8 * len(sums)

    def total(*parts: jax.Array) -> jax.Array:
        rest = iter(parts)
        shifted: list[jax.Array] = []
        for at, each in enumerate(sums):
            terms = [next(rest) for _ in each]
            terms = [functools.reduce(lax.add, terms)] if terms and most < 2**31 else terms
            shifted += [part << 8 * at for part in terms]
        low = functools.reduce(lax.add, [part & 0xFFFF for part in shifted])
        if bits <= 16:
            return low
        high = lax.shift_right_logical(low, jnp.full_like(low, 16))
        for part in shifted:
            high += lax.shift_right_logical(part, jnp.full_like(part, 16))
        return high << 16 | low & 0xFFFF

    return step.jax(total, *(part for each in sums for part in each))
