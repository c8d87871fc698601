"""Rules of "Tensor Operators", MATMUL (TOSA 1.0.1) and MATMUL_T (1.1 draft)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    yield from _sums(c, lambda b: b)


def _sums(c: Call, columns: Callable[[np.ndarray], np.ndarray]) -> Iterator[Problem]:
    """Checks the sums of constant operands; `columns` gives b as [N, C, W]."""
    out_type = c.output.dtype
    if out_type.is_integer:
        rule = in_range("r1", "the sum of products", out_type.minimum, out_type.maximum)

        def sums(a: np.ndarray, b: np.ndarray, a_zp: np.ndarray, b_zp: np.ndarray):
            a, b = exact(a) - exact(a_zp), exact(b) - exact(b_zp)
            # Most sums cannot overflow, whatever the values; this test skips computing them.
            if a.shape[-1] * np.abs(a).max() * np.abs(b).max() > out_type.maximum:
                yield rule, a @ columns(b)

        yield from derived_problems(c, ("a", "b", "a_zp", "b_zp"), sums)


def matmul_t_shape(c: Call) -> Shapes:
    n, height, _ = c.a.shape
    return ((n, height, c.b.shape[1]),)


matmul_t_zero_points = matmul_zero_points


def matmul_t_errors(c: Call) -> Iterator[Problem]:
    yield from constant_problems(c, matmul_t_zero_points(c))
    n, d = c.a.shape[0], c.b.shape[0]
    if d not in (1, n):
        wanted = "1" if n == 1 else f"1 or {n}, the batches of a"
        yield c.problem("e2", f"b has {d} batches, expected {wanted}")


def matmul_t_undefined(c: Call) -> Iterator[Problem]:
    yield from _sums(c, lambda b: b.swapaxes(1, 2))
