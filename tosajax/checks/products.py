"""Rules of "Tensor Operators", MATMUL (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosajax.checks._common import Shapes
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import (
    ValueRule,
    constant_problems,
    derived_problems,
    exact,
    in_range,
    zero_point,
)


def matmul_shape(c: Call) -> Shapes:
    n, height, _ = c.a.shape
    return ((n, height, c.b.shape[-1]),)


def matmul_zero_points(c: Call) -> Iterator[ValueRule]:
    # The specification's text requires 0 for int8; it means all types except int8.
    yield from zero_point(c, "e1", "a_zp")
    yield from zero_point(c, "e1", "b_zp")


def matmul_errors(c: Call) -> Iterator[Problem]:
    return constant_problems(c, matmul_zero_points(c))


def matmul_undefined(c: Call) -> Iterator[Problem]:
    out_type = c.output.dtype
    if out_type.is_integer:
        rule = in_range("r1", "the sum of products", out_type.minimum, out_type.maximum)

        def sums(a: np.ndarray, b: np.ndarray, a_zp: np.ndarray, b_zp: np.ndarray):
            a, b = exact(a) - exact(a_zp), exact(b) - exact(b_zp)
            # Most sums cannot overflow, whatever the values; this test skips computing them.
            if a.shape[-1] * np.abs(a).max() * np.abs(b).max() > out_type.maximum:
                yield rule, a @ b

        yield from derived_problems(c, ("a", "b", "a_zp", "b_zp"), sums)
