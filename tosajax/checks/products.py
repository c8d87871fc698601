"""Rules of "Tensor Operators", MATMUL (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import Shapes, zero_point_errors
from tosajax.checks.call import Call, Problem


def matmul_shape(c: Call) -> Shapes:
    n, height, _ = c.a.shape
    return ((n, height, c.b.shape[-1]),)


def matmul_errors(c: Call) -> Iterator[Problem]:
    # The specification's text asks for 0 where the type is int8; it means every other type.
    yield from zero_point_errors(c, "e1", "a_zp")
    yield from zero_point_errors(c, "e1", "b_zp")
