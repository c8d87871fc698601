"""Products of matrices as TOSA graphs."""

from __future__ import annotations

import numpy as np

from tosajax.builder import Builder
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant
from tosajax.hifi.to_tosa._nodes import (
    check,
    reshape,
    rows,
    shape_of,
)

_PER_CHANNEL = "per_chan_sym8sxasym8s_asym8s"


def matmul(
    b: Builder,
    mat1: np.ndarray,
    mat2: Tensor,
    bias: np.ndarray | None = None,
    *,
    precision: str = _PER_CHANNEL,
    quant: Quant,
) -> Tensor:
    """Adds xa_nn_matmul_per_chan_sym8sxasym8s_asym8s, as CONV2D and RESCALE.

    Args:
      b: the Builder to which nodes are added.
      mat1: int8, [rows, cols].
      mat2: INT8, [cols, vec_count].
      bias: int32, [rows], or None.
      precision: "per_chan_sym8sxasym8s_asym8s".
      quant: see `kernels.Quant`; out_shift is at most 29.

    Returns:
      INT8, [rows, vec_count].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels, to_tosa
      >>> vectors = jax.ShapeDtypeStruct((4, 2), np.int8)
      >>> quant = kernels.Quant(0, 0, np.full(3, 2**30, np.int32), np.zeros(3, np.int32), 0)
      >>> to_tosa.to_graph(to_tosa.matmul, np.ones((3, 4), np.int8), vectors, quant=quant)
      Graph('main', (mat2: INT8[4,2]) -> (transpose_16: INT8[3,2]), 16 nodes)
    """
    forms = (_PER_CHANNEL,), ("mat1", "bias")
    check(kernels.matmul, *forms, b, mat1, mat2, bias, precision=precision, quant=quant)
    vectors = b.op("TRANSPOSE", mat2, perms=(1, 0))
    bias = np.zeros(1, np.int32) if bias is None else bias
    columns = rows(b, mat1, vectors, bias, quant)
    columns = reshape(b, columns, (shape_of(vectors)[0], mat1.shape[0]))
    return b.op("TRANSPOSE", columns, perms=(1, 0))
