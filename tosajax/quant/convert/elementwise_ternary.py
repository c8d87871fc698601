"""SELECT: both choices in one unit; a mask is an end of the range."""

from __future__ import annotations

from tosajax.graph import Node, Tensor
from tosajax.quant.convert.converter import Converter
from tosajax.quant.masks import end


def select(c: Converter, node: Node) -> None:
    (condition, *choices), (output,) = node.inputs, node.outputs
    ends = [end(c.constant(name)) for name in choices]
    operands = _with_ends(c, node, ends) if any(ends) else c.merged(output, choices)
    chosen = c.builder.op(
        "SELECT",
        c.get(condition),
        *operands,
        name=f"{output}/selected",
        location=node.location,
    )
    c.clamp(output, chosen)


def _with_ends(c: Converter, node: Node, ends: list[int]) -> list[Tensor]:
    """The choices in the unit of the output, which has a range of its own: of what is left."""
    (output,) = node.outputs
    c.own(output)
    operands = []
    for number, (name, sign) in enumerate(zip(node.inputs[1:], ends, strict=True)):
        label = f"{output}/input{number}"
        if sign:
            shape = c.graph.tensors[name].shape or ()
            operands.append(c.end(label, output, upper=sign > 0, shape=shape))
        else:
            operands.append(c.align(name, output, label))
    return operands
