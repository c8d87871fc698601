"""Gradient of SELECT."""

from __future__ import annotations

from typing import Any

import jax

from tosajax import ops
from tosajax.grad._exact import payloads
from tosajax.grad.qtensor import QTensor, Value, shadow


def select(input1: jax.Array, input2: Value, input3: Value) -> Any:
    """To the chosen one."""
    result = ops.select(input1, *payloads((input2, input3)))
    if not isinstance(input2, QTensor):
        return result
    return QTensor(result, ops.select(input1, shadow(input2), shadow(input3)))
