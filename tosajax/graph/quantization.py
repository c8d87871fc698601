"""Real numbers, and the integers that stand for them in a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from tosajax.graph import Quantization, Tensor

_CHUNK = 1 << 22  # elements at a time
# Calibration clips outliers: of percentile 99.9, 0.1 % on each side. Data in other units than those
# of calibration lie outside in large numbers, and by more than rounding.
MOST_CLIPPED = 0.01  # share of elements
_NEAR = 0.01  # of the range: how far outside an element does not count


class Clipping:
    """Counts the elements that `quantize` saturates, and refuses a large share of them.

    Args:
      tensor: of integers.
      quantization: of the tensor.
      unsigned: whether operators read its bytes as unsigned integers.
    """

    def __init__(self, tensor: Tensor, quantization: Quantization, *, unsigned: bool = False):
        self._tensor, self._quantization = tensor, quantization
        self._limits = _limits(tensor, quantization, unsigned)
        self._elements = self._clipped = self._far = 0
        self._is_whole = True
        self._ends = np.inf, -np.inf

    def add(self, values: np.ndarray, integers: np.ndarray) -> None:
        """Takes real values, and the integers that they would be without limits."""
        low, high = self._limits
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
        """Warns of clipped elements."""
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
        """How images of 0..255 are usually given to networks of small real numbers."""
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
    """The integers of real values: x / scale, ties to even, + zero_point, saturated.

    Division is that of float32, as in `quant.QModel`, whose integers these are.

    Args:
      values: floats; several examples lie on axes before those of the tensor.
      tensor: of integers.
      quantization: of the tensor.
      unsigned: whether operators read its bytes as unsigned integers.
      clipping: counts what is saturated.

    Returns:
      An array of the shape of `values`, in `dtype.storage`.

    Raises:
      ValueError: a value is NaN.
    """
    dtype = tensor.dtype
    limits = _limits(tensor, quantization, unsigned)
    scale, zero_point = _along(quantization, tensor)
    scale = scale.astype(np.float32)
    found = np.empty(values.shape, dtype.storage)
    for part in _parts(values):
        x = values[part].astype(np.float32)
        if np.isnan(x).any():
            raise ValueError(f"{tensor.name!r}: a real value is NaN, which no integer stands for")
        with np.errstate(over="ignore"):  # an infinity saturates
            steps = np.rint(x / scale).astype(np.float64)
        integers = steps + zero_point
        if clipping is not None:
            clipping.add(x, integers)
        found[part] = integers.clip(*limits).astype(np.int64).astype(dtype.storage)
    return found


def integers_of(
    values: np.ndarray,
    tensor: Tensor,
    quantization: Quantization,
    *,
    unsigned: bool = False,
    clip: bool = False,
) -> np.ndarray:
    """The integers of an input of real values, as `quantize` gives them.

    Args:
      values: see `quantize`; so are tensor, quantization and unsigned.
      clip: saturate any share of the elements in silence. By default a small one is a warning, and
        more than 1 % of the elements an error, where they lie outside by more than 1 % of the
        range.

    Raises:
      ValueError: a value is NaN, or many are beyond the range.
    """
    clipping = None if clip else Clipping(tensor, quantization, unsigned=unsigned)
    found = quantize(values, tensor, quantization, unsigned=unsigned, clipping=clipping)
    if clipping is not None:
        clipping.refuse()
        clipping.warn()
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


def _limits(tensor: Tensor, quantization: Quantization, unsigned: bool) -> tuple[int, int]:
    """The smallest and the largest integer."""
    return quantization.bounds or tensor.dtype.limits(unsigned=unsigned)


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
