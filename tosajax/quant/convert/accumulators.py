"""Accumulators: sums between the operators of integers and their RESCALE."""

from __future__ import annotations

import dataclasses

from tosajax.dtypes import DType
from tosajax.graph import Tensor
from tosajax.quant.model.recipes import Scale


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """Integers, mostly int32 or int48, and their unit: real = unit * (integer - zero point)."""

    tensor: Tensor
    scale: Scale
    zero_point: Tensor | None = None
    bits: int = 0  # of the largest sum, where another may follow


def bias_limit(acc_type: DType, products: int) -> float:
    """The largest bias beside products whose sum is at most so large; at least 1/4 of the range.

    Args:
      acc_type: INT32 or INT48.
      products: the largest magnitude of their sum.
    """
    whole = 2.0 ** (acc_type.bits - 1)
    # Two units of float32 less than the range.
    return max(whole * (1 - 2.0**-23) - products, whole / 4)
