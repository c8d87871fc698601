"""Rules of "Tensor Operators", MATMUL (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Iterator

import jax
from jax import lax

from tosajax.checks._common import Shapes, zero_point_errors
from tosajax.checks._require import Flags, flags, reach, scope_of, sum_overflows, widen
from tosajax.checks.call import Call, Problem
from tosajax.dtypes import DType


def matmul_shape(c: Call) -> Shapes:
    n, height, _ = c.a.shape
    return ((n, height, c.b.shape[-1]),)


def matmul_errors(c: Call) -> Iterator[Problem]:
    # The specification's text asks for 0 where the type is int8; it means every other type.
    yield from zero_point_errors(c, "e1", "a_zp")
    yield from zero_point_errors(c, "e1", "b_zp")


def matmul_require(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, out_type: DType
) -> Flags:
    """r1, for integers: the sum of products fits `out_type`."""
    if out_type.is_float:
        return {}
    gain = a.shape[-1] * reach(b.dtype)
    if gain * reach(a.dtype) <= out_type.maximum:
        return {}
    wide_a, wide_b = widen(a, a_zp, out_type), widen(b, b_zp, out_type)

    def multiply(values: jax.Array) -> jax.Array:
        with scope_of(values.dtype):
            return lax.dot_general(values, wide_b, (((2,), (1,)), ((0,), (0,))))

    return flags(r1=sum_overflows(multiply, wide_a, gain=gain, acc_type=out_type))
