"""Rules of "Reduction Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.checks._common import Shapes, axis_errors, output_errors
from tosajax.checks._require import Flags, flags, sum_overflows
from tosajax.checks.call import Call, Problem


def reduce_sum_shape(c: Call) -> Shapes:
    return (tuple(1 if i == c.axis else dim for i, dim in enumerate(c.input.shape)),)


def reduce_sum_errors(c: Call) -> Iterator[Problem]:
    illegal = list(axis_errors(c, "e1", len(c.input.shape)))
    yield from illegal
    if illegal:
        return
    found = c.output.shape[c.axis] if c.axis < len(c.output.shape) else 1
    if found != 1:
        yield c.problem("e2", f"output has {found} elements along axis {c.axis}, expected 1")
    else:
        yield from output_errors(c, "arguments", *reduce_sum_shape(c))


reduce_all_shape = reduce_any_shape = reduce_max_shape = reduce_sum_shape
reduce_min_shape = reduce_product_shape = reduce_sum_shape

reduce_all_errors = reduce_any_errors = reduce_max_errors = reduce_sum_errors
reduce_min_errors = reduce_product_errors = reduce_sum_errors


def reduce_sum_require(input: jax.Array, *, axis: int) -> Flags:
    """r1, for int32: the sum fits."""
    length = input.shape[axis]
    if input.dtype != np.int32 or length == 1:
        return {}

    def add_up(values: jax.Array) -> jax.Array:
        return jnp.sum(values, axis, dtype=jnp.int32)

    return flags(r1=sum_overflows(add_up, input, gain=length, width=32))
