"""Operators that move rows by index move their gradients."""

from __future__ import annotations

from typing import Any

from tosajax import ops
from tosajax.grad._exact import payloads
from tosajax.grad.qtensor import QTensor, Value, shadow


def gather(values: Value, indices: Value) -> Any:
    """Moves; copies add up."""
    at = payloads(indices)
    result = ops.gather(payloads(values), at)
    return QTensor(result, ops.gather(values.shadow, at)) if isinstance(values, QTensor) else result


def scatter(values_in: Value, indices: Value, input: Value) -> Any:
    """Moves; nothing to rows that are replaced."""
    at = payloads(indices)
    result = ops.scatter(payloads(values_in), at, payloads(input))
    if not isinstance(values_in, QTensor):
        return result
    return QTensor(result, ops.scatter(shadow(values_in), at, shadow(input)))
