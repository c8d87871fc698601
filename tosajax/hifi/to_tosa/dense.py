"""The fully connected layer as a TOSA graph."""

from __future__ import annotations

import numpy as np

from tosajax.builder import Builder
from tosajax.graph import Tensor
from tosajax.hifi import kernels
from tosajax.hifi.kernels import Quant
from tosajax.hifi.to_tosa._nodes import check, reshape, rows

_SIGNED = "sym8sxasym8s_asym8s"


def fully_connected(
    b: Builder,
    weight: np.ndarray,
    inp: Tensor,
    bias: np.ndarray,
    *,
    precision: str = _SIGNED,
    quant: Quant,
) -> Tensor:
    """Adds xa_nn_fully_connected_sym8sxasym8s_asym8s, as CONV2D and RESCALE.

    Args:
      b: the Builder to which nodes are added.
      weight: int8, [out_depth, weight_depth].
      inp: INT8, [weight_depth].
      bias: int32, [out_depth].
      precision: "sym8sxasym8s_asym8s".
      quant: see `kernels.Quant`; out_shift is at most 29.

    Returns:
      INT8, [out_depth].

    Raises:
      NNLibParamError: the library rejects a parameter.
      TypeError: an argument has the wrong type.
      UnsupportedError: TOSA cannot express the call.

    Example:
      >>> import jax
      >>> import numpy as np
      >>> from tosajax.hifi import kernels, to_tosa
      >>> x = jax.ShapeDtypeStruct((4,), np.int8)
      >>> weight, bias = np.ones((3, 4), np.int8), np.zeros(3, np.int32)
      >>> quant = kernels.Quant(0, 0, 2**30, 0, 0)
      >>> to_tosa.to_graph(to_tosa.fully_connected, weight, x, bias, quant=quant)
      Graph('main', (inp: INT8[4]) -> (reshape_14: INT8[3]), 14 nodes)
    """
    forms = (_SIGNED,), ("weight", "bias")
    common = {"precision": precision, "quant": quant}
    check(kernels.fully_connected, *forms, b, weight, inp, bias, **common)
    return reshape(b, rows(b, weight, inp, bias, quant), (weight.shape[0],))
