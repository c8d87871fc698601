"""Quantizes and dequantizes arrays by a tensor's scale and zero point."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax.graph import Quantization, Tensor

_CHUNK = 1 << 22  # the most elements to convert at a time
# Calibration clips outliers: with percentile 99.9, 0.1 % on each side. Data in other units than the
# calibration data are out of range in large numbers, and by more than a rounding error.
MOST_CLIPPED = 0.01  # the largest accepted share of elements far out of range
_NEAR = 0.01  # share of the range: elements out of range by less are not counted as far


class Clipping:
    """Counts the elements that `quantize` saturates, and rejects a large share of them.

    Args:
      tensor: an integer tensor.
      quantization: the tensor's scale and zero point.
      unsigned: whether operators read the tensor as unsigned integers.
    """

    def __init__(self, tensor: Tensor, quantization: Quantization, *, unsigned: bool = False):
        self._tensor, self._quantization = tensor, quantization
        self._limits = _limits(tensor, quantization, unsigned)
        self._elements = self._clipped = self._far = 0
        self._is_whole = True
        self._ends = np.inf, -np.inf

    def add(self, values: np.ndarray, integers: np.ndarray) -> None:
        """Counts a block of real values, given with their integers before saturation."""
        low, high = self._limits
        if self._quantization.is_mask:
            integers = np.maximum(integers, low)
        self._elements += integers.size
        if not integers.size or (integers.min() >= low and integers.max() <= high):
            return
        near = _NEAR * (high - low)
        self._clipped += int(np.count_nonzero((integers < low) | (integers > high)))
        self._far += int(np.count_nonzero((integers < low - near) | (integers > high + near)))
        least, most = self._ends
        self._ends = min(least, float(values.min())), max(most, float(values.max()))
        self._is_whole = self._is_whole and bool((values == np.rint(values)).all())

    @property
    def is_large(self) -> bool:
        """Whether over MOST_CLIPPED of the elements lie outside by more than 1 % of the range."""
        return self._far > MOST_CLIPPED * self._elements

    def refuse(self) -> None:
        """Raises ValueError where the share of elements far outside is large."""
        if self.is_large:
            hint = f"; {self._hint}" if self._hint else ""
            raise ValueError(f"{self._told}{hint}; to clip them all the same: clip=True, --clip")

    def warn(self) -> None:
        """Warns if elements were clipped."""
        if self._clipped:
            warnings.warn(f"{self._told}; they were clipped", stacklevel=2)

    @property
    def _told(self) -> str:
        share = 100 * self._clipped / self._elements
        return (
            f"input {self._tensor.name!r}: {share:.3g} % of the elements are beyond the range of "
            f"its scale: values in [{self._ends[0]:.6g}, {self._ends[1]:.6g}], "
            f"{self._tensor.dtype.name}{self._scale} holds {self._range}"
        )

    @property
    def _real(self) -> tuple[float, float]:
        """The smallest and the largest real value that the integers stand for."""
        scales, zero_points = _along(self._quantization, self._tensor)
        low, high = ((end - zero_points) * scales for end in self._limits)
        return float(low.min()), float(high.max())

    @property
    def _range(self) -> str:
        low, high = self._real
        return f"[{low:.6g}, {high:.6g}]"

    @property
    def _scale(self) -> str:
        pair = self._quantization.of_all
        return f" of scale {pair[0]:.6g} and zero point {pair[1]}" if pair else ""

    @property
    def _hint(self) -> str:
        """Advice on scaling, if the inputs look like images in 0..255, else ""."""
        (least, most), (low, high) = self._ends, self._real
        if not (self._is_whole and least >= 0 and 16 < most <= 255 and high < 16):
            return ""
        wanted = "x / 127.5 - 1" if low < -0.5 * high else "x / 255"
        return f"they look like images of 0..255, which networks take as {wanted}"


def quantize(
    values: np.ndarray,
    tensor: Tensor,
    quantization: Quantization,
    *,
    unsigned: bool = False,
    clipping: Clipping | None = None,
) -> np.ndarray:
    """Quantizes real values: x / scale rounded (ties to even), + zero_point, saturated.

    Divides in float32, as `quant.QModel` does, and gives the same integers.

    Args:
      values: floats; several examples lie along axes before the tensor's.
      tensor: an integer tensor.
      quantization: the tensor's scale and zero point.
      unsigned: whether operators read the tensor as unsigned integers.
      clipping: the counter of saturated elements, if they are to be counted.

    Returns:
      An array of the shape of `values`, in `dtype.storage`.

    Raises:
      ValueError: a value is NaN.
    """
    dtype = tensor.dtype
    limits = _limits(tensor, quantization, unsigned)
    scale, zero_point = _along(quantization, tensor)
    scale = scale.astype(np.float32)
    result = np.empty(values.shape, dtype.storage)
    for part in _parts(values):
        x = values[part].astype(np.float32)
        if np.isnan(x).any():
            raise ValueError(f"{tensor.name!r}: a real value is NaN, which no integer stands for")
        with np.errstate(over="ignore"):  # an infinity saturates
            steps = np.rint(x / scale).astype(np.float64)
        integers = steps + zero_point
        if clipping is not None:
            clipping.add(x, integers)
        result[part] = integers.clip(*limits).astype(np.int64).astype(dtype.storage)
    return result


def integers_of(
    values: np.ndarray,
    tensor: Tensor,
    quantization: Quantization,
    *,
    unsigned: bool = False,
    clip: bool = False,
) -> np.ndarray:
    """Quantizes the real values of an input as `quantize` does, and checks their range.

    Args:
      values: see `quantize`, also for tensor, quantization and unsigned.
      clip: whether to saturate silently. By default clipped elements are a warning, and an error
        if more than 1 % of the elements are out of range by more than 1 % of the range.

    Raises:
      ValueError: a value is NaN, or many are out of range.
    """
    clipping = None if clip else Clipping(tensor, quantization, unsigned=unsigned)
    integers = quantize(values, tensor, quantization, unsigned=unsigned, clipping=clipping)
    if clipping is not None:
        clipping.refuse()
        clipping.warn()
    return integers


def dequantize(
    values: np.ndarray, tensor: Tensor, quantization: Quantization, *, unsigned: bool = False
) -> np.ndarray:
    """Dequantizes integers to float32 of the shape of `values`; see `quantize` for arguments."""
    scale, zero_point = _along(quantization, tensor)
    result = np.empty(values.shape, np.float32)
    for part in _parts(values):
        x = values[part]
        x = x.view(f"u{x.dtype.name}") if unsigned else x
        result[part] = (x.astype(np.float64) - zero_point) * scale
    return result


def _limits(tensor: Tensor, quantization: Quantization, unsigned: bool) -> tuple[int, int]:
    """The smallest and the largest integer."""
    return quantization.bounds or tensor.dtype.limits(unsigned=unsigned)


def _parts(values: np.ndarray) -> Iterator[Any]:
    """Yields slices of the first axis, as float64 copies of all values need too much memory."""
    if not values.ndim:
        yield ...
        return
    step = max(1, _CHUNK * len(values) // max(1, values.size))
    for start in range(0, len(values), step):
        yield slice(start, start + step)


def _along(quantization: Quantization, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The scales and zero points as float64 arrays that broadcast against the tensor."""
    shape = [
        size if axis in quantization.axes else 1 for axis, size in enumerate(tensor.shape or ())
    ]
    arrays = []
    for numbers in (quantization.scale, quantization.zero_point):
        array = np.asarray(numbers, np.float64)
        arrays.append(array.reshape(()) if array.size == 1 else array.reshape(shape))
    return arrays[0], arrays[1]
