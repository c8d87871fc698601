"""Table of the operators of "Shape Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.spec.model import Argument, Form, Kind, Operator, rows, values

CONST_SHAPE = Operator(
    "CONST_SHAPE",
    chapter="shape",
    section="2.18.1",
    number=75,
    arguments=(
        values("values", DType.SHAPE, "", None),
        Argument("output", Kind.OUTPUT, Form.SHAPE, DType.SHAPE, constant_in=("PRO-INT", "PRO-FP")),
    ),
    types=rows(
        "",
        ("PRO-INT or PRO-FP", "shape", ""),
    ),
)

OPERATORS = (CONST_SHAPE,)
