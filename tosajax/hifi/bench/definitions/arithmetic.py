"""Integers, element by element: saturated, rounded and scaled; sums, and the outputs of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tosajax.hifi.kernels import Quant
from tosajax.hifi.kernels._precision import Integers


def integers(x: Any) -> Any:
    """Elements as Python integers, in an array of dtype object."""
    return np.asarray(x).astype(object)


def wide(x: Any) -> np.ndarray:
    """Elements as int64 or float64."""
    found = np.asarray(x)
    return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)


def saturate(value: Any, dtype: Any) -> Any:
    """The nearest integers in the range of a type."""
    info = np.iinfo(dtype)
    return np.clip(integers(value), int(info.min), int(info.max))


def round_half_away(numerator: Any, denominator: Any) -> Any:
    """Quotients rounded to the nearest, half away from zero."""
    nearest = (abs(numerator) + denominator // 2) // denominator
    return np.where(numerator < 0, -nearest, nearest)[()]


def round_half_up(numerator: Any, denominator: Any) -> Any:
    """Quotients rounded to the nearest, half up."""
    return (numerator + denominator // 2) // denominator


def shift_and_saturate(value: Any, shift: int, dtype: Any) -> Any:
    """value * 2**shift, floored."""
    return saturate(value << shift if shift >= 0 else value >> -shift, dtype)


def shift_and_round(value: Any, shift: int, dtype: Any) -> Any:
    """value * 2**shift, rounded half away from zero."""
    result = value << shift if shift >= 0 else round_half_away(value, 1 << -shift)
    return saturate(result, dtype)


def requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    """value * multiplier / 2**31 * 2**shift: TFLite's scaling, which rounds twice.

    Args:
      value: integers.
      multiplier: Q31; one, or one for each element of the last axis.
      shift: bits, positive to the left; as many.
    """
    multiplier, shift = integers(multiplier), integers(shift)
    value = saturate(integers(value) << np.maximum(shift, 0), np.int32)
    high = saturate(round_half_up(value * multiplier, 1 << 31), np.int32)
    return round_half_away(high, 1 << np.maximum(-shift, 0))


def dot(
    matrix: np.ndarray,
    vectors: np.ndarray,
    matrix_zero_bias: Integers = 0,
    vector_zero_bias: Integers = 0,
) -> np.ndarray:
    """The sums of a matrix [N, K] times vectors [..., K], which int64 holds; [..., N]."""
    return (wide(vectors) + vector_zero_bias) @ (wide(matrix) + matrix_zero_bias).T


def fixed(sums: Any, bias: Any, acc_shift: int, bias_shift: int, dtype: Any) -> np.ndarray:
    """(sums + bias * 2**bias_shift) * 2**acc_shift; results of 64 bits are floored."""
    total = integers(sums) + shift_and_saturate(integers(bias), bias_shift, np.int64)
    shift = shift_and_saturate if dtype == np.int64 else shift_and_round
    return np.asarray(shift(total, acc_shift, dtype)).astype(dtype)


def quantized(sums: Any, bias: Any, quant: Quant, dtype: Any) -> np.ndarray:
    """(sums + bias) * out_multiplier / 2**31 * 2**out_shift + out_zero_bias."""
    total = integers(sums) + integers(bias)
    scaled = requantize(total, quant.out_multiplier, quant.out_shift)
    return np.asarray(saturate(scaled + int(quant.out_zero_bias), dtype)).astype(dtype)


def add_saturating(sums: Any, bias: Any) -> Any:
    """Sums, saturated to int32, and a bias, saturated again."""
    return saturate(saturate(integers(sums), np.int32) + integers(bias), np.int32)


def add(inp1: Any, inp2: Any, numbers: Mapping[str, int]) -> np.ndarray:
    """Sums of bytes by the keywords of elm_add."""
    total = sum(
        requantize(
            saturate(integers(x) + numbers[f"{at}_zero_bias"] << numbers["left_shift"], np.int32),
            numbers[f"{at}_multiplier"],
            numbers[f"{at}_shift"],
        )
        for at, x in (("inp1", inp1), ("inp2", inp2))
    )
    return _limited(total, numbers)


def multiply(inp1: Any, inp2: Any, numbers: Mapping[str, int]) -> np.ndarray:
    """Products of bytes by the keywords of elm_mul."""
    first, second = (
        integers(x) + numbers[f"{at}_zero_bias"] for at, x in (("inp1", inp1), ("inp2", inp2))
    )
    return _limited(first * second, numbers)


def _limited(total: Any, numbers: Mapping[str, int]) -> np.ndarray:
    scaled = requantize(total, numbers["out_multiplier"], numbers["out_shift"])
    bounds = numbers["out_activation_min"], numbers["out_activation_max"]
    return np.clip(scaled + numbers["out_zero_bias"], *bounds)
