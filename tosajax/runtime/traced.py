"""Refuses calls of compiled programs inside functions that JAX traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer


def check_not_traced(what: str, inputs: Sequence[Any] = ()) -> None:
    """Raises TypeError inside jit and control flow, or if an input is traced.

    Args:
      what: the name of the function that the user called, such as "tosajax.compile".
      inputs: the inputs of the call.
    """
    arrays = *jax.tree.leaves(list(inputs)), jnp.zeros(())
    if any(isinstance(array, Tracer) for array in arrays):
        raise TypeError(
            f"{what} makes programs that JAX cannot trace: inside jit use tosajax.lower, and for "
            "gradients of integers tosajax.differentiable"
        ) from None
