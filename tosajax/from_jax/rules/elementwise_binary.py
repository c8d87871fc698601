"""Elementwise primitives of two operands ("Elementwise Binary Operators", TOSA 1.0.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.from_jax.rules import _functions
from tosajax.from_jax.rules._division import div, rem
from tosajax.from_jax.rules._powers import pow
from tosajax.from_jax.rules._wide import has_type, in_float32, in_wide_type, widened
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import Value
from tosajax.spec import NanMode


def add(step: Step, x: Value, y: Value) -> Value:
    """ADD; int8 and int16 wrap as in JAX; overflow of int32 is unpredictable in TOSA."""
    return in_wide_type(step, "ADD", x, y)


def sub(step: Step, x: Value, y: Value) -> Value:
    """SUB; int8 and int16 wrap as in JAX; overflow of int32 is unpredictable in TOSA."""
    return in_wide_type(step, "SUB", x, y)


def mul(step: Step, x: Value, y: Value) -> Value:
    """MUL; int32 wraps, and narrower integers wrap in the cast back from int32."""
    product = step.op("MUL", *widened(step, "MUL", x, y), step.constant([0], np.int8))
    return step.cast(product, x.dtype)


def maximum(step: Step, x: Value, y: Value) -> Value:
    """CLAMP for a constant bound, else MAXIMUM; LOGICAL_OR for bool. NaN propagates, as in JAX."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_OR", x, y)
    value, bound = _operand_and_bound(step, x, y)
    if bound is None:
        return in_wide_type(step, "MAXIMUM", x, y, nan_mode=NanMode.PROPAGATE)
    return _clamped(step, value, bound, _limits(value.dtype)[1])


def minimum(step: Step, x: Value, y: Value) -> Value:
    """CLAMP for a constant bound, else MINIMUM; LOGICAL_AND for bool. NaN propagates, as in JAX."""
    if x.dtype == np.bool_:
        return step.op("LOGICAL_AND", x, y)
    value, bound = _operand_and_bound(step, x, y)
    if bound is None:
        return in_wide_type(step, "MINIMUM", x, y, nan_mode=NanMode.PROPAGATE)
    return _clamped(step, value, _limits(value.dtype)[0], bound)


def _operand_and_bound(step: Step, x: Value, y: Value) -> tuple[Value, Any]:
    """The operand to clamp and its constant bound; (x, None) if CLAMP cannot be used."""
    for value, other in ((x, y), (y, x)):
        is_number = other.scalar is not None and not np.isnan(other.scalar)
        if is_number and value.shape == step.out.shape and has_type(step, "CLAMP", value):
            return value, other.scalar
    return x, None


def _clamped(step: Step, x: Value, low: Any, high: Any) -> Value:
    if (low, high) == _limits(x.dtype):
        return x
    return step.op("CLAMP", x, min_val=low, max_val=high, nan_mode=NanMode.PROPAGATE)


def _limits(dtype: np.dtype) -> tuple[Any, Any]:
    """The smallest and the largest number of a dtype, infinite for floats."""
    if np.issubdtype(dtype, np.integer):
        return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)
    return dtype.type(-np.inf), dtype.type(np.inf)


def and_(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_AND or BITWISE_AND."""
    return _of_bits(step, "AND", x, y)


def or_(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_OR or BITWISE_OR."""
    return _of_bits(step, "OR", x, y)


def xor(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_XOR or BITWISE_XOR."""
    return _of_bits(step, "XOR", x, y)


def _of_bits(step: Step, op: str, x: Value, y: Value) -> Value:
    return in_wide_type(step, f"{'LOGICAL' if x.dtype == np.bool_ else 'BITWISE'}_{op}", x, y)


def shift_left(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_LEFT_SHIFT; 0 if the amount is out of the width."""
    return _shifted(step, "LOGICAL_LEFT_SHIFT", x, y)


def shift_right_logical(step: Step, x: Value, y: Value) -> Value:
    """LOGICAL_RIGHT_SHIFT; 0 if the amount is out of the width."""
    return _shifted(step, "LOGICAL_RIGHT_SHIFT", x, y)


def shift_right_arithmetic(step: Step, x: Value, y: Value) -> Value:
    """ARITHMETIC_RIGHT_SHIFT; by the width - 1 if the amount is out of the width."""
    low, is_inside = step.jaxs(_within_width, y)
    last = y.dtype.type(_width(y) - 1)
    amount = step.jax(lambda inside, low: jnp.where(inside, low, last), is_inside, low)
    return in_wide_type(step, "ARITHMETIC_RIGHT_SHIFT", x, amount, round=False)


def _shifted(step: Step, op: str, x: Value, y: Value) -> Value:
    low, is_inside = step.jaxs(_within_width, y)
    shifted = in_wide_type(step, op, x, low)
    if is_inside.is_known and is_inside.elements.all():
        return shifted
    zero = x.dtype.type(0)
    return step.jax(lambda inside, v: jnp.where(inside, v, zero), is_inside, shifted)


def _within_width(amount: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The amount modulo the width, as TOSA requires, and whether it is unchanged."""
    low = amount & amount.dtype.type(amount.dtype.itemsize * 8 - 1)
    return low, low == amount


def _width(x: Value) -> int:
    return x.dtype.itemsize * 8


def atan2(step: Step, y: Value, x: Value) -> Value:
    """A polynomial for angles below 45 degrees, then mapped to the octant."""
    return in_float32(step, _functions.atan2, y, x)


# Advice on primitives without a rule.
HINTS = {
    "mulhi": "multiply floats, or integers of at most 15 bits",
    "nextafter": "multiply by 1 + jnp.finfo(dtype).eps",
}

RULES = {
    "add": add,
    "add_any": add,
    "and": and_,
    "atan2": atan2,
    "div": div,
    "max": maximum,
    "min": minimum,
    "mul": mul,
    "or": or_,
    "pow": pow,
    "rem": rem,
    "shift_left": shift_left,
    "shift_right_arithmetic": shift_right_arithmetic,
    "shift_right_logical": shift_right_logical,
    "sub": sub,
    "xor": xor,
}
