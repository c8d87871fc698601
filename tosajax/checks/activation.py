"""Rules of "Activation Functions" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosajax.checks._common import input_shape
from tosajax.checks.call import Call, Problem

clamp_shape = erf_shape = sigmoid_shape = tanh_shape = input_shape


def clamp_errors(c: Call) -> Iterator[Problem]:
    illegal = list(_bound_errors(c))
    yield from illegal
    if illegal:
        return
    if c.max_val < c.min_val:
        yield c.problem("e1", f"max_val is {c.max_val}, expected at least min_val {c.min_val}")
    for name in ("min_val", "max_val"):
        if np.isnan(getattr(c, name)):
            yield c.problem("e2", f"{name} is NaN, expected a number")


def _bound_errors(c: Call) -> Iterator[Problem]:
    """Checks that the bounds of an integer CLAMP are integers in the range of its type."""
    dtype = c.input.dtype
    if not dtype.is_integer:
        return
    for name in ("min_val", "max_val"):
        bound = getattr(c, name)
        if not isinstance(bound, int | np.integer) or not dtype.minimum <= bound <= dtype.maximum:
            wanted = f"an integer in [{dtype.minimum}, {dtype.maximum}] for {dtype.name}"
            yield c.problem("attributes", f"{name} is {bound}, expected {wanted}")
