"""Test data for the operators that are dot products (TOSA 1.0.1, Appendix A).

A value depends only on its test set, its position in the tensor and its position in the kernel, so
the data are reproducible. Where the text leaves a choice, or Arm's conformance suite differs from
it, the data equal the suite's, bit by bit; comments mark these places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tosajax.compliance.rules import DOT_PRODUCTS
from tosajax.compliance.terms import terms_of
from tosajax.compliance.types import the_type
from tosajax.dtypes import DType
from tosajax.spec import OPERATORS

TEST_SETS = range(6)
MIN_DOT_PRODUCTS = 1000

# B: the largest value of the input type whose square fits the output type; by (input, output) type.
_LARGEST = {
    (DType.FP8E4M3, DType.FP16): 240.0,
    (DType.FP8E5M2, DType.FP16): 224.0,
    (DType.FP8E4M3, DType.FP32): 448.0,
    (DType.FP8E5M2, DType.FP32): 57344.0,
    (DType.FP8E4M3, DType.BF16): 448.0,
    (DType.FP8E5M2, DType.BF16): 57344.0,
    (DType.FP8E4M3, DType.FP8E4M3): 20.0,
    (DType.FP8E5M2, DType.FP8E5M2): 224.0,
    (DType.FP16, DType.FP16): 255.875,
    (DType.FP16, DType.FP32): 65504.0,
    (DType.BF16, DType.BF16): 2.0**64 - 2.0**56,
    (DType.BF16, DType.FP32): 2.0**64 - 2.0**56,
    (DType.FP32, DType.FP32): 2.0**64 - 2.0**40,
}


class _Layout(NamedTuple):
    """The positions of one tensor's values in the dot products.

    Args:
      parameter: 0 for data, 1 for weights, 2 for the bias.
      periods: for each axis, the number of elements after which the position in the kernel
        repeats; positions count in row-major order.
      start: the index of the tensor's first value.
    """

    parameter: int
    periods: tuple[int, ...]
    start: int = 0


class _Numbered(NamedTuple):
    """The variables of the test sets' formulas for the values of one tensor.

    Args:
      parameter: see `_Layout`.
      place: int64, the position of each value in the kernel.
      number: int64, the index of each value in its tensor.
      terms: KS, the length of the dot products.
      largest: B of the tensor's type.
    """

    parameter: int
    place: np.ndarray
    number: np.ndarray
    terms: int
    largest: float


def test_data(
    op: str,
    test_set: int,
    shapes: Mapping[str, Sequence[int]],
    *,
    dtype: DType,
    out_dtype: DType | None = None,  # noqa: PT028
    kernel: Sequence[int] | None = None,  # noqa: PT028
    axis: int | None = None,  # noqa: PT028
) -> dict[str, np.ndarray]:
    """Makes the float inputs of a test set.

    Args:
      op: an operator whose float results are dot products, such as "CONV2D".
      test_set: 0 (products with zero), 1 (large exponents), 2 and 3 (small values added to a large
        one), 4 (zero and nonzero products), or 5 (signed values of large range).
      shapes: the shape of each tensor, by argument name. The statistics of the check need at
        least `MIN_DOT_PRODUCTS` outputs.
      dtype: the input type; a bias has the output type.
      out_dtype: the output type; required if `dtype` does not determine it (MATMUL of fp16).
      kernel: (kernel_y, kernel_x) of AVG_POOL2D.
      axis: the axis of REDUCE_SUM.

    Returns:
      An array for each name in `shapes`, in the storage of the tensor's type.

    Raises:
      ValueError: the operator has no test data, or an argument is missing or out of range.
      TypeError: the operator does not take `dtype`.
    """
    if op not in DOT_PRODUCTS:
        raise ValueError(f"{op} has no test data, only {', '.join(DOT_PRODUCTS)} have")
    if test_set not in TEST_SETS:
        raise ValueError(f"{op}: test set {test_set!r}, expected 0 to 5")
    out_dtype = the_type(op, "out_t", in_t=dtype, out_t=out_dtype)
    if (dtype, out_dtype) not in _LARGEST:
        raise TypeError(f"{op} of {dtype.name}: there are test data for float types only")
    sizes = {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
    check_shapes(op, sizes)
    terms = terms_of(op, sizes, kernel, axis)
    layouts = _layouts(op, sizes, kernel, axis)
    data = {}
    for name in sizes:
        # The bias uses the B of its own type: fp16's if the inputs are fp8 (suite).
        held = out_dtype if layouts[name].parameter == 2 else dtype
        values = _values(test_set, layouts[name], sizes[name], terms, _LARGEST[held, out_dtype])
        data[name] = values.astype(held.storage)
    return data


def check_shapes(op: str, sizes: dict[str, tuple[int, ...]]) -> None:
    """Raises ValueError for unknown or missing names, and for shapes of the wrong rank."""
    arguments = {a.name: a for a in OPERATORS[op].inputs if not a.name.endswith("_zp")}
    if sizes.keys() != arguments.keys():
        raise ValueError(f"{op}: shapes of {', '.join(sizes)}, expected {', '.join(arguments)}")
    for name, size in sizes.items():
        dims = arguments[name].dims
        if dims is not None and len(size) != len(dims):
            raise ValueError(f"{op}: {name} has rank {len(size)}, expected {len(dims)}")
        if not size or min(size) < 1:
            raise ValueError(f"{op}: {name} has shape {size}, expected dimensions of at least 1")


def _layouts(
    op: str, sizes: dict[str, tuple[int, ...]], kernel: Sequence[int] | None, axis: int | None
) -> dict[str, _Layout]:
    """The layout of each tensor, by argument name."""
    match op:
        case "CONV2D" | "CONV3D" | "TRANSPOSE_CONV2D":
            # The suite wrongly counts the weights of CONV3D over (OC, KD, KH, KW): unless OC
            # equals IC, its sets 2 to 4 have their special values elsewhere.
            window = (1, *sizes["weight"][1:])
            return _convolution(window, window)
        case "DEPTHWISE_CONV2D":
            window = sizes["weight"][:2]
            return _convolution((1, *window, 1), (*window, 1, 1))
        case "MATMUL":
            terms = sizes["a"][2]
            return {"a": _Layout(0, (1, 1, terms)), "b": _Layout(1, (1, terms, 1))}
        case "MATMUL_T":
            terms = sizes["a"][2]
            return {name: _Layout(at, (1, 1, terms)) for at, name in enumerate("ab")}
        case "FFT2D" | "RFFT2D":
            count, height, width = sizes["input_real"]
            size = count * height * width
            # The indices of imaginary values continue after the real ones.
            starts = {name: number * size for number, name in enumerate(sizes)}
            return {n: _Layout(0, (1, height, width), start) for n, start in starts.items()}
        case "REDUCE_SUM":
            periods = tuple(n if a == axis else 1 for a, n in enumerate(sizes["input"]))
            return {"input": _Layout(0, periods)}
        case _:
            # The text's position includes the channel, although each dot product has only one.
            return {"input": _Layout(0, (1, *(kernel or ()), sizes["input"][3]))}


def _convolution(data: tuple[int, ...], weight: tuple[int, ...]) -> dict[str, _Layout]:
    return {"input": _Layout(0, data), "weight": _Layout(1, weight), "bias": _Layout(2, (1,))}


def _values(
    test_set: int, layout: _Layout, shape: tuple[int, ...], terms: int, largest: float
) -> np.ndarray:
    """The float32 values of one tensor, before rounding to its type."""
    place = np.zeros(shape, np.int64)
    for axis, period in enumerate(layout.periods):
        along = np.arange(shape[axis]) % period
        place = place * period + along.reshape((-1,) + (1,) * (len(shape) - axis - 1))
    index = layout.start + np.arange(place.size).reshape(shape)
    if layout.parameter == 2:
        return _bias(test_set, index, terms, largest)
    make = (_zero_products, _large, _similar, _varying, _mixed, _signed)[test_set]
    return make(_Numbered(layout.parameter, place, index, terms, largest)).astype(np.float32)


def _bias(test_set: int, index: np.ndarray, terms: int, largest: float) -> np.ndarray:
    if test_set != 1:
        return np.zeros(index.shape, np.float32)
    square = np.float32(largest) * np.float32(largest)
    # float32 throughout; other values are float64 until they are rounded (suite).
    return square / np.float32(terms + 1) * _away_from_zero(5, index)


def _zero_products(v: _Numbered) -> np.ndarray:
    """Set 0: in each product, either the data or the weight is zero."""
    empty = _draw(0, v.number) < 0
    return np.where(empty == (v.parameter == 0), np.float32(0), _draw(1, v.number))


def _large(v: _Numbered) -> np.ndarray:
    """Set 1: large exponents."""
    values = _away_from_zero(3 + v.parameter, v.number).astype(np.float64)
    return v.largest / math.sqrt(v.terms + 1) * values


def _similar(v: _Numbered) -> np.ndarray:
    """Set 2: a large first value, then small values of similar magnitude."""
    return np.where(v.place == 0, 1.0, _draw(6 + v.parameter, v.number) / math.sqrt(v.terms))


def _varying(v: _Numbered) -> np.ndarray:
    """Set 3: a large first value, then small values of varying magnitude."""
    first, second = (_draw(9 + v.parameter, 2 * v.number + n) for n in (0, 1))
    # This exponential is correctly rounded. The suite's C library rounds one value in two thousand
    # differently, in the last bit of fp32.
    scale = np.exp(2.0 * first).astype(np.float32)
    return np.where(v.place == 0, np.copysign(16.0, first), scale * second.astype(np.float32))


def _mixed(v: _Numbered) -> np.ndarray:
    """Set 4: zero products, except for the middle one, mixed with nonzero products."""
    first = _draw(12, v.number)
    empty = (first < 0) == (v.parameter == 0)
    spread = np.where(empty, 0.0, v.largest / math.sqrt(v.terms) * _draw(13, v.number))
    return np.where(v.place == v.terms // 2, np.where(empty, -0.5, 0.5), spread)


def _signed(v: _Numbered) -> np.ndarray:
    """Set 5: signed values of large range.

    The text divides by sqrt(KS), the suite by sqrt(KS + 1), as here.
    """
    return v.largest / math.sqrt(v.terms + 1) * _draw(15 + v.parameter, v.number)


def _away_from_zero(stream: int, index: np.ndarray) -> np.ndarray:
    """Draws float32 values with magnitudes from 0.5 to 1."""
    middle = np.where(_draw(stream, 2 * index) < 0, np.float32(-0.75), np.float32(0.75))
    return middle + np.float32(0.25) * _draw(stream, 2 * index + 1).astype(np.float32)


def _draw(stream: int, index: np.ndarray) -> np.ndarray:
    """Draws pseudo-random float32 values in [-1, 1] from a stream; float64."""
    bits = _sequence(stream, int(index.max()) + 1)[index]
    magnitude = (bits & 0x7FFFFFFF).astype(np.float32) / np.float32(0x7FFFFFFF)
    return np.where(bits >> 31, -magnitude, magnitude).astype(np.float64)


def _sequence(stream: int, count: int) -> np.ndarray:
    """The first values of the recurrence r = r * m + 1 modulo 2**32, starting at m + 1.

    Advancing by n values computes r * m**n + (1 + m + ... + m**(n-1)), so each iteration doubles
    the number of values.
    """
    factor = (8 * stream + 1) * 0x705A5E75 & 0xFFFFFFFF
    values, step, offset = np.array([factor + 1 & 0xFFFFFFFF], np.uint32), factor, 1
    while values.size < count:
        ahead = values * np.uint32(step) + np.uint32(offset)
        values = np.concatenate([values, ahead])
        offset = offset * (step + 1) & 0xFFFFFFFF
        step = step * step & 0xFFFFFFFF
    return values[:count]
