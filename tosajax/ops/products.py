"""MATMUL ("Tensor Operators", TOSA 1.0.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.ops import _exact
from tosajax.ops._float import dot_rows
from tosajax.ops._route import route


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
    """
    if a.dtype == np.int8:
        with route("dot", "int8, by oneDNN" if _exact.by_onednn(a, b) else "int8"):
            if isinstance(b, np.ndarray):  # [N, K], which is faster for few rows
                return _exact.dot_zp(a, b.swapaxes(1, 2).copy(), a_zp, b_zp, b_axis=-1)
            return _exact.dot_zp(a, b, a_zp, b_zp)
    if a.dtype == np.int16:
        with route("dots of bytes", "int16"):
            return _exact.dot_int16(a, jnp.asarray(b))
    with route("float dot", "float32"):
        return _float_product(a.astype(jnp.float32), b.astype(jnp.float32)).astype(out_type.storage)


def _float_product(a: jax.Array, b: jax.Array | np.ndarray) -> jax.Array:
    """float32 [N, H, C] times [N, C, W]."""
    if isinstance(b, np.ndarray) and len(b) == 1:
        # All rows of a batch are multiplied by it at once.
        return dot_rows(a[0], jnp.asarray(b[0].T))[None]
    return lax.dot_general(
        a,
        b,
        (((2,), (1,)), ((0,), (0,))),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
