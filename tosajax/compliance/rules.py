"""Which accuracy rule an operator has ("Precision Requirements" of each operator, TOSA 1.0.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.spec import OPERATORS, Form


class Rule(NamedTuple):
    """How the float results of an operator are judged; integers are always exact.

    `ulps` belongs to the rule ULP, and `suite_bf16` is what Arm's conformance suite 1.0.2 allows
    bf16 there, more than the text. `special` says that a table of the operator gives the results
    of zeros and infinities.
    """

    name: str
    ulps: float = 0.0
    suite_bf16: float | None = None
    special: bool = False


EXACT = Rule("EXACT")

# Operators that are not here are exact.
RULES = {
    "ADD": Rule("ULP", 0.5, suite_bf16=1.0),
    "AVG_POOL2D": Rule("DOT_PRODUCT"),
    "CAST": Rule("ULP", 0.5),
    "CEIL": Rule("ULP", 0.5),
    "CONV2D": Rule("DOT_PRODUCT"),
    "CONV3D": Rule("DOT_PRODUCT"),
    "COS": Rule("ABS_ERROR", special=True),
    "DEPTHWISE_CONV2D": Rule("DOT_PRODUCT"),
    "ERF": Rule("ULP", 5.0),
    "EXP": Rule("ABS_ERROR", special=True),
    "FFT2D": Rule("DOT_PRODUCT"),
    "FLOOR": Rule("ULP", 0.5),
    "LOG": Rule("ABS_ERROR", special=True),
    "MATMUL": Rule("DOT_PRODUCT"),
    "MUL": Rule("ULP", 0.5, suite_bf16=1.0),
    "POW": Rule("ABS_ERROR"),
    "RECIPROCAL": Rule("ULP", 1.0),
    "REDUCE_PRODUCT": Rule("REDUCE_PRODUCT"),
    "REDUCE_SUM": Rule("DOT_PRODUCT"),
    "RESIZE": Rule("MAX_RELATIVE"),
    "RFFT2D": Rule("DOT_PRODUCT"),
    "RSQRT": Rule("ULP", 2.0),
    "SIGMOID": Rule("ABS_ERROR", special=True),
    "SIN": Rule("ABS_ERROR", special=True),
    "SUB": Rule("ULP", 0.5, suite_bf16=1.0),
    "TANH": Rule("ABS_ERROR", special=True),
    "TRANSPOSE_CONV2D": Rule("DOT_PRODUCT"),
}
DOT_PRODUCTS = tuple(op for op, rule in RULES.items() if rule.name == "DOT_PRODUCT")


def rule_of(op: str) -> Rule:
    """The rule for float results of an operator.

    Raises:
      ValueError: there is no such operator, or it has no rule of its own.
    """
    if op not in OPERATORS:
        raise ValueError(f"{op!r} is not an operator of TOSA 1.0")
    if all(output.form is Form.TENSOR_LIST for output in OPERATORS[op].outputs):
        raise ValueError(f"{op} has no result with an accuracy rule of its own")
    return RULES.get(op, EXACT)


def check_result_type(op: str, found: np.dtype) -> None:
    """Refuses a result of a type that no row of the operator gives its outputs.

    Raises:
      TypeError: naming the operator, the type found and those wanted.
    """
    types = {d for output in OPERATORS[op].outputs for d in _choices(op, output.dtype)}
    wanted = {dtype.storage for dtype in types}
    if op == "RESCALE":  # Values that are read as unsigned may be given so.
        wanted |= {np.dtype(np.uint8), np.dtype(np.uint16)}
    if found not in wanted:
        names = ", ".join(sorted(w.name for w in wanted))
        raise TypeError(f"{op}: result of {found.name}, expected {names}")


def float_type(dtype: np.dtype) -> DType:
    """The element type that a NumPy float type holds.

    Raises:
      TypeError: it holds none.
    """
    for candidate in DType:
        if candidate.is_float and candidate.storage == dtype:
            return candidate
    raise TypeError(f"{dtype.name} is not a float type of TOSA")


def the_type(op: str, variable: str, **known: DType | None) -> DType:
    """The one type that an operator's rows give a type variable, where others are known.

    Args:
      op: name of the operator.
      variable: "out_t" or "acc_t"; with a single type for in and out, "out_t" is "in_out_t", and
        without accumulator "acc_t" is the output's type.
      **known: types of other variables; None says nothing.

    Raises:
      TypeError: there is no such row.
      ValueError: the rows leave a choice.
    """
    rows = [_variables(row.types) for row in OPERATORS[op].types]
    given = {name: dtype for name, dtype in known.items() if dtype is not None}
    fitting = {row[variable] for row in rows if given.items() <= row.items()}
    shown = ", ".join(f"{name} {dtype.name}" for name, dtype in given.items())
    if not fitting:
        raise TypeError(f"{op} has no row of types with {shown}")
    if len(fitting) > 1:
        names = ", ".join(sorted(dtype.name for dtype in fitting))
        raise ValueError(f"{op} of {shown}: {variable} may be {names}, say which")
    return fitting.pop()


def _variables(types: dict[str, DType | int]) -> dict[str, DType]:
    """A row of types by the names in_t, out_t and acc_t."""
    row = {name: dtype for name, dtype in types.items() if isinstance(dtype, DType)}
    both = row.get("in_out_t")
    found = {"in_t": row.get("in_t", both), "out_t": row.get("out_t", both)}
    found["acc_t"] = row.get("acc_t", found["out_t"])
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _choices(op: str, dtype: object) -> set[DType]:
    """The types of an argument: a fixed one, or those of its variable in the rows."""
    if isinstance(dtype, DType):
        return {dtype}
    found = (row.types.get(str(dtype)) for row in OPERATORS[op].types)
    return {choice for choice in found if isinstance(choice, DType)}
