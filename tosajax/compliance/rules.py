"""Which accuracy rule an operator has ("Precision Requirements" of each operator, TOSA 1.0.1)."""

from __future__ import annotations

from typing import NamedTuple

from tosajax.spec import OPERATORS, Form


class Rule(NamedTuple):
    """How the float results of an operator are judged; integers are always exact.

    Args:
      name: ABS_ERROR, DOT_PRODUCT, EXACT, MAX_RELATIVE, REDUCE_PRODUCT or ULP.
      ulps: the bound of ULP, in units in the last place.
      suite_bf16: the looser bound that Arm's conformance suite 1.0.2 has for bf16, if it has one.
      special: a table of the operator gives the results of zeros and infinities.
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
