"""Rules of "Type Conversion" (TOSA 1.0.1)."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from tosajax.checks._common import input_shape
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import (
    ValueRule,
    constant_problems,
    derived_problems,
    exact,
    fits_int32,
    in_range,
    shifted,
    zero_point,
)
from tosajax.dtypes import DType
from tosajax.spec import RoundingMode

cast_shape = rescale_shape = input_shape


def cast_values(dtype: np.dtype, out_type: DType) -> list[ValueRule]:
    """Rules of CAST on inputs with storage type `dtype`."""
    is_float = dtype.kind not in "biu"
    if not (out_type.is_integer and is_float):
        return []
    wanted = f"a number, to be {out_type.name}"
    return [ValueRule("r1", "input", lambda x, xp: xp.isnan(x), wanted)]


def cast_undefined(c: Call) -> Iterator[Problem]:
    return constant_problems(c, cast_values(c.input.dtype.storage, c.output.dtype))


def rescale_values() -> list[ValueRule]:
    return [
        ValueRule("r1", "multiplier", lambda x, xp: x < 0, "0 or more"),
        in_range("r2", "shift", 2, 62),
    ]


def rescale_undefined(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, rescale_values())
    operands = "input", "multiplier", "shift", "input_zp", "output_zp"
    yield from derived_problems(c, operands, functools.partial(_scaled, c))


def _scaled(
    c: Call,
    input: np.ndarray,
    multiplier: np.ndarray,
    shift: np.ndarray,
    input_zp: np.ndarray,
    output_zp: np.ndarray,
) -> Iterator[tuple[ValueRule, np.ndarray]]:
    """Yields the rules of RESCALE on computed values, for elements with a legal scale."""
    value = exact(input, unsigned=c.input_unsigned)
    value = value - exact(input_zp, unsigned=c.input_unsigned).reshape(())
    channels = (-1,) if c.per_channel else ()
    factor, amount = exact(multiplier).reshape(channels), exact(shift).reshape(channels)
    legal = (factor >= 0) & (amount >= 2) & (amount <= 62)
    amount = np.where(legal, amount, 2)
    if c.scale32:
        half = np.int64(1) << (amount - 1)
        wanted = "-2**(shift - 1) to 2**(shift - 1) - 1"
        yield (
            ValueRule("r3", "input - input_zp", lambda x, _: (x < -half) | (x >= half), wanted),
            np.where(legal, value, 0),
        )
    elif c.input.dtype in (DType.INT32, DType.INT48):
        # Narrower inputs cannot overflow: at most 17 bits less the zero point, 30 scaled.
        scaled = np.where(legal, shifted(value * factor, amount), 0)
        yield fits_int32("r3", "(input - input_zp) * multiplier / 2**shift"), scaled
        zero = exact(output_zp, unsigned=c.output_unsigned).reshape(())
        total = np.where(legal, exact(scaled.astype(np.int32)) + zero, 0)
        yield fits_int32("r4", "the scaled value + output_zp"), total


def rescale_zero_points(c: Call) -> Iterator[ValueRule]:
    for rule, rule_uint16, name, unsigned in (
        ("e1", "e3", "input_zp", c.input_unsigned),
        ("e2", "e4", "output_zp", c.output_unsigned),
    ):
        is_uint16 = unsigned and getattr(c, name).dtype is DType.INT16
        yield from zero_point(c, rule_uint16 if is_uint16 else rule, name, unsigned=unsigned)


def rescale_errors(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, rescale_zero_points(c))
    in_type, out_type = c.input.dtype, c.output.dtype
    if c.scale32 and in_type is DType.INT48:
        yield c.problem("e5", "scale32 is true, expected false for INT48 input")
    if not c.scale32 and c.rounding_mode is RoundingMode.DOUBLE_ROUND:
        yield c.problem("e6", "rounding_mode is DOUBLE_ROUND, expected another without scale32")
    if c.input_unsigned and c.output_unsigned:
        yield c.problem("e7", "input_unsigned and output_unsigned are true, expected one at most")
    for rule, name, tensor, illegal in (
        ("e8", "input_unsigned", "output", out_type is DType.INT32),
        ("e9", "output_unsigned", "input", in_type is DType.INT32),
        ("e10", "output_unsigned", "input", in_type is DType.INT48),
        ("e11", "input_unsigned", "input", in_type is DType.INT48),
        ("e12", "input_unsigned", "input", in_type is DType.INT32),
        ("e13", "output_unsigned", "output", out_type is DType.INT32),
    ):
        if illegal and getattr(c, name):
            element = getattr(c, tensor).dtype.name
            yield c.problem(rule, f"{name} is true, expected false for {element} {tensor}")
    if c.per_channel and not c.input.shape:
        yield c.problem("e14", "per_channel is true for input of rank 0, expected rank 1 or more")
    else:
        yield from _scaling_errors(c)


def _scaling_errors(c: Call) -> Iterator[Problem]:
    """Checks the multiplier's type against scale32, and the length of multiplier and shift."""
    dtype = DType.INT32 if c.scale32 else DType.INT16
    if c.multiplier.dtype is not dtype:
        stated, scale32 = c.multiplier.dtype.name, str(c.scale32).lower()
        wanted = f"expected {dtype.name} as scale32 is {scale32}"
        yield c.problem("arguments", f"multiplier is {stated}, {wanted}")
    wanted = c.input.shape[-1] if c.per_channel else 1
    for name in ("multiplier", "shift"):
        (size,) = getattr(c, name).shape
        if size != wanted:
            yield c.problem("arguments", f"{name} has {size} elements, expected {wanted}")
