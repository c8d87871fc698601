"""ARGMAX: the largest integer is the largest value."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def argmax(c: Converter, node: Node) -> None:
    (input,), (output,) = node.inputs, node.outputs
    index = c.builder.op(
        "ARGMAX", c.get(input), name=output, location=node.location, **node.attributes
    )
    c.put(output, index)
