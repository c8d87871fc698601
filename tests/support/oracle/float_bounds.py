"""The specification's float accuracy rules in float64 ("Numeric Accuracy Helpers", TOSA 1.0.1)."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

FLOATS = {
    "FP32": np.dtype(np.float32),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP8E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "FP8E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_FRACTION = {"float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}
_MIN_EXPONENT = {
    "float32": -126,
    "float16": -14,
    "bfloat16": -126,
    "float8_e4m3fn": -6,
    "float8_e5m2": -14,
}


def fraction_bits(dtype) -> int:
    return _FRACTION[np.dtype(dtype).name]


def normal_min(dtype) -> float:
    return 2.0 ** _MIN_EXPONENT[np.dtype(dtype).name]


def normal_max(dtype) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def may_flush(dtype) -> bool:
    """Whether subnormals may become zero: in every float type but fp8."""
    return np.dtype(dtype).itemsize > 1


def widen(values: np.ndarray) -> np.ndarray:
    """Converts to float64, quietly for signalling NaN."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def flush(values: np.ndarray) -> np.ndarray:
    """Replaces subnormal values by zeros of their sign."""
    zero = np.copysign(np.zeros((), values.dtype), values)
    return np.where(np.abs(widen(values)) < normal_min(values.dtype), zero, values)


def absolute_bound(dtype, magnitude, factor, *, lower=0.0, divisor=1.0) -> np.ndarray:
    """Error allowed for a value of `magnitude`: `factor` times its share of 2**-fraction bits."""
    magnitude, factor = np.broadcast_arrays(np.abs(magnitude), np.asarray(factor, np.float64))
    with np.errstate(all="ignore"):
        value = np.maximum(magnitude, normal_min(dtype))
        if np.any(np.asarray(lower) > 0):
            value = np.maximum(np.asarray(lower) / factor, value)
        bound = 2.0 ** (-fraction_bits(dtype) / divisor) * value * factor
    return np.where(np.isfinite(factor) | (magnitude != 0), bound, 0.0)


def ulp(dtype, reference: np.ndarray) -> np.ndarray:
    """The distance of floats of `dtype` around a float64 value; 0 for zero and non-finite ones."""
    reference = np.asarray(reference, np.float64)
    normal = np.isfinite(reference) & (np.abs(reference) >= 2.0**-1022)
    exponent = np.frexp(np.where(normal, reference, 1.0))[1] - 1
    power = np.maximum(np.ldexp(1.0, exponent), normal_min(dtype))
    return np.where(normal, power * 2.0 ** -fraction_bits(dtype), 0.0)


def within(result: np.ndarray, reference, bound) -> np.ndarray:
    """Per element, whether a result of its own float type is close enough to a float64 value."""
    dtype = result.dtype
    value = widen(result)
    reference, bound = np.broadcast_arrays(np.asarray(reference, np.float64), bound)
    negative = reference < 0
    value, expected = np.where(negative, -value, value), np.abs(reference)
    with np.errstate(invalid="ignore"):
        # An infinite value has no neighbours, even with a relative bound.
        bound = np.where(np.isinf(expected), 0.0, bound)
        high, low = expected + bound, expected - bound
    high = np.where(high > normal_max(dtype), np.inf, high)
    low = np.where(low > normal_max(dtype), np.inf, low)
    low = np.where(low < -normal_max(dtype), -np.inf, low)
    close = (value >= low) & (value <= high)
    if may_flush(dtype):
        close = np.where(value == 0, low < normal_min(dtype), close)
    if dtype.name == "float8_e4m3fn":
        close = np.where(np.isnan(value), np.isinf(high), close)
    close |= ~np.isfinite(bound) & np.isfinite(reference)
    return np.where(np.isnan(reference), np.isnan(value), close)


def within_ulp(result: np.ndarray, reference, ulps: float) -> np.ndarray:
    """Per element, whether a result is at most `ulps` units in the last place off."""
    return within(result, reference, ulp(result.dtype, reference) * ulps)


def assert_within(
    result: np.ndarray,
    inputs: tuple[np.ndarray, ...],
    reference: Callable[..., np.ndarray],
    bound: Callable[..., np.ndarray],
) -> None:
    """Asserts the bound for every element, whether or not subnormal inputs were flushed.

    `reference` takes the inputs in float64; `bound` the result's type, the reference, the inputs.
    """
    close = np.zeros(result.shape, bool)
    for flushed in (False, True):
        wide = [widen(flush(x) if flushed else x) for x in inputs]
        with np.errstate(all="ignore"):
            expected = reference(*wide)
            close = close | within(result, expected, bound(result.dtype, expected, *wide))
    if not close.all():
        wrong = np.argwhere(~close)
        at = tuple(wrong[0])
        shown = [np.broadcast_to(x, result.shape)[at] for x in inputs]
        raise AssertionError(f"{len(wrong)} values out of bounds; at {shown}: {result[at]!r}")


def round_to(values, dtype) -> np.ndarray:
    """Rounds float64 values to the nearest float of `dtype`, ties to even, without saturation."""
    values = np.asarray(values, np.float64)
    step = np.maximum(ulp(dtype, values), normal_min(dtype) * 2.0 ** -fraction_bits(dtype))
    outside = np.nan if np.dtype(dtype).name == "float8_e4m3fn" else np.inf
    with np.errstate(all="ignore"):
        rounded = np.rint(values / step) * step
        rounded = np.where(np.abs(rounded) > normal_max(dtype), outside, np.abs(rounded))
        # Zeros and infinities also get the sign; NaN stays NaN.
        return np.copysign(rounded, values).astype(dtype)


def every_value(dtype) -> np.ndarray:
    """All bit patterns of a float type of at most 16 bits."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    return np.arange(2 ** (8 * unsigned.itemsize), dtype=unsigned).view(dtype)


def boundaries(dtype) -> np.ndarray:
    """Zeros, infinities, NaN, ones, the limits of the normal and subnormal ranges, and halves."""
    tiny = normal_min(dtype) * 2.0 ** -fraction_bits(dtype)
    one = 1 + 2.0 ** -fraction_bits(dtype)
    positive = [0.0, tiny, normal_min(dtype) - tiny, normal_min(dtype), 0.5, 1.0, one, 1.5, 2.5]
    positive += [normal_max(dtype) / 2, normal_max(dtype)]
    if np.dtype(dtype).name != "float8_e4m3fn":
        positive.append(np.inf)
    values = np.array([*positive, *(-v for v in positive), np.nan])
    return values.astype(dtype)


def samples(dtype, count: int, rng: np.random.Generator, spread: float = 8.0) -> np.ndarray:
    """Boundaries, random bit patterns, and values within [-spread, spread]; `count` in all."""
    edge = boundaries(dtype)
    patterns = rng.integers(0, 256, (count // 2, np.dtype(dtype).itemsize), np.uint8).view(dtype)
    near = rng.uniform(-spread, spread, count).astype(dtype)
    return np.concatenate([edge, patterns[:, 0], near])[:count]
