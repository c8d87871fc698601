"""Comparisons have no gradient."""

from __future__ import annotations

from typing import Any

import jax

from tosajax import ops
from tosajax.grad._exact import payloads


def equal(input1: Any, input2: Any) -> jax.Array:
    """None: bool."""
    return ops.equal(*payloads((input1, input2)))


def greater(input1: Any, input2: Any) -> jax.Array:
    """None: bool."""
    return ops.greater(*payloads((input1, input2)))


def greater_equal(input1: Any, input2: Any) -> jax.Array:
    """None: bool."""
    return ops.greater_equal(*payloads((input1, input2)))
