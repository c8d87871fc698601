"""Scales, zero points and bits: the real values of stored ones.

Stored values are derived in `tosajax.quant.storages`, multipliers and shifts here, for training
and for files alike. Both use operations that IEEE 754 rounds correctly (*, /, rounding) and
integers, so that all programs give the same.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import Multiplier, QTensor
from tosajax.grad.shared import shared
from tosajax.quant.storages import Grid, Storage, storage_of

# Shifts of RESCALE ("Scaling Helpers", TOSA 1.0.1).
MIN_SHIFT, MAX_SHIFT = 2, 62


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QParams:
    """The real values of integers: scale * (integer - zero_point), in a range of `bits`.

    Or of FP8 values: scale * value.

    All arrays are float32, so that they can be trained and swept.

    Args:
      scale: positive; broadcasts against the tensor, size 1 in all axes except the channel axis.
      zero_point: a scalar, rounded where it is used.
      bits: a scalar, rounded where it is used; at most the bits of `dtype`.
      dtype: INT4, INT8, INT16, FP8E4M3 or FP8E5M2, of the stored values; or a `Storage`.
      symmetric: the zero point is 0, whatever `zero_point` holds.
      narrow_range: leaves out the lowest integer, so that the range is symmetric.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> qparams = quant.QParams(jnp.float32(0.5), jnp.float32(-1), jnp.float32(8))
      >>> x = quant.quantize(jnp.float32([0, 1, 100]), qparams)
      >>> x.q.tolist()
      [-1, 1, 127]
      >>> quant.dequantize(x, qparams).tolist()
      [0.0, 1.0, 64.0]
    """

    scale: jax.Array
    zero_point: jax.Array
    bits: jax.Array
    dtype: DType | Storage = dataclasses.field(default=DType.INT8, metadata={"static": True})
    symmetric: bool = dataclasses.field(default=False, metadata={"static": True})
    narrow_range: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        arrays = {"scale": self.scale, "zero_point": self.zero_point, "bits": self.bits}
        numbers = ", ".join(f"{name}={_brief(x)}" for name, x in arrays.items())
        kinds = [k.replace("_", " ") for k in ("symmetric", "narrow_range") if getattr(self, k)]
        return f"QParams({', '.join([self.storage.name, numbers, *kinds])})"

    @property
    def storage(self) -> Storage:
        """How real values are stored."""
        return storage_of(self.dtype)

    @property
    def grid(self) -> Grid:
        """The smallest and the largest integer, with their gradients by `bits`.

        Raises:
          ValueError: the stored values are not integers.
        """
        if not self.storage.is_integer:
            raise ValueError(f"{self.storage.name} has no bits and no integers to choose from")
        return self.storage.grid(self.bits, narrow_range=self.narrow_range)


def quantize(x: jax.Array, qparams: QParams, estimator: Estimator = clipped_ste) -> QTensor:
    """The integers of real values: x / scale, ties to even, + zero_point, saturated.

    Or the FP8 values: x * (1 / scale), saturated and rounded, as a graph computes them.

    Args:
      x: float32.
      qparams: its scale and zero point.
      estimator: the surrogate derivative of rounding and saturation.

    Returns:
      A QTensor of the shape of x, in the storage of `qparams.dtype`.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> qparams = quant.QParams(jnp.float32(0.5), jnp.float32(-1), jnp.float32(8))
      >>> quant.quantize(jnp.float32([0, 0.7, 100]), qparams).q.tolist()
      [-1, 0, 127]
    """
    x, qparams = jax.tree.map(jnp.asarray, (x, qparams))
    return _quantize(x, qparams, estimator)


@shared
def _quantize(x: jax.Array, qparams: QParams, estimator: Estimator) -> QTensor:
    return qparams.storage.quantize(x, qparams, estimator)


def dequantize(x: QTensor, qparams: QParams) -> jax.Array:
    """The real values of integers: (x - zero_point) * scale, float32; or of FP8: x * scale.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> qparams = quant.QParams(jnp.float32(0.5), jnp.float32(-1), jnp.float32(8))
      >>> quant.dequantize(quant.quantize(jnp.float32([0, 0.7]), qparams), qparams).tolist()
      [0.0, 0.5]
    """
    return qparams.storage.dequantize(x, qparams)


def fake_quant(x: jax.Array, qparams: QParams, estimator: Estimator = clipped_ste) -> jax.Array:
    """`quantize`, then `dequantize`: x rounded to the real values that can be stored.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> qparams = quant.QParams(jnp.float32(0.5), jnp.float32(0), jnp.float32(4))
      >>> quant.fake_quant(jnp.float32([-100, 0.7, 100]), qparams).tolist()
      [-4.0, 0.5, 3.5]
    """
    return dequantize(quantize(x, qparams, estimator), qparams)


def real_ends(qparams: QParams) -> tuple[jax.Array, jax.Array]:
    """The least and the largest real value of integers with one scale."""
    grid, scale = qparams.grid, qparams.scale.reshape(())
    zero_point = 0.0 if qparams.symmetric else lax.round(qparams.zero_point)
    return (grid.qmin - zero_point) * scale, (grid.qmax - zero_point) * scale


def spread(qparams: QParams) -> jax.Array:
    """The power of 2 by which integers of fewer bits than their type has fill it."""
    return lax.stop_gradient((qparams.storage.dtype.maximum + 1) / (qparams.grid.qmax + 1))


def multiplier_and_shift(scale: jax.Array, *, scale32: bool = True) -> tuple[QTensor, jax.Array]:
    """A positive scale as multiplier / 2**shift, for RESCALE.

    A float32 has 24 bits, so that a multiplier of 31 is exact; one of 15 is rounded, ties up.
    Below 2**-32 (2**-48) bits are lost, as the shift ends at 62.

    Args:
      scale: float32, of any shape, in [2**-62, 2**29), of 16 bits below 2**13.
      scale32: whether the multiplier has 32 bits; else 16.

    Returns:
      multiplier: int32 or int16, with the gradient of the scale.
      shift: int8.

    Raises:
      ValueError: a scale is NaN or out of range. A traced one has no value yet; for it the
        multiplier is then 0 or the shift below 2, which `freeze` refuses.

    Example:
      >>> import jax.numpy as jnp
      >>> from tosajax import quant
      >>> multiplier, shift = quant.multiplier_and_shift(jnp.float32(0.75))
      >>> multiplier.q.item() / 2 ** shift.item()
      0.75
    """
    multiplier, shift = unchecked_multiplier_and_shift(scale, scale32=scale32)
    if not isinstance(scale, core.Tracer):
        wrong = np.asarray((multiplier.q <= 0) | (shift < MIN_SHIFT))
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            raise ValueError(
                f"a scale{f' at {at}' if at else ''} is {np.asarray(scale)[at]}, expected all in "
                f"[2**-{MAX_SHIFT}, 2**{29 if scale32 else 13})"
            )
    return multiplier, shift


def unchecked_multiplier_and_shift(scale: jax.Array, *, scale32: bool) -> tuple[QTensor, jax.Array]:
    """`multiplier_and_shift` without errors."""
    bits_of_multiplier = 31 if scale32 else 15
    bits = lax.bitcast_convert_type(lax.stop_gradient(scale), jnp.int32)
    exponent = (bits >> 23) - 127
    multiplier = ((bits & 0x7FFFFF) | 0x800000) << 7
    if not scale32:
        multiplier = ((multiplier >> 15) + 1) >> 1
        carry = multiplier >> 15
        multiplier, exponent = multiplier >> carry, exponent + carry
    shift = bits_of_multiplier - 1 - exponent
    lost = jnp.clip(shift - MAX_SHIFT, 0, bits_of_multiplier)
    multiplier = multiplier >> lost
    return (
        Multiplier(multiplier.astype(jnp.int32 if scale32 else jnp.int16), scale),
        jnp.minimum(shift, MAX_SHIFT).astype(jnp.int8),
    )


def _brief(x: object) -> str:
    """An array in a repr: a number, or the type and the shape of more."""
    if isinstance(x, np.ndarray | jax.Array):
        is_number = x.size == 1 and not isinstance(x, core.Tracer)
        return f"{x.item():.6g}" if is_number else f"{x.dtype}{list(x.shape)}"
    return repr(x)
