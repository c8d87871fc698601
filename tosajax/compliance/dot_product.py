"""Accuracy checks of dot product operators ("Dot product accuracy requirements", TOSA 1.0.1)."""

from __future__ import annotations

import math

import numpy as np

from tosajax.compliance.formats import fraction_bits, normal_max, normal_min, ulp
from tosajax.compliance.judgement import Judgement, Outcome, outcome
from tosajax.dtypes import DType

_VARIANCE = 4 * 0.4  # variance of an error, for each rounding
_BIASED_SETS = (0, 1, 2)  # test sets whose mean error need not be zero


def check_dot_products(
    op: str,
    dtype: DType,
    found: np.ndarray,
    wanted: np.ndarray,
    bounds: np.ndarray,
    *,
    roundings: int,
    factor: int,
    test_set: int | None,
) -> Outcome:
    """Checks each dot product, and the sums of all errors.

    Args:
      op: the operator's name, for messages.
      dtype: the type of the results.
      found, wanted, bounds: float64 of equal shapes; the results, the reference, and the operator
        on absolute values.
      roundings: KSB, the number of roundings allowed in each dot product.
      factor: multiplies the text's bound on each element.
      test_set: the test set's number, or None for other data.
    """
    unit = np.maximum(bounds * 2.0 ** (-1 - fraction_bits(dtype)), normal_min(dtype))
    limit = 2.0 * factor * roundings
    free = np.isnan(bounds) | _overflows(dtype, bounds, limit)
    with np.errstate(all="ignore"):
        error = (found - wanted) / unit
    right = np.where(bounds == 0, (found == 0) & (wanted == 0), np.abs(error) <= limit)
    right = np.where(np.isnan(wanted), np.isnan(found), free | right)
    allowed = np.where(free, np.inf, np.where(bounds == 0, 0.0, limit * unit))
    elements = outcome(op, Judgement("DOT_PRODUCT", right, found, wanted, allowed))
    if not elements:
        return elements
    counted = np.where(free | np.isnan(wanted) | (bounds == 0), 0.0, error)
    sums = _check_sums(op, counted, roundings, test_set)
    return elements if sums is None else sums


def check_special(op: str, found: np.ndarray, wanted: np.ndarray, bounds: np.ndarray) -> Outcome:
    """Checks only which dot products are NaN, infinite or negative.

    Arm's conformance suite checks inputs with infinities and NaN this way. NaN is also right where
    the bound is NaN because of products with padding, which an implementation may include.
    """
    zeros = (found == 0) & (wanted == 0)
    nan = np.isnan(found) & (np.isnan(wanted) | np.isnan(bounds))
    alike = ~np.isnan(found) & ~np.isnan(wanted) & (np.isfinite(found) == np.isfinite(wanted))
    right = zeros | nan | (alike & (np.signbit(found) == np.signbit(wanted)))
    return outcome(op, Judgement("FP_SPECIAL", right, found, wanted))


def _overflows(dtype: DType, bounds: np.ndarray, limit: float) -> np.ndarray:
    """Bool array, true where a result may round to infinity, so that any value is right.

    It is false for fp8e4m3, which does not have infinities.
    """
    if dtype is DType.FP8E4M3:
        return np.zeros(bounds.shape, bool)
    largest = normal_max(dtype)
    half = ulp(dtype, np.asarray(largest)) / 2
    return bounds * (1 + limit * 2.0 ** (-1 - fraction_bits(dtype))) >= largest + half


def _check_sums(op: str, error: np.ndarray, roundings: int, test_set: int | None) -> Outcome | None:
    """Checks the sums of the errors and of their squares; None if both are within bounds."""
    variance = _VARIANCE * roundings * error.size
    sums = [("the sum of squared errors", float(np.square(error).sum()), variance)]
    if test_set is not None and test_set not in _BIASED_SETS:
        # The text's factor is 10: up to four standard deviations.
        sums.insert(0, ("the sum of errors", abs(float(error.sum())), math.sqrt(10 * variance)))
    for name, value, bound in sums:
        if not value <= bound:
            text = f"{op}: {name} is {value:.9g}, expected at most {bound:.9g} [DOT_PRODUCT]"
            return Outcome(False, "DOT_PRODUCT", None, value, 0.0, bound, text)
    return None
