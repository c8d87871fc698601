"""Bounds of float results ("Precision Requirements" of each operator, TOSA 1.0.1).

Each operator with rule ABS_ERROR, MAX_RELATIVE or REDUCE_PRODUCT has a function of the same name.
It takes the type of the result, the reference and the inputs on which the bound depends, float64
arrays that broadcast, and returns the largest absolute error: float64, infinite or NaN where the
specification leaves the result open.
"""

from __future__ import annotations

import math

import numpy as np

from tosajax.compliance.formats import fraction_bits, normal_min
from tosajax.dtypes import DType

_RESIZE_ULPS = 20.0
_RESIZE_RELATIVE = 0.006


def cos(dtype: DType, reference: np.ndarray, input1: np.ndarray) -> np.ndarray:
    return _absolute(dtype, 1 + np.abs(input1), 1.0, divisor=2)


def exp(dtype: DType, reference: np.ndarray, input1: np.ndarray) -> np.ndarray:
    return _absolute(dtype, reference, _exp_ulps(dtype) + 2 * np.abs(input1))


def log(dtype: DType, reference: np.ndarray, input1: np.ndarray) -> np.ndarray:
    return _absolute(dtype, reference, 5.0, lower=0.5)


def pow(dtype: DType, reference: np.ndarray, input1: np.ndarray, input2: np.ndarray) -> np.ndarray:
    """The bound of POW: 0 where the text gives the result, infinite where it is undefined."""
    exponent = input2 * np.log(input1)
    product = _absolute(dtype, exponent, 5.5, lower=np.abs(0.55 * input2))
    scale = _absolute(dtype, reference, _exp_ulps(dtype) + 2 * np.abs(exponent + product))
    bound = reference * np.expm1(product) + scale
    bound = np.where((input1 == 0) | (input2 == 0), 0.0, bound)
    defined = np.isfinite(input1) & np.isfinite(input2) & (input1 >= 0)
    return np.where(defined & ((input1 > 0) | (input2 > 0)), bound, np.inf)


def reduce_product(dtype: DType, reference: np.ndarray, terms: int) -> np.ndarray:
    with np.errstate(over="ignore"):  # infinite for many terms of a narrow type
        relative = np.expm1(terms * math.log1p(2.0 ** (-fraction_bits(dtype) - 1)))
    return np.maximum(np.abs(reference), normal_min(dtype)) * relative


def resize(dtype: DType, reference: np.ndarray, input: np.ndarray) -> np.ndarray:
    largest = np.max(np.abs(input))
    bound = np.maximum(_absolute(dtype, largest, _RESIZE_ULPS), largest * _RESIZE_RELATIVE)
    return np.broadcast_to(bound, reference.shape)


def sigmoid(dtype: DType, reference: np.ndarray, input: np.ndarray) -> np.ndarray:
    return _absolute(dtype, reference, 2 * (1 + np.abs(input)))


def sin(dtype: DType, reference: np.ndarray, input1: np.ndarray) -> np.ndarray:
    return np.maximum(_absolute(dtype, input1, 2.0, divisor=2), math.pi * normal_min(dtype))


def tanh(dtype: DType, reference: np.ndarray, input: np.ndarray) -> np.ndarray:
    return _absolute(dtype, reference, 4 * (_exp_ulps(dtype) + 2 * np.abs(input)), lower=0.5)


def _exp_ulps(dtype: DType) -> int:
    return 3 if dtype is DType.FP32 else 1


def _absolute(
    dtype: DType,
    magnitude: np.ndarray,
    factor: np.ndarray | float,
    *,
    lower: np.ndarray | float = 0.0,
    divisor: int = 1,
) -> np.ndarray:
    """calcAbsErrorBound of the text: `factor` units of 2**(-fraction bits) at `magnitude`."""
    value = np.maximum(np.abs(magnitude), normal_min(dtype))
    value = np.maximum(value, np.divide(lower, factor))
    bound = 2.0 ** (-fraction_bits(dtype) / divisor) * value * factor
    return np.where(np.isfinite(factor) | (magnitude != 0), bound, 0.0)
