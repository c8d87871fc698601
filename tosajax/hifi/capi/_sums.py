"""What the functions of sums of products share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tosajax.hifi.capi._plan import operand
from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._precision import Precision

# Arguments after the others, by the kind of precision.
SHIFTS = "acc_shift bias_shift"
SCALE = "out_multiplier out_shift out_zero_bias"
SCALES = "p_out_multiplier p_out_shift out_zero_bias"


def numbers_of(
    a: Any, types: Precision, channels: int, *, inp: str = "input", weight: str = "kernel"
) -> dict[str, Any]:
    """How sums become outputs: the shifts of fixed point, a Quant, or nothing for floats.

    Args:
      a: the arguments of a call.
      types: of the kernel.
      channels: how many multipliers and shifts there are, where they are behind pointers.
      inp: of the input's zero bias, the name without _zero_bias.
      weight: of the weights' one, which functions of sym8s weights do not have.
    """
    if types.is_float:
        return {}
    if not types.is_quantized:
        return {"acc_shift": a.acc_shift, "bias_shift": a.bias_shift}
    per_channel = hasattr(a, "p_out_multiplier")
    scale = [
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
