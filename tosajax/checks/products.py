"""Rules of "Tensor Operators", MATMUL (TOSA 1.0.1) and MATMUL_T (1.1 draft)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import Shapes
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import ValueRule, constant_problems, zero_point


def matmul_shape(c: Call) -> Shapes:
    n, height, _ = c.a.shape
    return ((n, height, c.b.shape[-1]),)


def matmul_zero_points(c: Call) -> Iterator[ValueRule]:
    # The specification's text asks for 0 where the type is int8; it means every other type.
    yield from zero_point(c, "e1", "a_zp")
    yield from zero_point(c, "e1", "b_zp")


def matmul_errors(c: Call) -> Iterator[Problem]:
    return constant_problems(c, matmul_zero_points(c))


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
