"""Run-time rules of "Tensor Operators", pooling (TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import lax

from tosajax.checks.require._common import Flags, flags, reach, sum_overflows, widen
from tosajax.dtypes import DType


def avg_pool2d_require(
    input: jax.Array,
    input_zp: jax.Array,
    output_zp: jax.Array,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[int],
    acc_type: DType,
) -> Flags:
    """r1, for integers: the sum of a window, less the zero points, fits int32.

    The later steps cannot overflow: the average of a legal sum has at most 17 bits.
    """
    if acc_type.is_float:
        return {}
    _, height, width, _ = input.shape
    count = min(kernel[0], height) * min(kernel[1], width)
    if count * reach(input.dtype) <= acc_type.maximum:
        return {}

    def add_up(values: jax.Array) -> jax.Array:
        top, bottom, left, right = pad
        sizes, steps = (1, *kernel, 1), (1, *stride, 1)
        pads = ((0, 0), (top, bottom), (left, right), (0, 0))
        return lax.reduce_window(values, np.int32(0), lax.add, sizes, steps, pads)

    values = widen(input, input_zp, acc_type)
    return flags(r1=sum_overflows(add_up, values, gain=count, width=16))
