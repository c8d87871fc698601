"""Scales, zero points and bits: what a tensor's integers stand for.

Integers are derived here, in `quantize`, `multiplier_and_shift` and `zero_point_integer`, for
training and for files alike. They use operations that IEEE 754 rounds correctly (*, /, rounding)
and integers, so that no program gives others than the next.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, lax

from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor, follow, tie

# Shifts of RESCALE ("Scaling Helpers", TOSA 1.0.1).
MIN_SHIFT, MAX_SHIFT = 2, 62


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class QParams:
    """What integers stand for: real = scale * (integer - zero_point), in a range of `bits`.

    Or what FP8 values stand for: real = scale * value.

    All arrays are float32, so that they can be trained and swept.

    Args:
      scale: positive; broadcasts against the tensor, size 1 in all axes but that of channels.
      zero_point: a scalar, rounded where it is used.
      bits: a scalar, rounded where it is used; at most those of `dtype`.
      dtype: INT4, INT8 or INT16, which holds the integers; or FP8E4M3 or FP8E5M2.
      symmetric: the zero point is 0, whatever `zero_point` says.
      narrow_range: leaves out the lowest integer, so that the range is symmetric.
    """

    scale: jax.Array
    zero_point: jax.Array
    bits: jax.Array
    dtype: DType = dataclasses.field(default=DType.INT8, metadata={"static": True})
    symmetric: bool = dataclasses.field(default=False, metadata={"static": True})
    narrow_range: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        arrays = {"scale": self.scale, "zero_point": self.zero_point, "bits": self.bits}
        known = ", ".join(f"{name}={_brief(x)}" for name, x in arrays.items())
        kinds = [k.replace("_", " ") for k in ("symmetric", "narrow_range") if getattr(self, k)]
        return f"QParams({', '.join([self.dtype.name, known, *kinds])})"

    @property
    def grid(self) -> Grid:
        """The smallest and the largest integer, with their gradients by `bits`.

        Raises:
          ValueError: FP8 has no integers.
        """
        if self.dtype.is_float:
            raise ValueError(f"{self.dtype.name} has no bits and no integers to choose from")
        bits = lax.stop_gradient(self.bits)
        whole = jnp.clip(lax.round(bits, _HALF_EVEN), 2, self.dtype.bits).astype(jnp.int32)
        highest = (jnp.left_shift(jnp.int32(1), whole - 1) - 1).astype(jnp.float32)
        highest = follow(highest, jnp.exp2(self.bits - 1))
        return Grid(-highest if self.narrow_range else -highest - 1, highest)


class Grid(NamedTuple):
    """The integers of a tensor: from qmin to qmax, as float32."""

    qmin: jax.Array
    qmax: jax.Array


_HALF_EVEN = lax.RoundingMethod.TO_NEAREST_EVEN


def quantize(x: jax.Array, qparams: QParams, estimator: Estimator = clipped_ste) -> QTensor:
    """The integers of real values: x / scale, ties to even, + zero_point, saturated.

    Or their FP8 values: x * (1 / scale), saturated and rounded, as a graph computes them.

    Args:
      x: float32.
      qparams: for it.
      estimator: what stands for the derivative of rounding and saturation.

    Returns:
      A QTensor of the shape of x, in the storage of `qparams.dtype`.
    """
    if qparams.dtype.is_float:
        return _to_float8(x, qparams, estimator)
    grid = qparams.grid
    zero_point = tie(zero_point_integer(qparams))
    scaled = divide(x, qparams.scale)
    integers = jnp.clip(lax.round(scaled, _HALF_EVEN) + zero_point, *grid)
    integers = lax.stop_gradient(integers).astype(qparams.dtype.storage)
    # Saturated ones follow the end of the range, which bits may move.
    value = scaled + zero_point
    inside = estimator(value, lax.stop_gradient(grid.qmin), lax.stop_gradient(grid.qmax))
    ends = jnp.where(value < grid.qmin, grid.qmin, jnp.where(value > grid.qmax, grid.qmax, 0.0))
    return QTensor(integers, inside + (ends - lax.stop_gradient(ends)))


def _to_float8(x: jax.Array, qparams: QParams, estimator: Estimator) -> QTensor:
    limit = float8_limit(qparams.dtype)
    # Without the barrier XLA fuses the product that computes x, and rounds differently.
    value = lax.optimization_barrier(x) * reciprocal(qparams.scale)
    rounded = lax.stop_gradient(jnp.clip(value, -limit, limit)).astype(qparams.dtype.storage)
    # XLA may leave out a rounding that a wider type follows, but for the barrier.
    return QTensor(lax.optimization_barrier(rounded), estimator(value, -limit, limit))


def float8_limit(dtype: DType) -> float:
    """The largest finite value."""
    return float(jnp.finfo(dtype.storage).max)


def reciprocal(scale: jax.Array) -> jax.Array:
    """1 / scale, correctly rounded.

    Where the scale is a quotient or a constant, XLA would join it to this one, or to a product.
    """
    scale = lax.optimization_barrier(scale)
    return divide(jnp.ones_like(scale), scale)


def dequantize(x: QTensor, qparams: QParams) -> jax.Array:
    """The real values of integers: (x - zero_point) * scale, float32."""
    return (tie(x) - tie(zero_point_integer(qparams))) * qparams.scale


def fake_quant(x: jax.Array, qparams: QParams, estimator: Estimator = clipped_ste) -> jax.Array:
    """`quantize` and `dequantize`: real values, of those that integers can stand for."""
    return dequantize(quantize(x, qparams, estimator), qparams)


def zero_point_integer(qparams: QParams) -> QTensor:
    """The zero point, rounded (ties to even) and within the range: a scalar in the storage."""
    if qparams.symmetric:
        return QTensor.of(jnp.zeros((), qparams.dtype.storage))
    grid = qparams.grid
    value = lax.round(lax.stop_gradient(qparams.zero_point), _HALF_EVEN)
    integer = jnp.clip(value, *lax.stop_gradient(grid)).astype(qparams.dtype.storage)
    return QTensor(integer, clipped_ste(qparams.zero_point, *lax.stop_gradient(grid)))


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b, correctly rounded, in every program.

    XLA divides by a constant, or by a scalar all elements of an array, in two roundings: it
    multiplies by the reciprocal. It does not where each element chooses its divisor.
    """
    return a / jnp.where(jnp.isnan(a), a, b)


def multiplier_and_shift(scale: jax.Array, *, scale32: bool = True) -> tuple[QTensor, jax.Array]:
    """A positive scale as multiplier / 2**shift, for RESCALE.

    A float32 has 24 bits, so that a multiplier of 31 is exact; one of 15 is rounded, ties up.
    Below 2**-32 (2**-48) bits are lost, as the shift ends at 62.

    Args:
      scale: float32, of any shape, in [2**-62, 2**29), of 16 bits below 2**13; beyond, the
        multiplier is 0 or the shift below 2, which `freeze` refuses.
      scale32: for a multiplier of 32 bits; else of 16.

    Returns:
      multiplier: int32 or int16, with the gradient of the scale.
      shift: int8.
    """
    kept = 31 if scale32 else 15
    bits = lax.bitcast_convert_type(lax.stop_gradient(scale), jnp.int32)
    exponent = (bits >> 23) - 127
    multiplier = ((bits & 0x7FFFFF) | 0x800000) << 7
    if not scale32:
        multiplier = ((multiplier >> 15) + 1) >> 1
        carry = multiplier >> 15
        multiplier, exponent = multiplier >> carry, exponent + carry
    shift = kept - 1 - exponent
    lost = jnp.clip(shift - MAX_SHIFT, 0, kept)
    multiplier = multiplier >> lost
    return (
        QTensor(multiplier.astype(jnp.int32 if scale32 else jnp.int16), scale),
        jnp.minimum(shift, MAX_SHIFT).astype(jnp.int8),
    )


def _brief(x: Any) -> str:
    """An array in a repr: a number, or the type and the shape of more."""
    if isinstance(x, np.ndarray | jax.Array):
        is_number = x.size == 1 and not isinstance(x, core.Tracer)
        return f"{x.item():.6g}" if is_number else f"{x.dtype}{list(x.shape)}"
    return repr(x)
