"""Gradients of MATMUL and MATMUL_T."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, tie, tie_scalar


@exact(ops.matmul)
def matmul(a: QTensor, b: QTensor, a_zp: QTensor, b_zp: QTensor, *, out_type: DType) -> jax.Array:
    """Linear in both operands less their zero points."""
    del out_type
    a_wide, b_wide = tie(a) - tie_scalar(a_zp), tie(b) - tie_scalar(b_zp)
    return jnp.matmul(a_wide, b_wide, precision=lax.Precision.HIGHEST)


@exact(ops.matmul_t)
def matmul_t(a: QTensor, b: QTensor, a_zp: QTensor, b_zp: QTensor, *, out_type: DType) -> jax.Array:
    """Linear in both operands less their zero points; all batches share the one matrix of D = 1."""
    del out_type
    a_wide, b_wide = tie(a) - tie_scalar(a_zp), tie(b) - tie_scalar(b_zp)
    return jnp.matmul(a_wide, b_wide.swapaxes(1, 2), precision=lax.Precision.HIGHEST)
