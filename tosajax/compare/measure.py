"""Measures the difference of two arrays, in memory that does not grow with the examples."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tosajax.block_scaled import BlockScaled, Value
from tosajax.dtypes import DType

# Edges are between powers of two, so that bins are symmetric for integers.
_POWERS = [2.0 ** (k - 0.5) for k in range(-30, 49)]
_BINS = 64  # the most bins for small integers; types with fewer values have one bin for each


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The number of values in each bin.

    Args:
      kind: "INT4", "INT8", "INT16", "UINT8" or "UINT16": equal bins over the range of the type;
        "powers": for each sign one bin for each power of two, and a bin around 0 in the middle.
        See `edges`.
      counts: the number of values in each bin; NaN is not counted.

    Example:
      >>> from tosajax.compare import Histogram, edges
      >>> histogram = Histogram("INT4", (0,) * 8 + (5,) + (0,) * 7)
      >>> edges(histogram.kind)[histogram.counts.index(5)].item()
      0.0
    """

    kind: str
    counts: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Histogram({self.kind!r}, {sum(self.counts)} values in {len(self.counts)} bins)"

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins, float64; one more than the counts."""
        return edges(self.kind)


def is_small(dtype: DType) -> bool:
    """Whether values are integers so narrow (16 bits or fewer) that saturation matters."""
    return dtype.is_integer and dtype.bits <= 16


def edges(kind: str) -> np.ndarray:
    """The bin edges of a kind of histogram, float64; a bin includes its lower edge.

    Example:
      >>> from tosajax.compare import edges
      >>> edges("INT4").tolist()
      [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    """
    if kind == "powers":
        return np.array([-math.inf, *(-x for x in _POWERS[::-1]), *_POWERS, math.inf])
    count = 1 << DType[kind.removeprefix("U")].bits
    low = 0 if kind.startswith("U") else -count // 2
    return low + np.arange(min(count, _BINS) + 1) * float(max(1, count // _BINS))


@dataclasses.dataclass(frozen=True)
class Side:
    """The interpretation of one array's elements.

    Args:
      dtype: the element type.
      scale: the real value of one integer step, or one for each channel of the last axis; None to
        compare the elements as they are.
      zero_point: the integer that stands for 0.
      limits: the smallest and largest element, if values are clipped, else None.
      unsigned: whether the elements are to be read as unsigned integers.
    """

    dtype: DType
    scale: float | tuple[float, ...] | None = None
    zero_point: int = 0
    limits: tuple[float, float] | None = None
    unsigned: bool = False


@dataclasses.dataclass(frozen=True)
class Measured:
    """The difference of two arrays of the same shape, a and b; b is the reference.

    If one array holds integers and the other real numbers, the real numbers are rounded to integer
    steps for mismatches and errors, which count integer steps. All other fields are computed from
    the real values, not rounded.

    Args:
      elements: the number of elements.
      mismatches: the number of elements that differ; NaN equals NaN, 0.0 equals -0.0.
      max_error: the largest |a - b|, in whole steps (LSB) for integers; inf if a mismatch has a NaN
        or an infinity.
      max_ulp: the largest error in units in the last place; None unless both are floats of one
        type that is not block scaled.
      mean_error: the mean of a - b.
      mean_abs_error: the mean of |a - b|.
      sqnr: the ratio of signal (b minus its zero point) to noise (a - b), in dB; inf without noise.
      cosine: the cosine of the angle between a and b, each minus its zero point.
      first: the indices of the first mismatch, beginning with the example.
      range_a: the smallest and largest value of a, NaN left out; None without values.
      range_b: the smallest and largest value of b, NaN left out; None without values.
      clipped_a: the share of elements of a at its limits; None if a has no limits.
      clipped_b: the share of elements of b at its limits; None if b has no limits.
      values_a: the histogram of a.
      values_b: the histogram of b.
      errors: the histogram of a - b.
      peak: the largest finite |b|, b minus its zero point.
      same_top: the number of examples with the same argmax (the first of equal elements); None
        unless the tensor holds scores: one row of at least two numbers for each example.

    Example:
      >>> import tosajax
      >>> from tosajax.compare import compare
      >>> b = tosajax.Builder()
      >>> x = b.input("x", tosajax.DType.INT8, (1, 4))
      >>> graph = b.graph([b.op("REVERSE", x, axis=1, name="y")])
      >>> measured = compare(graph, graph, examples=2).rows[0].total
      >>> measured.elements, measured.mismatches, measured.sqnr
      (8, 0, inf)
    """

    elements: int
    mismatches: int
    max_error: float
    max_ulp: int | None
    mean_error: float
    mean_abs_error: float
    sqnr: float
    cosine: float
    first: tuple[int, ...] | None
    range_a: tuple[float, float] | None
    range_b: tuple[float, float] | None
    clipped_a: float | None
    clipped_b: float | None
    values_a: Histogram
    values_b: Histogram
    errors: Histogram
    peak: float = 0.0
    same_top: int | None = None

    @property
    def share(self) -> float:
        """The share of elements that differ; 0 if there are no elements."""
        return self.mismatches / self.elements if self.elements else 0.0


class Measure:
    """Collects a `Measured` over any number of batches."""

    def __init__(self, a: Side, b: Side) -> None:
        self._a, self._b = _Values(a), _Values(b)
        self._is_bool = a.dtype is DType.BOOL
        self._in_steps = a.dtype.is_float is not b.dtype.is_float
        self._whole = self._in_steps or (not a.dtype.is_float and a.scale is None)
        # The last place of a block-scaled element depends on its block.
        self._ulps = a.dtype.is_float and a.dtype is b.dtype and a.dtype.block is None
        self._examples = self._elements = self._mismatches = self._max_ulp = 0
        self._max: float = 0
        self._sum = self._sum_abs = self._peak = 0.0
        self._noise = self._signal = self._other = self._product = 0.0
        self._first: tuple[int, ...] | None = None
        self._same_top: int | None = None
        self._errors = _Counts("powers")

    def add(self, a: Value, b: Value) -> None:
        """Adds the next examples: values of one shape, examples along the first axis."""
        a, b = numbers(a), numbers(b)
        if a.shape != b.shape:
            raise ValueError(f"arrays of shapes {a.shape} and {b.shape} to compare, expected one")
        x, y = self._a.wide(a), self._b.wide(b)
        self._a.add(x)
        self._b.add(y)
        differ = _is_different(x, y)
        real = error = _difference(x, y, differ)
        if self._in_steps:
            steps = self._a.steps(a, self._b.side), self._b.steps(b, self._a.side)
            differ = _is_different(*steps)
            error = _difference(*steps, differ)
        self._errors.add(error)
        if self._ulps:
            self._max_ulp = max(self._max_ulp, _ulps(a, b, differ))
        self._count(differ)
        self._count_tops(x, y)
        self._max = max(self._max, np.abs(error).max(initial=0).item())
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            self._sum += float(np.sum(error, dtype=np.float64))
        self._sum_abs += float(np.sum(np.abs(error), dtype=np.float64))
        self._noise += _square_sum(real)
        x, y = self._a.signal(x), self._b.signal(y)
        self._other += _square_sum(x)
        self._signal += _square_sum(y)
        self._peak = max(self._peak, np.abs(y).max(initial=0.0).item())
        self._product += float(np.sum(x * y))
        self._examples += len(a)

    def result(self) -> Measured:
        """The measurements so far."""
        count = max(1, self._elements)
        return Measured(
            elements=self._elements,
            mismatches=self._mismatches,
            max_error=int(self._max) if self._whole and self._max < math.inf else float(self._max),
            max_ulp=self._max_ulp if self._ulps else None,
            mean_error=self._sum / count,
            mean_abs_error=self._sum_abs / count,
            sqnr=sqnr(self._signal, self._noise),
            cosine=_cosine(self._product, self._other, self._signal),
            first=self._first,
            range_a=self._a.range,
            range_b=self._b.range,
            clipped_a=self._a.clipped,
            clipped_b=self._b.clipped,
            values_a=self._a.counts.result(),
            values_b=self._b.counts.result(),
            errors=self._errors.result(),
            peak=self._peak,
            same_top=self._same_top,
        )

    def _count_tops(self, x: np.ndarray, y: np.ndarray) -> None:
        """Counts the examples with the same argmax, if the arrays are scores (examples, ..., n)."""
        if self._is_bool or x.ndim < 2 or not 1 < x.shape[-1] == math.prod(x.shape[1:]):
            return
        tops = (np.argmax(side.reshape(len(side), -1), axis=1) for side in (x, y))
        self._same_top = (self._same_top or 0) + int(np.count_nonzero(np.equal(*tops)))

    def _count(self, differ: np.ndarray) -> None:
        count = int(np.count_nonzero(differ))
        if count and self._first is None:
            example, *place = np.unravel_index(int(np.argmax(differ)), differ.shape)
            self._first = (self._examples + int(example), *map(int, place))
        self._mismatches += count
        self._elements += differ.size


class _Values:
    """Statistics over the values of one of the two arrays."""

    def __init__(self, side: Side) -> None:
        self.side = side
        small = side.scale is None and is_small(side.dtype)
        sign = "U" if side.unsigned else ""
        self.counts = _Counts(f"{sign}{side.dtype.name}" if small else "powers")
        self.range: tuple[float, float] | None = None
        self._at_limits = self._elements = 0

    def wide(self, values: np.ndarray) -> np.ndarray:
        """The values to compare: int64 for integers without a scale and bool, else float64."""
        if self.side.dtype.is_float:
            return values.astype(np.float64)
        if self.side.unsigned:
            values = values.view(f"u{values.dtype.name}")
        whole = values.astype(np.int64)
        if self.side.scale is None:
            return whole
        return (whole - self.side.zero_point).astype(np.float64) * np.asarray(
            self.side.scale, np.float64
        )

    def steps(self, values: np.ndarray, other: Side) -> np.ndarray:
        """The values in integer steps, float64: floats are quantized by `other`, the integers."""
        if not self.side.dtype.is_float:
            values = values.view(f"u{values.dtype.name}") if self.side.unsigned else values
            return values.astype(np.float64)
        # Divides as `quantize` does, but does not saturate, so that saturation shows as an error.
        with np.errstate(over="ignore"):
            whole = np.rint(values.astype(np.float32) / np.asarray(other.scale or 1.0, np.float32))
        return whole.astype(np.float64) + other.zero_point

    def signal(self, x: np.ndarray) -> np.ndarray:
        """The values minus the zero point, float64; 0 in place of infinities and NaN."""
        if x.dtype == np.int64:
            return (x - self.side.zero_point).astype(np.float64)
        return np.where(np.isfinite(x), x, 0.0)

    def add(self, x: np.ndarray) -> None:
        """Adds values, in the form that `wide` returns."""
        self.counts.add(x)
        self._elements += x.size
        if self.side.limits is not None:
            ends = np.asarray(self.side.limits, np.float64)
            if self.side.scale is not None:
                steps = (ends - self.side.zero_point).reshape(2, 1)
                ends = (steps * np.asarray(self.side.scale, np.float64)).reshape(2, -1)
            self._at_limits += int(np.count_nonzero((x <= ends[0]) | (x >= ends[1])))
        numbers = x[x == x]
        if numbers.size:
            ends = (numbers.min().item(), numbers.max().item())
            old = self.range or ends
            self.range = min(old[0], ends[0]), max(old[1], ends[1])

    @property
    def clipped(self) -> float | None:
        if self.side.limits is None:
            return None
        return self._at_limits / max(1, self._elements)


class _Counts:
    """A histogram under construction."""

    def __init__(self, kind: str) -> None:
        self._kind, self._inner = kind, edges(kind)[1:-1]
        self._counts = np.zeros(len(self._inner) + 1, np.int64)

    def add(self, x: np.ndarray) -> None:
        bins = np.searchsorted(self._inner, x[x == x].astype(np.float64), side="right")
        self._counts += np.bincount(bins, minlength=len(self._counts))

    def result(self) -> Histogram:
        return Histogram(self._kind, tuple(self._counts.tolist()))


def numbers(value: Value) -> np.ndarray:
    """The array to compare: of a block-scaled value its numbers, exactly, in float64."""
    return value.exact() if isinstance(value, BlockScaled) else np.asarray(value)


def sqnr(signal: float, noise: float) -> float:
    """The signal-to-quantization-noise ratio in dB, from the sums of squares of both."""
    if noise == 0:
        return math.inf
    if signal == 0 or math.isinf(noise):
        return -math.inf
    return 10 * math.log10(signal / noise)


def _cosine(product: float, a: float, b: float) -> float:
    if a == 0 or b == 0:
        return 1.0 if a == b else 0.0
    return product / math.sqrt(a * b)


def _is_different(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x != y) & ((x == x) | (y == y))


def _difference(x: np.ndarray, y: np.ndarray, differ: np.ndarray) -> np.ndarray:
    """x - y; 0 where they do not differ, infinite where they differ and one is not finite."""
    if x.dtype == y.dtype == np.int64:
        return x - y
    x, y = x.astype(np.float64), y.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    error = np.subtract(x, y, out=np.zeros_like(x), where=finite & differ)
    return np.where(differ & ~finite, np.where(x < y, -math.inf, math.inf), error)


def _square_sum(x: np.ndarray) -> float:
    return float(np.sum(np.square(x.astype(np.float64))))


def _ulps(a: np.ndarray, b: np.ndarray, differ: np.ndarray) -> int:
    """The largest distance between differing floats, in steps between adjacent floats."""
    apart = _float_rank(a[differ]) - _float_rank(b[differ])
    return int(np.abs(apart).max(initial=0))


def _float_rank(x: np.ndarray) -> np.ndarray:
    """The rank of each float among the floats of its type, int64; both zeros have rank 0."""
    kinds: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32}
    bits = x.view(kinds[x.dtype.itemsize]).astype(np.int64)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)
