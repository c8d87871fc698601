"""Which accuracy rule an operator has: `accuracy` in the operator table."""

from __future__ import annotations

from tosajax.spec import EXACT, OPERATORS, Accuracy, Form

Rule = Accuracy

# Operators that are not here are exact.
RULES = {name: op.accuracy for name, op in OPERATORS.items() if op.accuracy != EXACT}
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
    return OPERATORS[op].accuracy
