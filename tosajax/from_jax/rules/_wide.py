"""Operators in wider types than the operands', as TOSA has few operators on narrow types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.from_jax.step import Step
from tosajax.from_jax.values import ARRAY_TYPES, Value

_WIDER = {
    DType.INT8: DType.INT32,
    DType.INT16: DType.INT32,
    DType.FP8E4M3: DType.FP32,
    DType.FP8E5M2: DType.FP32,
}


def widened(step: Step, op: str, *values: Value) -> tuple[Value, ...]:
    """Casts operands of one dtype to a wider type, if the operator lacks theirs.

    Args:
      step: the primitive.
      op: the operator's name in `spec.OPERATORS`.
      values: the operands, all of the same dtype.

    Raises:
      UnsupportedError: the operator has neither their type nor the wider one.
    """
    dtype = step.tosa_type(values[0].dtype)
    types = _operand_types(op)
    if dtype in types:
        return values
    if _WIDER.get(dtype) in types:
        return tuple(step.cast(value, ARRAY_TYPES[_WIDER[dtype]]) for value in values)
    if dtype is DType.INT48:
        raise step.unsupported_type(values[0].dtype)
    wanted = " or ".join(str(np.dtype(ARRAY_TYPES[t])) for t in types)
    raise step.unsupported(f"operands of {values[0].dtype}", f"{wanted}, as {op} has them")


def in_wide_type(step: Step, op: str, *values: Value, **attributes: Any) -> Value:
    """Adds an operator on operands of one dtype, widened if necessary, and casts the result back.

    Integers wrap in the cast back, as in JAX.

    Args:
      step: the primitive.
      op: the operator's name in `spec.OPERATORS`.
      values: the operands, all of the same dtype.
      attributes: the operator's attributes.
    """
    result = step.op(op, *widened(step, op, *values), **attributes)
    return step.cast(result, values[0].dtype)


def in_float32(step: Step, function: Callable[..., jax.Array], *values: Value) -> Value:
    """Applies a function of floats of one dtype in float32, and rounds once, as XLA does."""
    dtype = values[0].dtype

    def wide(*arrays: jax.Array) -> jax.Array:
        return function(*(x.astype(jnp.float32) for x in arrays)).astype(dtype)

    return step.jax(wide, *values)


def has_type(step: Step, op: str, x: Value) -> bool:
    """Whether an operator supports the dtype of an operand on the export's target."""
    operand = _operand(op)
    dtype, names = step.tosa_type(x.dtype), step.scope.options.target.names
    rows = spec.OPERATORS[op].types
    return any(row.type_of(operand) is dtype and row.supported_by(names) for row in rows)


def is_integer(x: Value) -> bool:
    """Whether the dtype is an integer type; bool is not."""
    return np.issubdtype(x.dtype, np.integer)


def _operand_types(op: str) -> list[DType]:
    """The types that an operator supports for its operands."""
    types = (row.type_of(_operand(op)) for row in spec.OPERATORS[op].types)
    return [t for t in dict.fromkeys(types) if t is not None]


def _operand(op: str) -> spec.Argument:
    """The first input argument with a variable type."""
    return next(a for a in spec.OPERATORS[op].inputs if isinstance(a.dtype, str))
