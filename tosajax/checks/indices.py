"""Rules of "Tensor Operators", ARGMAX (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

from tosajax.checks._common import Shapes, axis_errors, output_errors
from tosajax.checks.call import Call, Problem


def argmax_shape(c: Call) -> Shapes:
    return (tuple(dim for i, dim in enumerate(c.input.shape) if i != c.axis),)


def argmax_errors(c: Call) -> Iterator[Problem]:
    illegal = list(axis_errors(c, "e1", len(c.input.shape)))
    yield from illegal or output_errors(c, "e2", *argmax_shape(c))
