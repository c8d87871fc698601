"""SELECT: both choices in one unit."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def select(c: Converter, node: Node) -> None:
    (condition, *choices), (output,) = node.inputs, node.outputs
    operands = c.merged(output, choices)
    chosen = c.builder.op(
        "SELECT",
        c.get(condition),
        *operands,
        name=f"{output}/selected",
        location=node.location,
    )
    c.clamp(output, chosen)
