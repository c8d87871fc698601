"""Gradient of RESIZE."""

from __future__ import annotations

import jax

from tosajax import ops
from tosajax.dtypes import DType
from tosajax.grad._exact import exact
from tosajax.grad.qtensor import QTensor, shadow, tie
from tosajax.spec.enums import ResizeMode


@exact(ops.resize)
def resize(
    input: QTensor,
    scale: tuple[int, int, int, int],
    offset: tuple[int, int],
    border: tuple[int, int],
    *,
    mode: ResizeMode,
    out_type: DType,
) -> jax.Array:
    """Linear: the weights of the samples."""
    del out_type
    bilinear = mode == ResizeMode.BILINEAR
    x = tie(input) if bilinear else shadow(input)
    result = ops.resize(x, scale, offset, border, mode=mode, out_type=DType.FP32)
    return result * (scale[0] * scale[2]) if bilinear else result
