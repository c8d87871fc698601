"""Comparisons have no gradient."""

from __future__ import annotations

from collections.abc import Callable

import jax

from tosajax import ops
from tosajax.grad._exact import payloads
from tosajax.grad.qtensor import Value


def _compares(kernel: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def call(input1: Value, input2: Value) -> jax.Array:
        """None: bool."""
        return kernel(*payloads((input1, input2)))

    return call


equal = _compares(ops.equal)
greater = _compares(ops.greater)
greater_equal = _compares(ops.greater_equal)
