"""Rules of "Elementwise Binary Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax.checks._common import broadcast_errors, broadcast_shape, input1_shape
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import (
    ValueRule,
    constant_problems,
    derived_problems,
    exact,
    fits_int32,
    in_range,
    shifted,
)
from tosajax.dtypes import DType

add_shape = arithmetic_right_shift_shape = bitwise_and_shape = broadcast_shape
bitwise_or_shape = bitwise_xor_shape = intdiv_shape = logical_and_shape = broadcast_shape
logical_left_shift_shape = logical_right_shift_shape = logical_or_shape = broadcast_shape
logical_xor_shape = maximum_shape = minimum_shape = mul_shape = broadcast_shape
pow_shape = sub_shape = broadcast_shape

add_errors = arithmetic_right_shift_errors = bitwise_and_errors = broadcast_errors
bitwise_or_errors = bitwise_xor_errors = intdiv_errors = logical_and_errors = broadcast_errors
logical_left_shift_errors = logical_right_shift_errors = logical_or_errors = broadcast_errors
logical_xor_errors = maximum_errors = minimum_errors = mul_errors = broadcast_errors
pow_errors = sub_errors = broadcast_errors

table_shape = input1_shape

_BOTH = "input1", "input2"


def add_undefined(c: Call) -> Iterator[Problem]:
    if c.input1.dtype is DType.INT32:
        rule = fits_int32("r1", "input1 + input2")
        yield from derived_problems(c, _BOTH, lambda a, b: [(rule, exact(a) + exact(b))])


def sub_undefined(c: Call) -> Iterator[Problem]:
    if c.input1.dtype is DType.INT32:
        rule = fits_int32("r1", "input1 - input2")
        yield from derived_problems(c, _BOTH, lambda a, b: [(rule, exact(a) - exact(b))])


def shift_values(dtype: np.dtype) -> list[ValueRule]:
    """Rules of the shift amount in ARITHMETIC_RIGHT_SHIFT and both logical shifts."""
    return [in_range("r1", "input2", 0, 8 * dtype.itemsize - 1)]


def arithmetic_right_shift_undefined(c: Call) -> Iterator[Problem]:
    return constant_problems(c, shift_values(c.input2.dtype.storage))


logical_left_shift_undefined = arithmetic_right_shift_undefined
logical_right_shift_undefined = arithmetic_right_shift_undefined


def intdiv_values() -> list[ValueRule]:
    return [ValueRule("r1", "input2", lambda x, xp: x == 0, "a divisor other than 0")]


def intdiv_undefined(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, intdiv_values())
    rule = fits_int32("r2", "input1 / input2")
    # Only division by -1 can overflow.
    yield from derived_problems(
        c, _BOTH, lambda a, b: [(rule, np.where(b == -1, -exact(a), np.int64(0)))]
    )


def mul_values(dtype: np.dtype) -> list[ValueRule]:
    """Rules of MUL's shift for operands of type `dtype`: only int32 products are shifted."""
    rules = [in_range("r1", "shift", 0, 63)]
    if dtype != np.int32:
        rules.append(ValueRule("r2", "shift", lambda x, xp: x != 0, f"0 for {dtype.name}"))
    return rules


def mul_undefined(c: Call) -> Iterator[Problem]:
    broken = list(constant_problems(c, mul_values(c.input1.dtype.storage)))
    yield from broken
    if c.input1.dtype is DType.INT32 and not broken:
        yield from derived_problems(c, (*_BOTH, "shift"), _shifted_product)


def _shifted_product(
    a: np.ndarray, b: np.ndarray, shift: np.ndarray
) -> Iterator[tuple[ValueRule, np.ndarray]]:
    amount = exact(shift).reshape(())
    if amount > 0:  # without a shift, the result is the low 32 bits of the product
        rule = fits_int32("r3", "input1 * input2 / 2**shift")
        yield rule, shifted(exact(a) * exact(b), amount)


def pow_values() -> list[ValueRule]:
    return [
        ValueRule("r1", "input1", lambda x, xp: is_positive(-x, xp) | xp.isnan(x), "0 or more"),
        *(ValueRule("r3", n, lambda x, xp: xp.isnan(x), "a number") for n in ("input1", "input2")),
        *(
            ValueRule("r4", name, lambda x, xp: ~xp.isfinite(x), "a finite number")
            for name in ("input1", "input2")
        ),
    ]


def pow_undefined(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, pow_values())
    rule = ValueRule("r2", "the larger operand", lambda x, xp: ~is_positive(x, xp), "more than 0")
    # Computes in float32, which represents all values of the other types: NumPy's fmax of bf16
    # warns about NaN.
    yield from derived_problems(
        c, _BOTH, lambda a, b: [(rule, np.fmax(a.astype(np.float32), b.astype(np.float32)))]
    )


def table_undefined(c: Call) -> Iterator[Problem]:
    """Checks the steps of an int16 table: all of them, or the steps at constant inputs.

    A table breaks the rule if every step is outside int16, or the step at a constant input is.
    """
    if c.input1.dtype is not DType.INT16:
        return
    if c.known("table") and is_steep(c.table.values, np).all():
        yield c.problem("r1", "every step of table is beyond int16, expected -32768 to 32767")
    else:
        rule = in_range("r1", "the step of table at input1", -(1 << 15), (1 << 15) - 1)
        yield from derived_problems(
            c, ("input1", "table"), lambda x, table: [(rule, np.diff(exact(table))[table_index(x)])]
        )


def table_index(values: Any) -> Any:
    """The index of the first of the two int16 table entries between which each value lies."""
    return (values.astype(np.int32) + 32768) >> 7


def is_steep(table: Any, xp: Any) -> Any:
    """Bool array, true where the step between two int16 table entries does not fit int16."""
    step = xp.diff(table.astype(np.int32))
    return (step < -(1 << 15)) | (step >= 1 << 15)


def is_positive(value: Any, xp: Any) -> Any:
    """Bool array, true where floats are above 0, in NumPy or in JAX."""
    # Compares bits, because XLA may flush subnormals to 0 in float comparisons.
    return (value.view(f"int{8 * value.dtype.itemsize}") > 0) & ~xp.isnan(value)
