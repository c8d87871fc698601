"""Rules of "Reduction Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosajax.checks._common import Shapes, axis_errors, output_errors
from tosajax.checks.call import Call, Problem
from tosajax.checks.values import derived_problems, fits_int32
from tosajax.dtypes import DType


def reduce_sum_shape(c: Call) -> Shapes:
    return (tuple(1 if i == c.axis else dim for i, dim in enumerate(c.input.shape)),)


def reduce_sum_errors(c: Call) -> Iterator[Problem]:
    illegal = list(axis_errors(c, "e1", len(c.input.shape)))
    yield from illegal
    if illegal or c.output.shape is None:
        return
    size = c.output.shape[c.axis] if c.axis < len(c.output.shape) else 1
    if size != 1:
        yield c.problem("e2", f"output has {size} elements along axis {c.axis}, expected 1")
    else:
        yield from output_errors(c, "arguments", *reduce_sum_shape(c))


def reduce_sum_undefined(c: Call) -> Iterator[Problem]:
    if c.input.dtype is DType.INT32:
        rule = fits_int32("r1", "the sum of input")
        yield from derived_problems(
            c, ["input"], lambda x: [(rule, x.sum(c.axis, np.int64, keepdims=True))]
        )


reduce_all_shape = reduce_any_shape = reduce_max_shape = reduce_sum_shape
reduce_min_shape = reduce_product_shape = reduce_sum_shape

reduce_all_errors = reduce_any_errors = reduce_max_errors = reduce_sum_errors
reduce_min_errors = reduce_product_errors = reduce_sum_errors
