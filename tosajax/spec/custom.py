"""Table of the operators of "Custom Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.spec.model import Operator, results, rows, scalar, tensors

CUSTOM = Operator(
    "CUSTOM",
    chapter="custom",
    section="2.15.1",
    number=69,
    is_signless=True,
    is_function=False,
    arguments=(
        tensors("input_list", ""),
        scalar("operator_name", str),
        scalar("domain_name", str),
        scalar("implementation_attrs", str),
        results("output_list"),
    ),
    types=rows(
        "",
        ("PRO-INT or PRO-FP", "All", ""),
    ),
)

OPERATORS = (CUSTOM,)
