"""FP8: real = scale * value, with the largest finite value at the end of the range."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tosajax.dtypes import DType
from tosajax.grad.estimators import Estimator, clipped_ste
from tosajax.grad.qtensor import QTensor, tie
from tosajax.quant.storages.division import reciprocal
from tosajax.quant.storages.protocol import Grid
from tosajax.spec import NanMode

if TYPE_CHECKING:
    from tosajax.quant.convert.operands import Operand, Writer
    from tosajax.quant.qparams import QParams
    from tosajax.quant.spec import QSpec


@dataclasses.dataclass(frozen=True)
class Float8:
    """FP8E4M3 or FP8E5M2, times a scale. See `OperandStorage`.

    An operand is multiplied by 1 / scale, clamped to the largest finite value (which CAST does not
    do), cast to FP8 and back, and multiplied by the scale.
    """

    dtype: DType
    is_integer = False
    label = "float8"

    @property
    def name(self) -> str:
        return self.dtype.name

    def check(self, spec: QSpec) -> None:
        if spec.estimator is not clipped_ste:
            estimator = spec.estimator
            raise ValueError(f"estimator {estimator!r} of {self.name}, expected {clipped_ste!r}")

    def grid(self, bits: jax.Array, *, narrow_range: bool) -> Grid:
        del bits, narrow_range
        limit = jnp.float32(self.largest)
        return Grid(-limit, limit)

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return float(jnp.finfo(self.dtype.storage).max)

    def quantize(self, x: jax.Array, qparams: QParams, estimator: Estimator) -> QTensor:
        """x * (1 / scale), saturated and rounded, as a graph computes it."""
        # Without the barrier XLA fuses the product that computes x, and rounds differently.
        value = lax.optimization_barrier(x) * reciprocal(qparams.scale)
        ends = -self.largest, self.largest
        rounded = lax.stop_gradient(jnp.clip(value, *ends)).astype(self.dtype.storage)
        # Without the barrier XLA may leave out a rounding that a wider type follows.
        return QTensor(lax.optimization_barrier(rounded), estimator(value, *ends))

    def dequantize(self, x: QTensor, qparams: QParams) -> jax.Array:
        return tie(x) * qparams.scale

    def levels(self, qparams: QParams) -> np.ndarray:
        del qparams
        every = np.arange(256).astype(np.uint8).view(self.dtype.storage).astype(np.float64)
        return np.unique(every[np.isfinite(every)])

    def store(self, writer: Writer, operand: Operand) -> str:
        name = operand.name
        scaled = writer.times(operand, name, f"{name}/scaled", is_reciprocal=True)
        limit = np.float32(self.largest)
        ends = {"min_val": -limit, "max_val": limit, "nan_mode": NanMode.PROPAGATE}
        clamped = writer.add("CLAMP", scaled, name=f"{name}/clamped", dtype=DType.FP32, **ends)
        return writer.add("CAST", clamped, name=f"{name}/float8", dtype=self.dtype)

    def widen(self, writer: Writer, operand: Operand, stored: str) -> str:
        wide = writer.add("CAST", stored, name=f"{operand.name}/wide", dtype=DType.FP32)
        return writer.times(operand, wide, f"{operand.name}/rounded")
