"""The arguments shared by all functions that compute sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.hifi.capi._function import Arguments
from tosajax.hifi.capi._plan import operand
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._precision import Precision

# The arguments for fixed point, quantized, and per-channel quantized precisions.
SHIFTS = "acc_shift bias_shift"
SCALE = "out_multiplier out_shift out_zero_bias"
SCALES = "p_out_multiplier p_out_shift out_zero_bias"


def numbers_of(
    a: Arguments, types: Precision, channels: int, *, inp: str = "input", weight: str = "kernel"
) -> dict[str, Any]:
    """The keywords that rescale sums: shifts for fixed point, a Quant, or none for floats.

    Args:
      a: the arguments of a call.
      types: the kernel's precision.
      channels: the number of multipliers and shifts in memory, if they are per channel.
      inp: the prefix of the input's zero bias, the argument {inp}_zero_bias.
      weight: the prefix of the weights' zero bias, {weight}_zero_bias; sym8s weights have none.
    """
    if types.is_float:
        return {}
    if not types.is_quantized:
        return {"acc_shift": a.acc_shift, "bias_shift": a.bias_shift}
    per_channel = hasattr(a, "p_out_multiplier")
    scale: list[Any] = [
        operand(a, f"p_{name}", np.int32, (channels,)) if per_channel else getattr(a, name)
        for name in ("out_multiplier", "out_shift")
    ]
    quant = Quant(
        getattr(a, f"{inp}_zero_bias"),
        getattr(a, f"{weight}_zero_bias", 0),
        *scale,
        out_zero_bias=getattr(a, "out_zero_bias", 0),
    )
    return {"quant": quant}
