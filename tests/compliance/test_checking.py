"""`check` of each operator, of integers, of cases in the specification, and of wrong use."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from oracle.float_bounds import FLOATS

from tosajax import DType, compliance
from tosajax.spec import OPERATORS

WITHOUT_RULE = {"COND_IF", "CUSTOM", "VARIABLE", "VARIABLE_WRITE", "WHILE_LOOP"}
FLOAT_ULPS = {
    **dict.fromkeys(("ADD", "CAST", "CEIL", "FLOOR", "MUL", "SUB"), 0.5),
    "RECIPROCAL": 1.0,
    "RSQRT": 2.0,
    "ERF": 5.0,
}


def _one(value, dtype="FP32") -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([value]).astype(FLOATS[dtype])


def _check(op, reference, result, dtype="FP32", **more) -> compliance.Outcome:
    return compliance.check(op, np.array([float(reference)]), _one(result, dtype), **more)


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_has_a_rule_or_none(op: str):
    if op in WITHOUT_RULE:
        with pytest.raises(ValueError, match=op):
            compliance.rule_of(op)
    else:
        rule = compliance.rule_of(op)
        assert rule.ulps == FLOAT_ULPS.get(op, 0.0)
        assert (rule.name == "ULP") == (op in FLOAT_ULPS)


def test_rules_are_those_of_operators_with_float_results():
    for op in compliance.RULES:
        types = {d for row in OPERATORS[op].types for d in row.types.values()}
        assert any(isinstance(d, DType) and d.is_float for d in types)


def test_an_outcome_names_the_worst_element():
    reference = np.array([[1.0, 2.0], [3.0, 4.0]])
    result = np.array([[1.0, 2.0], [3.5, 4.25]], np.float32)
    found = compliance.check("ADD", reference, result)
    assert not found
    assert found == compliance.Outcome(
        passed=False,
        rule="ULP",
        index=(1, 0),
        found=3.5,
        wanted=3.0,
        bound=2.0**-23,
        message="ADD: element [1, 0] is 3.5, expected 3.0 within 1.1920929e-07, "
        "and 2 of 4 elements are wrong [ULP]",
    )


def test_an_outcome_that_passed_tells_the_nearest_miss():
    reference = np.array([1.0, 2.0 + 2.0**-24, 4.0])
    found = compliance.check("MUL", reference, reference.astype(np.float32))
    assert found
    assert found.index == (1,)
    assert found.bound == 2.0**-23


def test_a_wrong_nan_is_worse_than_any_number():
    result = np.array([9.0, np.nan, 1.0], np.float32)
    found = compliance.check("ADD", np.ones(3), result)
    assert (found.index, found.passed) == ((1,), False)


def test_a_scalar():
    found = compliance.check("ADD", np.array(1.0), np.array(1.0, np.float16))
    assert (found.passed, found.index) == (True, ())


class TestIntegers:
    @pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.bool_])
    def test_are_exact(self, dtype):
        op = {np.int64: "MATMUL", np.bool_: "EQUAL"}.get(dtype, "NEGATE")
        high = np.iinfo(dtype).max if dtype is not np.bool_ else True
        reference = np.array([0, 1, high], dtype)
        assert compliance.check(op, reference, reference)
        for i in range(3):
            result = reference.copy()
            result[i] = not result[i] if dtype is np.bool_ else result[i] ^ 1
            found = compliance.check(op, reference, result)
            assert not found
            assert (found.rule, found.index) == ("EXACT", (i,))
            assert (found.found, found.wanted) == (result[i], reference[i])

    def test_agree_with_the_verifier(self, arm):
        for name, op in {"INT8": "NEGATE", "INT32": "CONV2D", "INT48": "CONV2D"}.items():
            reference = np.arange(-3, 4).astype(DType[name].storage)
            for change in (0, 1):
                result = reference + np.array([0, 0, 0, 0, 0, 0, change], reference.dtype)
                wanted = arm("verify", name, {"mode": "EXACT"}, reference, None, result)
                assert wanted == bool(compliance.check(op, reference, result)) == (change == 0)

    @pytest.mark.parametrize(
        ("name", "unsigned"),
        [("INT8", False), ("INT8", True), ("INT16", False), ("INT16", True), ("INT32", False)],
    )
    def test_inexact_rescale(self, arm, name: str, unsigned: bool):
        kind = np.dtype(f"u{DType[name].storage.itemsize}") if unsigned else DType[name].storage
        scaled = np.array([-1e9, -140.0, -0.5, 0.25, 1.5, 99.9999999, 1234567.5, 1e12])
        zero_point = 0 if name == "INT32" else 3
        low, high = compliance.rescale_limits(scaled, zero_point, DType[name], unsigned=unsigned)
        assert low.dtype == high.dtype == kind
        info = {"mode": "RESCALE_INEXACT", "rescale_inexact_info": {"unsigned_data": unsigned}}
        seen = set()
        for step in (-1, 0, 1):
            for limit in (low, high):
                wide = np.clip(
                    limit.astype(np.int64) + step, np.iinfo(kind).min, np.iinfo(kind).max
                )
                for i, value in enumerate(wide.astype(kind)):
                    one = slice(i, i + 1)
                    result = np.array([value], kind)
                    found = compliance.check("RESCALE", low[one], result, bounds=high[one])
                    wanted = arm("verify", name, info, low[one], high[one], result)
                    assert wanted == bool(found)
                    seen.add(wanted)
        assert seen == {True, False}

    def test_limits_of_inexact_rescale(self):
        """By hand: 2.5 may be 2 or 3, 2 only 2, and beyond 2**22 a float32 error shows."""
        scaled = np.array([2.5, 2.0, -0.25, 2.0**23 + 0.5, -500.0, 500.0])
        low, high = compliance.rescale_limits(scaled, 0, DType.INT32)
        assert low.tolist() == [2, 2, 0, 2**23 - 2, -500, 500]
        assert high.tolist() == [3, 2, 0, 2**23 + 3, -500, 500]
        low, high = compliance.rescale_limits(scaled, 1, DType.INT8)
        assert low.tolist() == [3, 3, 1, 127, -128, 127]
        assert high.tolist() == [4, 3, 1, 127, -128, 127]
        low, high = compliance.rescale_limits(scaled, 1, DType.INT8, unsigned=True)
        assert low.tolist() == [3, 3, 1, 255, 0, 255]


class TestWhereTheTextIsStricterThanTheSuite:
    @pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
    def test_bf16(self, op: str):
        half = 1 + 2.0**-8
        assert _check(op, half, 1.0, "BF16")
        assert _check(op, half, 1 + 2.0**-7, "BF16")
        assert not _check(op, half + 2.0**-30, 1.0, "BF16")
        assert _check(op, half + 2.0**-30, 1.0, "BF16", as_suite=True)
        assert not _check(op, half + 2.0**-30, 1.0, "FP16", as_suite=True)

    def test_cast_rounds_towards_zero_from_floats_only(self):
        below, above = 1 + 2.0**-10 - 2.0**-20, 1 + 2.0**-20
        assert _check("CAST", below, 1.0, "FP16", in_dtype=DType.FP32)
        assert not _check("CAST", above, 1 + 2.0**-10, "FP16", in_dtype=DType.FP32)
        assert not _check("CAST", below, 1.0, "FP16", in_dtype=DType.INT32)
        assert _check("CAST", below, 1.0, "FP16", in_dtype=DType.INT32, as_suite=True)
        with pytest.raises(ValueError, match="CAST: no in_dtype"):
            _check("CAST", 1.0, 1.0, "FP16")

    @pytest.mark.parametrize(
        ("op", "x", "wanted"),
        [
            *[("EXP", 0.0, 1.0), ("EXP", np.inf, np.inf), ("EXP", -np.inf, 0.0)],
            *[("COS", 0.0, 1.0), ("SIN", 0.0, 0.0), ("LOG", 0.0, -np.inf)],
            *[("LOG", np.inf, np.inf), ("TANH", 0.0, 0.0), ("TANH", -np.inf, -1.0)],
            *[("SIGMOID", 0.0, 0.5), ("SIGMOID", np.inf, 1.0), ("EXP", 800.0, np.inf)],
        ],
    )
    @pytest.mark.parametrize("dtype", ["FP32", "BF16"])
    def test_results_that_a_table_gives(self, op: str, x: float, wanted: float, dtype: str):
        inputs = (_one(x, dtype),)
        assert _check(op, wanted, wanted, dtype, inputs=inputs)
        near = np.nextafter(_one(wanted, dtype), _one(0.25, dtype)).item()
        assert not _check(op, wanted, near, dtype, inputs=inputs)
        if not (op == "EXP" and x == -np.inf):
            assert _check(op, wanted, near, dtype, inputs=inputs, as_suite=True)


def test_subnormal_results_may_be_zero_but_not_in_fp8():
    for dtype, result in (("FP32", True), ("FP16", True), ("BF16", True), ("FP8E5M2", False)):
        tiny = float(np.finfo(np.float32).smallest_normal if dtype in ("FP32", "BF16") else 2**-14)
        assert bool(_check("IDENTITY", tiny / 2, 0.0, dtype)) == result
        assert bool(_check("IDENTITY", -tiny / 2, 0.0, dtype)) == result
        assert not _check("IDENTITY", tiny, 0.0, dtype)


def test_flush_keeps_signs_and_normal_values():
    tiny = np.float32(2.0**-126)
    values = np.array([tiny, -tiny, tiny / 2, -tiny / 2, 0.0, -0.0, np.inf, np.nan], np.float32)
    found = compliance.flush(values)
    assert found.dtype == np.float32
    wanted = np.array([tiny, -tiny, 0, 0, 0, 0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(found, wanted)
    assert np.signbit(found).tolist()[:7] == [False, True, False, True, False, True, False]


WRONG = {
    "unknown": (("NOPE", np.ones(1), _one(1)), {}, ValueError, "'NOPE' is not an operator"),
    "inside": (("COND_IF", np.ones(1), _one(1)), {}, ValueError, "COND_IF has no result"),
    "shape": (
        ("ADD", np.ones(2), _one(1)),
        {},
        ValueError,
        "ADD: reference of shape (2,), expected (1,)",
    ),
    "bounds shape": (
        ("MATMUL", np.ones(1), _one(1)),
        {"bounds": np.ones(2)},
        ValueError,
        "MATMUL: bounds of shape (2,), expected (1,)",
    ),
    "empty": (
        ("ADD", np.ones(0), np.ones(0, np.float32)),
        {},
        ValueError,
        "no elements",
    ),
    "result type": (
        ("EXP", np.ones(1), np.ones(1)),
        {},
        TypeError,
        "EXP: result of float64, expected bfloat16, float16, float32",
    ),
    "reference type": (
        ("ADD", np.ones(1, np.float32), _one(1)),
        {},
        TypeError,
        "ADD: reference of float32, expected float64",
    ),
    "integer reference": (
        ("ADD", np.ones(1), np.ones(1, np.int32)),
        {},
        TypeError,
        "ADD: reference of float64, expected integers",
    ),
    "integer bounds": (
        ("ADD", np.ones(1, int), np.ones(1, np.int32)),
        {"bounds": np.ones(1, int)},
        ValueError,
        "ADD: integer results are exact",
    ),
    "bounds": (("CONV2D", np.ones(1), _one(1)), {}, ValueError, "CONV2D: no bounds, expected"),
    "bounds type": (
        ("CONV2D", np.ones(1), _one(1)),
        {"bounds": _one(1)},
        TypeError,
        "CONV2D: bounds of float32, expected float64",
    ),
    "terms": (
        ("CONV2D", np.ones(1), _one(1)),
        {"bounds": np.ones(1)},
        ValueError,
        "CONV2D: no terms, expected the length",
    ),
    "length": (("REDUCE_PRODUCT", np.ones(1), _one(1)), {}, ValueError, "REDUCE_PRODUCT: no terms"),
    "accumulator": (
        ("CONV2D", np.ones(1), _one(1, "FP16")),
        {"bounds": np.ones(1), "terms": 1, "in_dtype": DType.FP16},
        ValueError,
        "CONV2D of in_t FP16, out_t FP16: acc_t may be FP16, FP32, say which",
    ),
    "no such row": (
        ("MATMUL", np.ones(1), _one(1, "FP16")),
        {"bounds": np.ones(1), "terms": 1, "in_dtype": DType.BF16},
        TypeError,
        "MATMUL has no row of types with in_t BF16, out_t FP16",
    ),
    "inputs": (
        ("EXP", np.ones(1), _one(1)),
        {},
        ValueError,
        "EXP: 0 inputs, the bound",
    ),
    "input shape": (
        ("EXP", np.ones(1), _one(1)),
        {"inputs": (np.ones(3),)},
        ValueError,
        "EXP: an input of shape (3,), expected (1,)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(case: str):
    arguments, more, error, message = WRONG[case]
    with pytest.raises(error, match=re.escape(message)):
        compliance.check(*arguments, **more)


def test_examples_of_the_package_run():
    text = Path(compliance.__file__).read_text().split('"""')[1]
    lines = [line[4:] if line[:4] == "    " else line for line in text.splitlines()]
    code = [line for line, raw in zip(lines, text.splitlines(), strict=True) if raw[:4] == "    "]
    scope: dict[str, object] = {}
    exec("\n".join(code), scope)
    assert isinstance(scope["outcome"], compliance.Outcome)
    assert scope["test_set"] == 5
