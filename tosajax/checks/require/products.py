"""Run-time rules of "Tensor Operators", MATMUL (TOSA 1.0.1) and MATMUL_T (1.1 draft)."""

from __future__ import annotations

import jax
from jax import lax

from tosajax.checks.require._common import Flags, flags, reach, sum_overflows, widen
from tosajax.dtypes import DType
from tosajax.fixedpoint import _x64


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
        with _x64.scope_of(values.dtype):
            return lax.dot_general(values, wide_b, (((2,), (1,)), ((0,), (0,))))

    return flags(r1=sum_overflows(multiply, wide_a, gain=gain, acc_type=out_type))


def matmul_t_require(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, out_type: DType
) -> Flags:
    """r1, for integers: the sum of products fits `out_type`."""
    n, _, length = a.shape
    matrices = lax.broadcast_in_dim(b, (n, b.shape[1], length), (0, 1, 2)).swapaxes(1, 2)
    return matmul_require(a, matrices, a_zp, b_zp, out_type=out_type)
