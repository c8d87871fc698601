"""Known differences: why tosajax and Arm's model may disagree on a graph.

Each rule is as narrow as its difference; a difference without a rule is a defect of one of the two.
Sections are those of the specification, TOSA 1.0.1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from reference.judge import Difference, Kind


class Rule(NamedTuple):
    """Explains the differences of a kind whose text starts with a match of the pattern."""

    kind: Kind
    pattern: str
    reason: str


_RULES = (
    # "Operator Graphs": a graph is acyclic, and each tensor has one origin.
    Rule(
        Kind.ONLY_TOSAJAX,
        r"graph\.duplicate: ",
        "Arm's model does not mind that a tensor has several origins",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"graph\.cycle: ",
        "Arm's model runs a node that reads its own result",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"graph\.(undefined: no node produces|constant:) tensor '(const|shape)_",
        "Arm's model takes the data of a tensor that no CONST writes for a constant",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"graph\.shape: graph (in|out)put ",
        "Arm's model takes and gives shapes as tensors; a graph's ends are tensors",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"tensor\.shape: tensor 'in_\d+' has shape \((\d+, )*0\b",
        "Arm's model does not look at the shape of an input that nothing reads",
    ),
    # The tables of arguments give these operands rank 1, and most of them one element.
    Rule(
        Kind.ONLY_TOSAJAX,
        r"\w+\.(shape|rank): (\w+_zp|shift|multiplier|table) '.*expected (\[1\]|rank 1)$",
        "Arm's model reads the elements of an operand that is a list, and not its shape",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"table\.shape: output ",
        "Arm's model does not compare the shapes of TABLE's input and output",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"scatter\.shape: values_out ",
        "Arm's model does not compare the shapes of SCATTER's values_in and values_out",
    ),
    # Type rows that 1.0 lacks; Arm's model does not check the version of a file.
    Rule(
        Kind.ONLY_TOSAJAX,
        r"cast\.types: types are input (FP32, output BOOL|BOOL, output FP32),",
        "Arm's model casts between BOOL and FP32, as TOSA 1.1 does",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"\w*conv\dd\.types: types are input (FP8\w+), weight \1, .* acc_type FP32,",
        "Arm's model accumulates FP8 in FP32, which the tables of 1.0 do not list",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"mul\.types: .*shift (?!INT8)",
        "Arm's model does not look at the type of MUL's shift where there is nothing to shift",
    ),
    Rule(
        Kind.ONLY_TOSAJAX,
        r"reduce_\w+\.arguments: output has shape ",
        "Arm's model checks a reduction's output along the axis only",
    ),
    # EXT-DYNAMIC lets a graph compute zero points, whose values are flags here, and no error.
    Rule(
        Kind.ONLY_ARM,
        r"with a run-time zero point, ERROR: ERROR_IF\(\) fails.*[Zz]ero ?point (must be |not 0)",
        "Arm's model rejects a zero point by its number when the graph runs",
    ),
    # The specification leaves the order of a graph's operators open.
    Rule(
        Kind.ONLY_ARM,
        r"CRASH: .*unique_ptr.*get\(\) != pointer",
        "Arm's model crashes on operators that are listed before their operands",
    ),
    Rule(
        Kind.ONLY_ARM,
        r"CRASH: no outputs: (WARNING.*\n)*.*has no producers or consumers",
        "Arm's model does not run a graph that declares a tensor which nothing uses",
    ),
)


def reason(difference: Difference) -> str | None:
    """Why the two disagree; None if unknown."""
    for rule in _RULES:
        if rule.kind is difference.kind and re.match(rule.pattern, difference.why, re.DOTALL):
            return rule.reason
    return None
