"""INT4, INT8 and INT16: real = scale * (integer - zero_point)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor, follow, tie
from tosajax.quant.storages.division import divide
from tosajax.quant.storages.protocol import Grid

if TYPE_CHECKING:
    from tosajax.quant.qparams import QParams
    from tosajax.quant.spec import QSpec

_HALF_EVEN = lax.RoundingMethod.TO_NEAREST_EVEN


@dataclasses.dataclass(frozen=True)
class Integers:
    """Integers of a range of bits, with a zero point. See `Storage`."""

    dtype: DType
    is_integer = True

    @property
    def name(self) -> str:
        return self.dtype.name

    def check(self, spec: QSpec) -> None:
        if spec.bits is not None and not 2 <= spec.bits <= self.dtype.bits:
            raise ValueError(f"{spec.bits} bits of {self.name}, expected 2 to {self.dtype.bits}")
        if not spec.symmetric and (self.dtype is not DType.INT8 or spec.per_channel):
            values = "values of a scale per channel" if spec.per_channel else self.name
            raise ValueError(f"TOSA has no zero point for {values}, expected symmetric=True")

    def grid(self, bits: jax.Array, *, narrow_range: bool) -> Grid:
        """The ends, with their gradients by `bits`."""
        whole = jnp.clip(lax.round(lax.stop_gradient(bits), _HALF_EVEN), 2, self.dtype.bits)
        highest = (jnp.left_shift(jnp.int32(1), whole.astype(jnp.int32) - 1) - 1).astype(
            jnp.float32
        )
        highest = follow(highest, jnp.exp2(bits - 1))
        return Grid(-highest if narrow_range else -highest - 1, highest)

    def quantize(self, x: jax.Array, qparams: QParams, estimator: Estimator) -> QTensor:
        """x / scale, ties to even, + zero_point, saturated."""
        grid = qparams.grid
        zero_point = tie(zero_point_integer(qparams))
        scaled = divide(x, qparams.scale)
        integers = jnp.clip(lax.round(scaled, _HALF_EVEN) + zero_point, *grid)
        integers = lax.stop_gradient(integers).astype(self.dtype.storage)
        # Saturated values follow the end of the range, which bits may move.
        value = scaled + zero_point
        inside = estimator(value, lax.stop_gradient(grid.qmin), lax.stop_gradient(grid.qmax))
        ends = jnp.where(value < grid.qmin, grid.qmin, jnp.where(value > grid.qmax, grid.qmax, 0.0))
        return QTensor(integers, inside + (ends - lax.stop_gradient(ends)))

    def dequantize(self, x: QTensor, qparams: QParams) -> jax.Array:
        return (tie(x) - tie(zero_point_integer(qparams))) * qparams.scale

    def levels(self, qparams: QParams) -> np.ndarray:
        low, high = (int(end) for end in qparams.grid)
        return np.arange(low, high + 1).astype(np.float64)


def zero_point_integer(qparams: QParams) -> QTensor:
    """The zero point, rounded (ties to even) and within the range: a scalar in the storage."""
    storage = qparams.storage.dtype.storage
    if qparams.symmetric:
        return QTensor.known(np.zeros((), storage))
    grid = qparams.grid
    value = lax.round(lax.stop_gradient(qparams.zero_point), _HALF_EVEN)
    integer = jnp.clip(value, *lax.stop_gradient(grid)).astype(storage)
    return QTensor(integer, clipped_ste(qparams.zero_point, *lax.stop_gradient(grid)))
