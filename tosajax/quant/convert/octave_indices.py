"""Indices of a TABLE by octaves: integers of a wide range, each with the same relative precision.

Steep functions, as the inverse square root of a variance, are looked up in such a TABLE: even steps
would have the first one reach from the pole over all small numbers.
"""

from __future__ import annotations

import numpy as np

from tosajax.builder import Builder
from tosajax.dtypes import DType
from tosajax.graph import Tensor

_BITS = 16  # of an index


def octave_size(bits: int) -> int:
    """The indices of each octave, with which integers of so many bits and a sign have room."""
    octaves = bits - 1
    return 2 ** (_BITS - (octaves - 1).bit_length())


def octave_indices(builder: Builder, label: str, x: Tensor, size: int) -> Tensor:
    """The indices of integers, in INT16; see `Octaves`.

    Args:
      builder: of the graph.
      label: the output of the TABLE.
      x: INT32, any shape; those below 1 count as 1.
      size: from `octave_size`.
    """
    shape = (1,) * len(x.shape or ())
    digits = size.bit_length() - 1

    def number(name: str, value: int) -> Tensor:
        return builder.const(np.full(shape, value, np.int32), DType.INT32, name=f"{label}/{name}")

    positive = builder.op("MAXIMUM", x, number("least", 1), name=f"{label}/positive")
    zeros = builder.op("CLZ", positive, name=f"{label}/leading_zeros")
    # The leading one goes to bit 30, and the digits behind it follow.
    shift = builder.op("SUB", zeros, number("sign", 1), name=f"{label}/shift")
    power = builder.op("LOGICAL_LEFT_SHIFT", number("one", 1), shift, name=f"{label}/power")
    no_shift = builder.const(np.zeros(1, np.int8), DType.INT8, name=f"{label}/shift_of_power")
    normal = builder.op("MUL", positive, power, no_shift, name=f"{label}/normalized")
    cut = number("cut", 30 - digits)
    mantissa = builder.op(
        "ARITHMETIC_RIGHT_SHIFT", normal, cut, round=False, name=f"{label}/mantissa"
    )
    octaves = builder.op("MUL", zeros, number("size", size), no_shift, name=f"{label}/octaves")
    index = builder.op("SUB", mantissa, octaves, name=f"{label}/from_top")
    lowest = number("lowest", 30 * size - 2 ** (_BITS - 1))
    index = builder.op("ADD", index, lowest, name=f"{label}/wide_index")
    return builder.op("CAST", index, dtype=DType.INT16, name=f"{label}/index")
