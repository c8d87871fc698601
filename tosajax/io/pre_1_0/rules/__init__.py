"""The rules that upgrade operators, by chapter of the specification.

A rule is found by name: `rules.conv.conv2d` upgrades CONV2D. Operators without a rule are kept
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from tosajax import spec
from tosajax.io.pre_1_0.rules import (
    activation,
    control_flow,
    conv,
    custom,
    data_layout,
    data_nodes,
    elementwise_binary,
    elementwise_unary,
    image,
    indices,
    pool,
    products,
    reduction,
    shape,
    type_conversion,
    variable,
)
from tosajax.io.pre_1_0.step import Step
from tosajax.report import UnsupportedError

Rule = Callable[[Step], None]

_CHAPTERS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        activation,
        control_flow,
        conv,
        custom,
        data_layout,
        data_nodes,
        elementwise_binary,
        elementwise_unary,
        image,
        indices,
        pool,
        products,
        reduction,
        shape,
        type_conversion,
        variable,
    )
}
# The chapter of an operator that 1.0 does not have; all others of them compute shapes.
_REMOVED = {"FULLY_CONNECTED": "conv"}


def rule_of(step: Step) -> Rule:
    """The rule of a node's operator.

    Raises:
      UnsupportedError: the node computes a shape and cannot be folded.
    """
    op = step.node.op
    if step.node.outputs and step.old(step.output).dtype == "SHAPE":
        rule = getattr(shape, shape.rule_name(op), None)
        if rule is None:
            raise UnsupportedError(f"output {step.output!r} is a shape, which is not folded here")
        return rule
    chapter = spec.OPERATORS[op].chapter if op in spec.OPERATORS else _REMOVED.get(op, "shape")
    return getattr(_CHAPTERS.get(chapter), op.lower(), Step.keep)
