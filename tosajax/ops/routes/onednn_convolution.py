"""Route "onednn convolution": oneDNN's convolution of uint8 by constant int8."""

from __future__ import annotations

import jax

from tosajax.ops.routes import onednn
from tosajax.ops.routes.constant import Kernel, convolve
from tosajax.ops.routes.operands import Convolution


def run(c: Convolution) -> jax.Array:
    """int8 or int16 by constant weights."""
    return convolve(c, Kernel(onednn.convolution, onednn.pads, onednn.RAISED))
