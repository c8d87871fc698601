"""Table of the operators of "Control Flow Operators" (TOSA 1.0.1)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.spec.model import MAX_RANK, Operator, Rank, graph, results, rows, tensor, tensors

_ANY = rows(
    "",
    ("EXT-CONTROLFLOW", "All", ""),
)

COND_IF = Operator(
    "COND_IF",
    chapter="control_flow",
    section="2.16.1",
    number=70,
    is_signless=True,
    is_function=False,
    arguments=(
        tensor("condition", DType.BOOL, "shape", Rank(0, MAX_RANK)),
        tensors("input_list", ""),
        graph("then_graph"),
        graph("else_graph"),
        results("output_list"),
    ),
    types=_ANY,
)

WHILE_LOOP = Operator(
    "WHILE_LOOP",
    chapter="control_flow",
    section="2.16.2",
    number=71,
    is_signless=True,
    is_function=False,
    arguments=(
        tensors("input_list", ""),
        graph("cond_graph"),
        graph("body_graph"),
        results("output_list"),
    ),
    types=_ANY,
)

OPERATORS = (
    COND_IF,
    WHILE_LOOP,
)
