"""Measures of difference, against whole arrays in float64 and Python integers."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tosajax import DType
from tosajax.compare.measure import Measure, Side, edges

INTEGERS = [DType.INT4, DType.INT8, DType.INT16, DType.INT32, DType.INT48]


def measured(a, b, side=None, other=None, *, batch=3):
    """In batches of a few rows."""
    side = side or Side(DType.INT8)
    measure = Measure(side, other or side)
    for start in range(0, len(a), batch):
        measure.add(a[start : start + batch], b[start : start + batch])
    return measure.result()


def pairs_of(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    a, b = (
        generator.integers(dtype.minimum, dtype.maximum, (7, 5), np.int64, endpoint=True)
        for _ in range(2)
    )
    a[0, 0], b[0, 0] = dtype.maximum, dtype.minimum  # the largest difference
    b[3:] = a[3:]
    a[4, 2] += -1 if a[4, 2] > 0 else 1
    return a.astype(dtype.storage), b.astype(dtype.storage)


@pytest.mark.parametrize("zero_point", [0, -3])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, zero_point):
    a, b = pairs_of(dtype)
    found = measured(a, b, Side(dtype, zero_point=zero_point))
    x, y = ([int(v) for v in z.reshape(-1)] for z in (a, b))
    errors = [p - q for p, q in zip(x, y, strict=True)]
    assert found.elements == 35
    assert found.mismatches == sum(e != 0 for e in errors)
    assert found.max_error == max(map(abs, errors))
    assert isinstance(found.max_error, int)
    assert found.max_ulp is None
    assert found.mean_error == pytest.approx(float(Fraction(sum(errors), 35)))
    assert found.mean_abs_error == pytest.approx(float(Fraction(sum(map(abs, errors)), 35)))
    signal, noise = sum((q - zero_point) ** 2 for q in y), sum(e * e for e in errors)
    assert found.sqnr == pytest.approx(10 * math.log10(Fraction(signal, noise)))
    product = sum((p - zero_point) * (q - zero_point) for p, q in zip(x, y, strict=True))
    lengths = math.sqrt(sum((p - zero_point) ** 2 for p in x)) * math.sqrt(signal)
    assert found.cosine == pytest.approx(product / lengths)
    assert found.first == (0, 0)
    assert (found.range_a, found.range_b) == ((min(x), max(x)), (min(y), max(y)))


def test_the_first_mismatch_counts_examples():
    a = np.zeros((9, 2, 3), np.int8)
    b = a.copy()
    b[7, 1, 0] = 1
    b[8] = 1
    assert measured(a, b).first == (7, 1, 0)
    assert measured(a, a).first is None
    assert measured(np.zeros(4, np.int8), np.array([0, 0, 0, 1], np.int8)).first == (3,)


def test_constant_and_equal_arrays():
    zeros, ones = np.zeros((4, 2), np.int8), np.ones((4, 2), np.int8)
    same = measured(ones, ones)
    assert (same.mismatches, same.sqnr, same.cosine, same.max_error) == (0, math.inf, 1.0, 0)
    nothing = measured(zeros, zeros)
    assert (nothing.sqnr, nothing.cosine) == (math.inf, 1.0)
    lost = measured(ones, zeros)
    assert (lost.sqnr, lost.cosine, lost.mismatches) == (-math.inf, 0.0, 8)


def test_no_elements():
    empty = np.zeros((4, 0), np.int8)
    found = measured(empty, empty, Side(DType.INT8, limits=(-128, 127)))
    assert (found.elements, found.mismatches, found.share, found.max_error) == (0, 0, 0.0, 0)
    assert (found.first, found.range_a, found.clipped_a, found.mean_error) == (None, None, 0.0, 0)


def test_bool():
    a, b = np.array([[True, False, True]]), np.array([[True, True, True]])
    found = measured(a, b, Side(DType.BOOL))
    assert (found.mismatches, found.max_error, found.first) == (1, 1, (0, 1))


def test_unsigned_bytes():
    a, b = np.array([[127, 200]], np.uint8).view(np.int8), np.array([[128, 255]], np.uint8)
    side = Side(DType.INT8, zero_point=128, limits=(0, 255), unsigned=True)
    found = measured(a, b.view(np.int8), side)
    assert (found.max_error, found.range_b, found.clipped_b) == (55, (128, 255), 0.5)
    assert found.sqnr == pytest.approx(10 * math.log10(127**2 / (1 + 55**2)))
    assert found.values_b.kind == "UINT8"
    assert sum(found.values_b.counts[32:]) == 2


FLOATS = {
    DType.FP32: np.dtype(np.float32),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.FP8E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.FP8E5M2: np.dtype(ml_dtypes.float8_e5m2),
}


@pytest.mark.parametrize("dtype", FLOATS)
def test_units_in_the_last_place(dtype):
    kind = FLOATS[dtype]
    one, tiny = np.ones(1, kind), np.array([ml_dtypes.finfo(kind).smallest_subnormal], kind)
    integer = np.dtype(f"i{kind.itemsize}")
    above = (one.view(integer) + 3).astype(integer).view(kind)
    assert measured(above, one, Side(dtype)).max_ulp == 3
    assert measured(-above, -one, Side(dtype)).max_ulp == 3
    assert measured(tiny, -tiny, Side(dtype)).max_ulp == 2
    zero = np.zeros(1, kind)
    same = measured(zero, -zero, Side(dtype))
    assert (same.mismatches, same.max_ulp, same.max_error) == (0, 0, 0.0)


def test_nan_and_infinity():
    inf, nan = math.inf, math.nan
    a = np.array([[nan, inf, 1.0, -inf, 2.0]], np.float32)
    found = measured(a, a.copy(), Side(DType.FP32))
    assert (found.mismatches, found.sqnr, found.cosine, found.max_ulp) == (0, inf, 1.0, 0)
    assert (found.range_a, sum(found.values_a.counts)) == ((-inf, inf), 4)
    for wrong in (nan, inf, -inf):
        b = a.copy()
        b[0, 4] = wrong
        for pair in ((a, b), (b, a)):
            other = measured(*pair, Side(DType.FP32))
            assert (other.mismatches, other.first, other.max_error) == (1, (0, 4), inf)
            assert other.sqnr == -inf
    both = measured(
        np.array([[inf, -inf]], np.float32), np.zeros((1, 2), np.float32), Side(DType.FP32)
    )
    assert math.isnan(both.mean_error)
    assert both.mean_abs_error == inf


INT8_SIDE = Side(DType.INT8, 0.25, -5, (-128, 127))


def test_floats_beside_integers_differ_by_steps():
    """Floats are rounded to steps, without limits; ranges and SQNR are of the real numbers."""
    a = np.array([[-128, -5, 0, 127]], np.int8)
    real = ((a.astype(np.float32) + 5) * np.float32(0.25)).astype(np.float32)
    b = real + np.array([[0.1, -0.1, 0.124, 0.25]], np.float32)
    found = measured(a, b, INT8_SIDE, Side(DType.FP32))
    assert (found.mismatches, found.first) == (1, (0, 3))
    assert (found.max_error, found.max_ulp, type(found.max_error)) == (1, None, int)
    assert (found.mean_error, found.mean_abs_error) == (-0.25, 0.25)
    assert found.range_a == ((-128 + 5) * 0.25, (127 + 5) * 0.25)
    assert (found.clipped_a, found.clipped_b) == (0.5, None)
    assert found.values_a.kind == "powers"
    noise = real.astype(float) - b
    wanted = 10 * math.log10((b.astype(float) ** 2).sum() / (noise**2).sum())
    assert found.sqnr == pytest.approx(wanted)
    turned = measured(b, a, Side(DType.FP32), INT8_SIDE)
    assert (turned.mismatches, turned.max_error, turned.mean_error) == (1, 1, 0.25)


def test_floats_beside_unsigned_integers():
    a = np.array([[0, 127, 128, 255]], np.uint8)
    side = Side(DType.INT8, 0.5, 128, (0, 255), unsigned=True)
    b = (a.astype(np.float32) - 128) * 0.5
    assert measured(a.view(np.int8), b, side, Side(DType.FP32)).mismatches == 0
    assert measured(a.view(np.int8), b + 0.5, side, Side(DType.FP32)).max_error == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_no_integer_is_equal_to_what_is_not_a_number(wrong):
    a = np.array([[127, 0]], np.int8)
    b = np.array([[wrong, 1.25]], np.float32)
    found = measured(a, b, INT8_SIDE, Side(DType.FP32))
    assert (found.mismatches, found.first, found.max_error) == (1, (0, 0), math.inf)
    assert found.sqnr == -math.inf


def test_the_share_at_the_limits():
    a, b = np.array([[-128, 127, 0, 5]], np.int8), np.array([[-128, 1, 0, 5]], np.int8)
    found = measured(a, b, Side(DType.INT8, limits=(-128, 127)))
    assert (found.clipped_a, found.clipped_b) == (0.5, 0.25)


@pytest.mark.parametrize("kind", ["INT4", "INT8", "INT16", "UINT8", "UINT16"])
def test_bins_of_small_integers(kind):
    unsigned = kind.startswith("U")
    dtype = DType[kind.removeprefix("U")]
    ends = edges(kind)
    lowest = 0 if unsigned else -(1 << (dtype.bits - 1))
    assert (ends[0], ends[-1]) == (lowest, lowest + (1 << dtype.bits))
    assert len(ends) == min(64, 1 << dtype.bits) + 1
    values = np.arange(dtype.minimum, dtype.maximum + 1).astype(dtype.storage)
    found = measured(values, values, Side(dtype, unsigned=unsigned), batch=10**6).values_a
    assert (found.kind, sum(found.counts)) == (kind, len(values))
    if dtype is not DType.INT4:
        assert set(found.counts) == {(1 << dtype.bits) // 64}


def test_bins_of_differences_are_alike_for_both_signs():
    ends = edges("powers")
    up, down = np.arange(40, dtype=np.int32), -np.arange(40, dtype=np.int32)
    side, zeros = Side(DType.INT32), np.zeros(40, np.int32)
    right, left = (measured(x, zeros, side).errors.counts for x in (up, down))
    assert right == left[::-1]
    (middle,) = [i for i in range(len(ends) - 1) if ends[i] < 0 < ends[i + 1]]
    assert right[middle] == 1
    where = [i for i in range(len(ends) - 1) if ends[i] <= 1 < ends[i + 1]]
    assert [right[i] for i in range(where[0], where[0] + 5)] == [1, 1, 3, 6, 11]
    assert len(right) == len(ends) - 1


def test_different_shapes():
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 4\)"):
        Measure(Side(DType.INT8), Side(DType.INT8)).add(
            np.zeros((2, 3), np.int8), np.zeros((2, 4), np.int8)
        )
