"""CLAMP; other activation functions are functions in a TABLE."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter, ends


def clamp(c: Converter, node: Node) -> None:
    (input,), (output,) = node.inputs, node.outputs
    c.put(output, c.get(input), like=input)
    c.clamp(output, c.get(input), *ends(node))
