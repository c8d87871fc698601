"""Real numbers, and the integers that stand for them in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax.graph import Quantization, Tensor

_CHUNK = 1 << 22  # elements at a time


def quantize(
    values: np.ndarray, tensor: Tensor, quantization: Quantization, *, unsigned: bool = False
) -> np.ndarray:
    """The integers of real values: x / scale, ties to even, + zero_point, saturated.

    Division is that of float32, as in `quant.QModel`, whose integers these are.

    Args:
      values: floats; several examples lie on axes before those of the tensor.
      tensor: of integers.
      quantization: of the tensor.
      unsigned: whether operators read its bytes as unsigned integers.

    Returns:
      An array of the shape of `values`, in `dtype.storage`.

    Raises:
      ValueError: a value is NaN.
    """
    dtype = tensor.dtype
    limits = quantization.bounds or dtype.limits(unsigned=unsigned)
    scale, zero_point = _along(quantization, tensor)
    scale = scale.astype(np.float32)
    found = np.empty(values.shape, dtype.storage)
    for part in _parts(values):
        x = values[part].astype(np.float32)
        if np.isnan(x).any():
            raise ValueError(f"{tensor.name!r}: a real value is NaN, which no integer stands for")
        with np.errstate(over="ignore"):  # an infinity saturates
            steps = np.rint(x / scale).astype(np.float64)
        integers = (steps + zero_point).clip(*limits).astype(np.int64)
        found[part] = integers.astype(dtype.storage)
    return found


def dequantize(
    values: np.ndarray, tensor: Tensor, quantization: Quantization, *, unsigned: bool = False
) -> np.ndarray:
    """The real values of integers, float32 of the shape of `values`; see `quantize`."""
    scale, zero_point = _along(quantization, tensor)
    found = np.empty(values.shape, np.float32)
    for part in _parts(values):
        x = values[part]
        x = x.view(f"u{x.dtype.name}") if unsigned else x
        found[part] = (x.astype(np.float64) - zero_point) * scale
    return found


def _parts(values: np.ndarray) -> Iterator[Any]:
    """Slices of the first axis: float64 copies of all would take too much memory."""
    if not values.ndim:
        yield ...
        return
    step = max(1, _CHUNK * len(values) // max(1, values.size))
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def _along(quantization: Quantization, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points, float64, that broadcast against the tensor."""
    shape = [
        size if axis in quantization.axes else 1 for axis, size in enumerate(tensor.shape or ())
    ]
    found = []
    for numbers in (quantization.scale, quantization.zero_point):
        array = np.asarray(numbers, np.float64)
        found.append(array.reshape(()) if array.size == 1 else array.reshape(shape))
    return found[0], found[1]
