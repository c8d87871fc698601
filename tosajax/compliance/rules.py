"""The accuracy rule of each operator: `accuracy` in the operator table."""

from __future__ import annotations

from tosajax.spec import EXACT, OPERATORS, Accuracy, Form

Rule = Accuracy

# Operators not listed are exact.
RULES = {name: op.accuracy for name, op in OPERATORS.items() if op.accuracy != EXACT}
DOT_PRODUCTS = tuple(op for op, rule in RULES.items() if rule.name == "DOT_PRODUCT")


def rule_of(op: str) -> Rule:
    """The accuracy rule for the results of an operator.

    Raises:
      ValueError: the operator is unknown, or has no rule because its outputs are tensor lists.
    """
    if op not in OPERATORS:
        raise ValueError(f"{op!r} is not an operator of TOSA 1.0")
    if all(output.form is Form.TENSOR_LIST for output in OPERATORS[op].outputs):
        raise ValueError(f"{op} has no result with an accuracy rule of its own")
    return OPERATORS[op].accuracy
