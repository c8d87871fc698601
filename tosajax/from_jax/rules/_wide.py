"""Operators in a wider type than the operands have, as TOSA has few of narrow types."""

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
    """Operands of one type, in a wider type where the operator lacks theirs.

    Args:
      step: the primitive.
      op: name in `spec.OPERATORS`.
      values: all of the same type.

    Raises:
      UnsupportedError: the operator has neither their type nor a wider one.
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
    """An operator of operands of one type, whose result is cast back to that type.

    Integers wrap on the way back, as those of JAX do.

    Args:
      step: the primitive.
      op: name in `spec.OPERATORS`.
      values: all of the same type.
      attributes: of the operator.
    """
    result = step.op(op, *widened(step, op, *values), **attributes)
    return step.cast(result, values[0].dtype)


def in_float32(step: Step, function: Callable[..., jax.Array], *values: Value) -> Value:
    """A function of floats of one type, computed in float32 and rounded once, as XLA does it."""
    dtype = values[0].dtype

    def wide(*arrays: jax.Array) -> jax.Array:
        return function(*(x.astype(jnp.float32) for x in arrays)).astype(dtype)

    return step.jax(wide, *values)


def has_type(step: Step, op: str, x: Value) -> bool:
    """Whether an operator takes an operand as it is, on the target that the graph is for."""
    operand = _operand(op)
    dtype, names = step.tosa_type(x.dtype), step.scope.options.target.names
    rows = spec.OPERATORS[op].types
    return any(row.type_of(operand) is dtype and row.supported_by(names) for row in rows)


def is_integer(x: Value) -> bool:
    """Whether it has integers; those of bool are not."""
    return np.issubdtype(x.dtype, np.integer)


def _operand_types(op: str) -> list[DType]:
    """The types that an operator's operands may have."""
    types = (row.type_of(_operand(op)) for row in spec.OPERATORS[op].types)
    return [t for t in dict.fromkeys(types) if t is not None]


def _operand(op: str) -> spec.Argument:
    """The first operand whose type is not fixed."""
    return next(a for a in spec.OPERATORS[op].inputs if isinstance(a.dtype, str))
