"""ARGMAX has no gradient."""

from __future__ import annotations

from typing import Any

from tosajax import ops
from tosajax.grad._exact import payloads
from tosajax.grad.qtensor import QTensor


def argmax(input: Any, **attributes: Any) -> QTensor:
    """0."""
    return QTensor.of(ops.argmax(payloads(input), **attributes))
