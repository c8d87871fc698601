"""Checks the results of an implementation against exact or float64 results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosajax.compliance import bounds as error_bounds
from tosajax.compliance.dot_product import check_dot_products, check_special
from tosajax.compliance.formats import ulp, widen, within
from tosajax.compliance.judgement import Judgement, Outcome, outcome
from tosajax.compliance.rules import Rule, rule_of
from tosajax.compliance.terms import roundings
from tosajax.compliance.types import check_result_type, float_type, the_type
from tosajax.dtypes import DType


def check(
    op: str,
    reference: np.ndarray,
    result: np.ndarray,
    *,
    inputs: Sequence[np.ndarray] = (),
    bounds: np.ndarray | None = None,
    terms: int | None = None,
    test_set: int | None = None,
    in_dtype: DType | None = None,
    acc_dtype: DType | None = None,
    biased: bool = False,
    special: bool = False,
    as_suite: bool = False,
) -> Outcome:
    """Checks a result against the accuracy that TOSA 1.0.1 requires of its operator.

    Integers and booleans must be exact, except for RESCALE with inexact rounding: pass the lowest
    values allowed as `reference` and the highest as `bounds` (see `rescale_limits`).

    Args:
      op: the operator's name, such as "CONV2D".
      reference: the exact integers, or the float64 results for float operators; the shape of
        `result`. For an implementation that flushes subnormal inputs to zero, compute them from
        flushed inputs (see `flush`).
      result: the implementation's result, in the storage of its element type (`DType.storage`);
        unsigned results of RESCALE as uint8 or uint16.
      inputs: the inputs on which the bound depends: the input of COS, EXP, LOG, SIGMOID, SIN, TANH
        or RESIZE, both inputs of POW; flushed if the implementation flushes.
      bounds: for dot products, float64: the operator on absolute values (see `dot_products`).
      terms: KS, the length of the dot products; for REDUCE_PRODUCT, the length of the axis.
      test_set: the number of the test set of a dot product's inputs; None for other inputs. The sum
        of errors is bounded in sets 3 to 5.
      in_dtype: the input type of CAST, or of MATMUL if the output type does not determine it.
      acc_dtype: the accumulator type of a dot product, if input and output types do not determine
        it.
      biased: whether the bias of a dot product has a nonzero value.
      special: whether to check only NaN, infinities and signs of dot products, for inputs with NaN
        or infinities.
      as_suite: whether to apply the rules of Arm's conformance suite 1.0.2, which are looser than
        the text: ADD, SUB and MUL of bf16 may be 1 ulp off, dot products of fp32 have three times
        the bound, CAST from integers has the bound of CAST from floats, and results that the text
        makes exact zeros or infinities have their usual bounds.

    Returns:
      An Outcome, true if the result complies.

    Raises:
      ValueError: the operator is unknown, array shapes differ, or a required argument is missing.
      TypeError: `result` or `reference` has a type that the operator does not produce.
    """
    rule = rule_of(op)
    reference, result = np.asarray(reference), np.asarray(result)
    check_result_type(op, result.dtype)
    _check_shape(op, "reference", reference, result)
    if result.size == 0:
        raise ValueError(f"{op}: the result has no elements")
    if bounds is not None:
        bounds = np.asarray(bounds)
        _check_shape(op, "bounds", bounds, result)
    if result.dtype.kind in "biu":
        return outcome(op, _integers(op, reference, result, bounds))
    dtype, actual = float_type(result.dtype), widen(result)
    _check_float64(op, "reference", reference)
    if rule.name != "DOT_PRODUCT":
        below, above = _errors(op, rule, dtype, reference, inputs, terms, in_dtype, as_suite)
        right = within(dtype, actual, reference, below, above)
        return outcome(op, Judgement(rule.name, right, actual, reference, above))
    if bounds is None:
        raise ValueError(f"{op}: no bounds, expected the operator on absolute values")
    _check_float64(op, "bounds", bounds)
    if special:
        return check_special(op, actual, reference, bounds)
    return check_dot_products(
        op,
        dtype,
        actual,
        reference,
        bounds,
        roundings=_roundings(op, dtype, terms, in_dtype, acc_dtype, biased),
        factor=3 if as_suite and _takes_fp32(op, dtype, in_dtype) else 1,
        test_set=test_set,
    )


def rescale_limits(
    scaled: np.ndarray, output_zp: int, dtype: DType, *, unsigned: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and highest results of RESCALE with inexact rounding (TOSA 1.0.1, "RESCALE").

    Args:
      scaled: float64, (value - input_zp) * multiplier * 2**-shift.
      output_zp: the output's zero point.
      dtype: the output type, INT8, INT16 or INT32.
      unsigned: whether the output is read as unsigned.

    Returns:
      Two arrays of the shape of `scaled`, in the storage of `dtype` or the unsigned type of the
      same size: the `reference` and `bounds` arguments of `check`.
    """
    _check_float64("RESCALE", "scaled value", np.asarray(scaled))
    kind = np.dtype(f"u{dtype.storage.itemsize}") if unsigned else dtype.storage
    error = 0.5 + (3 * np.abs(scaled) + np.abs(scaled + output_zp)) * 2.0**-24
    low, high = np.ceil(scaled - error + output_zp), np.floor(scaled + error + output_zp)
    ends = dtype.limits(unsigned=unsigned)
    return np.clip(low, *ends).astype(kind), np.clip(high, *ends).astype(kind)


def _integers(
    op: str, reference: np.ndarray, result: np.ndarray, bounds: np.ndarray | None
) -> Judgement:
    """Judges integers and booleans: exact, or between two limits for RESCALE."""
    for name, values in (("reference", reference), ("bounds", bounds)):
        if values is not None and values.dtype.kind not in "biu":
            raise TypeError(f"{op}: {name} of {values.dtype.name}, expected integers")
    if bounds is None:
        return Judgement("EXACT", result == reference, result, reference)
    if op != "RESCALE":
        raise ValueError(f"{op}: integer results are exact and have no bounds")
    right = (reference <= result) & (result <= bounds)
    nearest = np.clip(result.astype(np.int64), reference, bounds)
    return Judgement("RESCALE_INEXACT", right, result, nearest)


def _errors(
    op: str,
    rule: Rule,
    dtype: DType,
    reference: np.ndarray,
    inputs: Sequence[np.ndarray],
    terms: int | None,
    in_dtype: DType | None,
    as_suite: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The largest errors of a float result towards zero and away from zero."""
    with np.errstate(all="ignore"):
        match rule.name:
            case "ULP":
                unit = ulp(dtype, reference)
                ulps = rule.ulps
                if as_suite and rule.suite_bf16 is not None and dtype is DType.BF16:
                    ulps = rule.suite_bf16
                below = ulps
                if op == "CAST" and (as_suite or _source(in_dtype).is_float):
                    below = 1.0  # CAST may round towards zero, but not away from zero
                return unit * below, unit * ulps
            case "REDUCE_PRODUCT":
                if terms is None:
                    raise ValueError(f"{op}: no terms, expected the length of the axis")
                error = error_bounds.reduce_product(dtype, reference, terms)
            case "ABS_ERROR" | "MAX_RELATIVE":
                error = _absolute(op, rule, dtype, reference, inputs, as_suite)
            case _:
                error = np.zeros(reference.shape)
    return error, error


def _absolute(
    op: str,
    rule: Rule,
    dtype: DType,
    reference: np.ndarray,
    inputs: Sequence[np.ndarray],
    as_suite: bool,
) -> np.ndarray:
    wanted = 2 if op == "POW" else 1
    if len(inputs) != wanted:
        raise ValueError(f"{op}: {len(inputs)} inputs, the bound depends on {wanted}")
    wide = [widen(np.asarray(values)) for values in inputs]
    if op != "RESIZE":
        for values in wide:
            _check_broadcast(op, values, reference)
    error = getattr(error_bounds, op.lower())(dtype, reference, *wide)
    error = np.broadcast_to(error, reference.shape)
    if rule.special and not as_suite:
        # A table of the specification gives these results. If the reference overflows float64, the
        # computed error is infinite and would allow any result.
        exact = (wide[0] == 0) | np.isinf(wide[0]) | np.isinf(reference)
        error = np.where(exact, 0.0, error)
    return error


def _roundings(
    op: str,
    dtype: DType,
    terms: int | None,
    in_dtype: DType | None,
    acc_dtype: DType | None,
    biased: bool,
) -> int:
    """KSB, the number of roundings allowed in each dot product."""
    if terms is None:
        raise ValueError(f"{op}: no terms, expected the length of the dot products")
    acc_dtype = the_type(op, "acc_t", in_t=in_dtype, out_t=dtype, acc_t=acc_dtype)
    # In the text no bias is zero: it raises each to the smallest normal value before the test.
    # The suite tests first, as intended.
    return roundings(terms, acc_dtype, dtype, biased=biased)


def _takes_fp32(op: str, dtype: DType, in_dtype: DType | None) -> bool:
    """Whether the inputs and the result of a dot product are fp32."""
    if dtype is not DType.FP32:
        return False
    return the_type(op, "in_t", in_t=in_dtype, out_t=dtype) is DType.FP32


def _source(in_dtype: DType | None) -> DType:
    if in_dtype is None:
        raise ValueError("CAST: no in_dtype, expected the type of the input")
    return in_dtype


def _check_shape(op: str, name: str, values: np.ndarray, result: np.ndarray) -> None:
    if values.shape != result.shape:
        raise ValueError(f"{op}: {name} of shape {values.shape}, expected {result.shape}")


def _check_broadcast(op: str, values: np.ndarray, reference: np.ndarray) -> None:
    if np.broadcast_shapes(values.shape, reference.shape) != reference.shape:
        raise ValueError(f"{op}: an input of shape {values.shape}, expected {reference.shape}")


def _check_float64(op: str, name: str, values: np.ndarray) -> None:
    if values.dtype != np.float64:
        raise TypeError(f"{op}: {name} of {values.dtype.name}, expected float64")
