"""The precisions of layers."""

from __future__ import annotations

import enum


class Precision(enum.IntEnum):
    """Coefficients x input and output; recurrent layers support only P16bx16b and P8bx16b.

    Example:
      >>> from tosajax.hifi import layers
      >>> layers.Precision.P8bx16b
      <Precision.P8bx16b: 101>
    """

    P16bx16b = 100
    P8bx16b = 101
    P8bx8b = 102
    F32xF32 = 103
