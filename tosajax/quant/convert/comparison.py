"""Comparisons: of int32 in one unit."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def equal(c: Converter, node: Node) -> None:
    (output,) = node.outputs
    operands, _ = c.common(node.inputs, output)
    c.put(output, c.builder.op(node.op, *operands, name=output, location=node.location))


greater = greater_equal = equal
