"""Float formats and their common error rules ("Numeric Accuracy Helpers", TOSA 1.0.1)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tosajax.dtypes import DType


def fraction_bits(dtype: DType) -> int:
    """The number of significand bits after the binary point."""
    return int(ml_dtypes.finfo(dtype.storage).nmant)


def normal_min(dtype: DType) -> float:
    """The smallest positive normal value."""
    return float(ml_dtypes.finfo(dtype.storage).smallest_normal)


def normal_max(dtype: DType) -> float:
    """The largest finite value."""
    return float(ml_dtypes.finfo(dtype.storage).max)


def may_flush(dtype: DType) -> bool:
    """Whether an implementation may flush subnormal values to zero: in every type but fp8."""
    return dtype.storage.itemsize > 1


def widen(values: np.ndarray) -> np.ndarray:
    """Converts floats to float64 exactly, without a warning about signalling NaN."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values).astype(np.float64)


def flush(values: np.ndarray) -> np.ndarray:
    """Replaces the subnormal values of a float array by zeros of the same sign.

    An implementation may flush all inputs or none; compute the reference from the same inputs.
    """
    values = np.asarray(values)
    tiny = np.abs(widen(values)) < float(ml_dtypes.finfo(values.dtype).smallest_normal)
    return np.where(tiny, np.copysign(np.zeros((), values.dtype), values), values)


def ulp(dtype: DType, reference: np.ndarray) -> np.ndarray:
    """The unit in the last place of `dtype` at float64 values; 0 at zero and where not finite.

    Subnormal float64 values have a unit in the suite and here, but not in the text.
    """
    counts = np.isfinite(reference) & (reference != 0)
    exponent = np.frexp(np.where(counts, reference, 1.0))[1] - 1
    power = np.maximum(np.ldexp(1.0, exponent), normal_min(dtype))
    return np.where(counts, power * 2.0 ** -fraction_bits(dtype), 0.0)


def within(
    dtype: DType, result: np.ndarray, reference: np.ndarray, below: np.ndarray, above: np.ndarray
) -> np.ndarray:
    """Whether each element is within its error bound.

    Args:
      dtype: the result's type.
      result, reference: float64, any shape.
      below, above: float64, the shape of `reference`; the largest errors towards zero and away
        from zero. Not finite where any result is right.

    Returns:
      bool, the shape of `reference`.
    """
    sign = np.where(reference < 0, -1.0, 1.0)
    value, expected = result * sign, np.abs(reference)
    with np.errstate(invalid="ignore"):
        low, high = expected - below, expected + above
    limit = normal_max(dtype)
    high = np.where(high > limit, np.inf, high)
    low = np.where(low > limit, np.inf, np.where(low < -limit, -np.inf, low))
    close = (value >= low) & (value <= high)
    if may_flush(dtype):
        close |= (value == 0) & (low < normal_min(dtype))
    if dtype is DType.FP8E4M3:  # no infinity: overflow gives NaN
        close = np.where(np.isnan(value), np.isinf(high), close)
    return np.where(np.isnan(reference), np.isnan(value), ~np.isfinite(above) | close)
