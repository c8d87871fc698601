"""Writes arrays as the text of constants: a few elements as numbers, many as hexadecimal digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tosajax import dtypes
from tosajax.dtypes import DType
from tosajax.io.mlir.types import NAMES

_MOST_NUMBERS = 32  # elements written as numbers, at most


def dense(values: np.ndarray, dtype: DType) -> str:
    """Formats a constant with its type: `dense<[1, 2]> : tensor<2xi8>`.

    Args:
      values: the elements, in `dtype.storage`.
      dtype: the element type; DType.SHAPE is written as index.
    """
    element = NAMES.get(dtype, "index")
    dims = "".join(f"{dim}x" for dim in values.shape)
    return f"dense<{_elements(values, dtype)}> : tensor<{dims}{element}>"


def number(value: Any, dtype: DType) -> str:
    """Formats one number, without its type."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    exact = float(value)
    if math.isfinite(exact):
        # MLIR's floats have a decimal point. The digits of float64 are exact for narrower types.
        mantissa, e, exponent = repr(exact).partition("e")
        point = "" if "." in mantissa else ".0"
        return f"{mantissa}{point}{e}{exponent}"
    bits = np.asarray(value).view(f"u{dtype.storage.itemsize}").item()
    return f"0x{bits:0{2 * dtype.storage.itemsize}X}"


def _elements(values: np.ndarray, dtype: DType) -> str:
    if not values.size:
        return ""
    if _are_equal(values):
        return number(values.flat[0], dtype)
    # Tools differ in the number of bits of an i1 in hexadecimal; index does not have a fixed size.
    if values.size > _MOST_NUMBERS and dtype not in (DType.BOOL, DType.SHAPE):
        return f'"0x{_octets(values, dtype).hex().upper()}"'
    if not dtype.is_float:
        return str(values.tolist()).lower()
    texts = np.array([number(value, dtype) for value in values.flat], object)
    return str(texts.reshape(values.shape).tolist()).replace("'", "")


def _are_equal(values: np.ndarray) -> bool:
    """Whether all elements have the same bits."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return bool((bits == bits.flat[0]).all())


def _octets(values: np.ndarray, dtype: DType) -> bytes:
    """The elements as little-endian bytes; an int4 is the low four bits of a byte."""
    if dtype is DType.INT4:
        return (np.ascontiguousarray(values).view(np.uint8) & 0xF).tobytes()
    return dtypes.pack(values, dtype)
