"""IDENTITY: a copy, which may have another type."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def identity(c: Converter, node: Node) -> None:
    """A copy in the type that the rules give it, of a tensor that may be wider."""
    (input,), (output,) = node.inputs, node.outputs
    if not c.is_float(output) or not c.is_wider(input, output):
        c.move(node, input)
        return
    c.own(output)
    c.clamp(output, c.align(input, output, f"{output}/rescaled"))
