"""Dot products: verdicts are those of Arm's verify library, and the text's own numbers hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle.float_bounds import FLOATS, fraction_bits, normal_max, normal_min, widen

from tosajax import DType, compliance

# Of each output type: an operator, its input type, its accumulator, and a number of terms that
# the difference of precisions makes this many roundings.
CASES = {
    "fp32": ("FP32", "CONV2D", DType.FP32, DType.FP32, 5, 5),
    "fp16": ("FP16", "MATMUL", DType.FP16, DType.FP16, 5, 5),
    "fp16-acc32": ("FP16", "CONV3D", DType.FP16, DType.FP32, 91, 2),
    "fp8e4m3-in": ("FP16", "MATMUL", DType.FP8E4M3, DType.FP16, 3, 3),
    "bf16": ("BF16", "REDUCE_SUM", DType.BF16, DType.FP32, 257, 2),
    "bf16-in": ("FP32", "MATMUL", DType.BF16, DType.FP32, 7, 7),
    "fp8e4m3": ("FP8E4M3", "AVG_POOL2D", DType.FP8E4M3, DType.FP16, 24, 3),
    "fp8e5m2": ("FP8E5M2", "AVG_POOL2D", DType.FP8E5M2, DType.FP16, 17, 2),
}
each = pytest.mark.parametrize("case", CASES)
COUNT = 64


def _both(arm, case, reference, bounds, result, *, test_set=0, as_suite=False, biased=False):
    """The verdicts of the verify library and of `check`, for the same numbers."""
    name, op, in_dtype, acc_dtype, terms, roundings = CASES[case]
    roundings += biased
    factor = 3 if as_suite and in_dtype is DType.FP32 else 1
    info = {
        "s": test_set,
        "ksb": roundings,
        "abs_bound": 2 * factor * roundings,
        "variance_error_bound": 4 * 0.4 * roundings,
    }
    rule = {"mode": "DOT_PRODUCT", "dot_product_info": info}
    found = compliance.check(
        op,
        reference,
        result,
        bounds=bounds,
        terms=terms,
        test_set=test_set,
        in_dtype=in_dtype,
        acc_dtype=acc_dtype,
        biased=biased,
        as_suite=as_suite,
    )
    return arm("verify", name, rule, reference, bounds, result), found


def _exact(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Results without error, their references, and bounds that are powers of two."""
    rng = np.random.default_rng(7)
    result = rng.choice([0.25, 0.5, 1.0, -1.0, 1.5, -0.75], COUNT).astype(FLOATS[name])
    return result, widen(result), 2.0 ** rng.integers(0, 3, COUNT)


@each
@pytest.mark.parametrize("as_suite", [False, True], ids=["text", "suite"])
@pytest.mark.parametrize("biased", [False, True], ids=["", "biased"])
def test_an_element_on_and_beyond_its_bound(arm, case: str, as_suite: bool, biased: bool):
    name, _, in_dtype, _, _, roundings = CASES[case]
    factor = 3 if as_suite and in_dtype is DType.FP32 else 1
    limit = 2 * factor * (roundings + biased)
    for sign in (-1.0, 1.0):
        result, reference, bounds = _exact(name)
        unit = bounds[9] * 2.0 ** (-1 - fraction_bits(FLOATS[name]))
        reference[9] += sign * limit * unit
        on = _both(arm, case, reference, bounds, result, as_suite=as_suite, biased=biased)
        # One such element alone may be too much for the sum of squares.
        large = limit**2 > 1.6 * (roundings + biased) * COUNT
        assert on[0] == bool(on[1]) == (not large)
        assert on[1].index == (None if large else (9,))
        reference[9] += sign * unit * 2.0**-20
        beyond = _both(arm, case, reference, bounds, result, as_suite=as_suite, biased=biased)
        assert not beyond[0]
        assert not beyond[1]
        assert beyond[1].index == (9,)
        assert beyond[1].bound == limit * unit


@each
def test_small_bounds_are_those_of_the_smallest_normal_value(arm, case: str):
    name, _, _, _, _, roundings = CASES[case]
    result, reference, bounds = _exact(name)
    bounds[3] = normal_min(FLOATS[name]) / 8
    result[3] = 0
    reference[3] = 2 * roundings * normal_min(FLOATS[name])
    verdicts = _both(arm, case, reference, bounds, result)
    assert verdicts[0]
    assert verdicts[1]
    reference[3] = np.nextafter(reference[3], 1)
    verdicts = _both(arm, case, reference, bounds, result)
    assert not verdicts[0]
    assert not verdicts[1]


@each
def test_special_values(arm, case: str):
    name = CASES[case][0]
    dtype, nan, inf = FLOATS[name], math.nan, math.inf
    huge = normal_max(dtype)
    values = [0.0, -0.0, 1.0, -1.0, huge, -huge, nan, inf, -inf]
    seen = set()
    for reference in [0.0, 1.0, huge, nan, inf]:
        for bound in [0.0, 1.0, huge / 8, huge, 2 * huge, nan, inf]:
            for value in values:
                result, references, bounds = _exact(name)
                with np.errstate(all="ignore"):
                    result[5] = np.array(value).astype(dtype)
                references[5], bounds[5] = reference, bound
                wanted, found = _both(arm, case, references, bounds, result)
                assert wanted == bool(found), (reference, bound, value)
                assert found or found.index == (5,)
                seen.add(wanted)
    assert seen == {True, False}


@each
def test_overflow_within_the_bound_is_free(arm, case: str):
    """Nothing is asked where the bound rounds to infinity; fp8e4m3 has no infinity."""
    name, *_, roundings = CASES[case]
    dtype = FLOATS[name]
    half = normal_max(dtype) - float(np.nextafter(dtype.type(normal_max(dtype)), dtype.type(0)))
    edge = normal_max(dtype) + half / 2
    stretch = 1 + 2 * roundings * 2.0 ** (-1 - fraction_bits(dtype))
    for share in (1 - 2.0**-20, 1 + 2.0**-20):
        result, reference, bounds = _exact(name)
        result[5], bounds[5], reference[5] = -normal_max(dtype), share * edge / stretch, 0.0
        wanted, found = _both(arm, case, reference, bounds, result)
        assert wanted == bool(found) == (share > 1 and name != "FP8E4M3")


@each
@pytest.mark.parametrize("test_set", range(6))
def test_sums_of_errors(arm, case: str, test_set: int):
    name, *_, roundings = CASES[case]
    unit = 2.0 ** (-1 - fraction_bits(FLOATS[name]))
    rng = np.random.default_rng(test_set)
    sides = rng.permutation(np.resize([1.0, -1.0], COUNT))
    variance = math.sqrt(1.6 * roundings)
    bias = math.sqrt(16 * roundings / COUNT)
    for error, sums_up in ((variance * sides, False), (bias * np.ones(COUNT), True)):
        for share in (0.999, 1.001):
            result, reference, _ = _exact(name)
            reference += share * error * unit
            verdicts = _both(arm, case, reference, np.ones(COUNT), result, test_set=test_set)
            wanted, found = verdicts
            assert wanted == bool(found) == (share < 1 or (sums_up and test_set < 3))
            assert found or found.index is None


@each
def test_other_data_have_no_bound_on_the_sum(case: str):
    name, op, in_dtype, acc_dtype, terms, roundings = CASES[case]
    result, reference, _ = _exact(name)
    reference += (
        1.001 * math.sqrt(16 * roundings / COUNT) * 2.0 ** (-1 - fraction_bits(FLOATS[name]))
    )
    more = {"terms": terms, "in_dtype": in_dtype, "acc_dtype": acc_dtype}
    bounds = np.ones(COUNT)
    assert compliance.check(op, reference, result, bounds=bounds, **more)
    assert not compliance.check(op, reference, result, bounds=bounds, test_set=3, **more)


@pytest.mark.parametrize("name", FLOATS)
def test_only_special_values_are_checked(arm, name: str):
    dtype = FLOATS[name]
    op = "AVG_POOL2D" if name.startswith("FP8") else "CONV2D"
    wide = [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30, 1e30, 1e300, math.nan, math.inf, -math.inf]
    with np.errstate(all="ignore"):
        narrow = np.array([*wide, normal_max(dtype), -normal_min(dtype)]).astype(dtype)
    grid = np.meshgrid(np.array(wide), np.array([1.0, math.nan, math.inf]), np.arange(narrow.size))
    reference, bounds, index = (axis.reshape(-1) for axis in grid)
    result = narrow[index]
    wanted = arm("verify_each", name, {"mode": "FP_SPECIAL"}, reference, bounds, result)
    found = [
        bool(compliance.check(op, r, v, bounds=b, special=True))
        for r, b, v in zip(reference, bounds, result, strict=True)
    ]
    shown = [
        (r, b, v, w)
        for r, b, v, w, f in zip(reference, bounds, result, wanted, found, strict=True)
        if w != f
    ]
    assert shown == []
    assert set(wanted) == {True, False}
