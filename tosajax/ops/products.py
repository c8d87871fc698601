"""MATMUL ("Tensor Operators", TOSA 1.0.1) and MATMUL_T (1.1 draft)."""

from __future__ import annotations

import jax

from tosajax.dtypes import DType
from tosajax.ops.recording import recorded
from tosajax.ops.routes import choose


@recorded
def matmul(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, out_type: DType
) -> jax.Array:
    """Multiplies matrices, batch by batch (TOSA 1.0.1, "MATMUL").

    Args:
      a: int8, int16 or float, [N, H, C].
      b: the type of a, [N, C, W].
      a_zp: the type of a, [1]; 0 unless int8.
      b_zp: the type of a, [1]; 0 unless int8.
      out_type: INT32 for int8, INT48 for int16, FP16 or FP32 for floats, which are added up in
        float32 and rounded once.

    Returns:
      `out_type`, [N, H, W].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> a, b, zp = jnp.int8([[[1, 2]]]), jnp.int8([[[3], [4]]]), jnp.int8([0])
      >>> tosajax.ops.matmul(a, b, zp, zp, out_type=tosajax.DType.INT32).tolist()
      [[[11]]]
    """
    total = choose.of_products(a, b)(a, b, a_zp, b_zp)
    return total.astype(out_type.storage) if out_type.is_float else total


@recorded
def matmul_t(
    a: jax.Array, b: jax.Array, a_zp: jax.Array, b_zp: jax.Array, *, out_type: DType
) -> jax.Array:
    """Multiplies by transposed matrices, batch by batch (TOSA 1.1 draft, "MATMUL_T").

    Args:
      a: int8, int16 or float, [N, H, C].
      b: the type of a, or for floats another float type, [D, W, C]; D is N, or 1 for one matrix
        that multiplies all batches.
      a_zp: the type of a, [1]; 0 unless int8.
      b_zp: the type of b, [1]; 0 unless int8.
      out_type: INT32 for int8, INT48 for int16, FP16, BF16 or FP32 for floats, which are added up
        in float32 and rounded once.

    Returns:
      `out_type`, [N, H, W].

    Example:
      >>> import jax.numpy as jnp
      >>> import tosajax
      >>> a, b, zp = jnp.int8([[[1, 2]]]), jnp.int8([[[3, 4]]]), jnp.int8([0])
      >>> tosajax.ops.matmul_t(a, b, zp, zp, out_type=tosajax.DType.INT32).tolist()
      [[[11]]]
    """
    total = choose.of_transposed_products(a, b)(a, b, a_zp, b_zp)
    return total.astype(out_type.storage) if out_type.is_float else total
