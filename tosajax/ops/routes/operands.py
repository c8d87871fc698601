"""The operands of a convolution, which every route takes."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import numpy as np

from tosajax.ops._window import Window

# Products of int8 are at most 2**14, so that 131071 of them add up to less than 2**31.
INT8_CHUNK = (2**31 - 1) // 2**14


@dataclasses.dataclass(frozen=True)
class Convolution:
    """Sums of (x - x_zp) * (weight - weight_zp) over windows of x, padded with x_zp.

    Args:
      x: int8, int16 or float, [N, ..., IC].
      weight: int8 or float, [OC, ..., IC]; depthwise int32 or float32, [KH, KW, C, M], less its
        zero point. A NumPy array is a constant.
      x_zp: the type of x, [1]; 0 unless x is int8.
      weight_zp: the type of weight, [1]; 0 unless it is int8.
      window: the window over the spread input.
      spread: by axis, the distance of the elements of x after zeros are put between them; floats
        only.
    """

    x: jax.Array
    weight: jax.Array | np.ndarray
    x_zp: jax.Array | np.ndarray
    weight_zp: jax.Array | np.ndarray
    window: Window
    spread: tuple[int, ...] = ()

    @property
    def out(self) -> tuple[int, ...]:
        """The spatial shape of the result, for an input that is not spread."""
        return self.window.out(self.x.shape)

    @functools.cached_property
    def known(self) -> np.ndarray | None:
        """weight - weight_zp as int8, or None: both must be constant and fit; see `why_unknown`."""
        if not (isinstance(self.weight, np.ndarray) and isinstance(self.weight_zp, np.ndarray)):
            return None
        return known_weights(self.weight, self.weight_zp)

    @property
    def why_unknown(self) -> str:
        """Why `known` is None; "" if it is not."""
        if not isinstance(self.weight, np.ndarray):
            return "weights not constant"
        if not isinstance(self.weight_zp, np.ndarray):
            return "zero point of weights not constant"
        return why_unknown(self.weight, self.weight_zp)


def known_weights(weight: np.ndarray, weight_zp: np.ndarray) -> np.ndarray | None:
    """weight - weight_zp, int8 [OC, ...]; None if they do not fit int8 or their sums int32."""
    if why_unknown(weight, weight_zp):
        return None
    return (weight.astype(np.int16) - weight_zp.astype(np.int16)).astype(np.int8)


def why_unknown(weight: np.ndarray, weight_zp: np.ndarray) -> str:
    """Why `known_weights` returns None; "" if it does not."""
    if (terms := math.prod(weight.shape[1:])) > INT8_CHUNK:
        return f"{terms} terms are too many for sums in int32"
    centred = weight.astype(np.int16) - weight_zp.astype(np.int16)
    if centred.size and (centred.min() < -128 or centred.max() > 127):
        return "weights less their zero point do not fit int8"
    return ""
