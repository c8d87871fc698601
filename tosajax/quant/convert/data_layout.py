"""CONCAT and PAD: operands in one unit.

All operators of data layout but these keep their scale and need no conversion:
  `Operator.keeps_scale`.
"""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter

# The largest FP16: it stands for infinity in padding, as more does, and saturates.
_INFINITE = 65504.0


def concat(c: Converter, node: Node) -> None:
    (output,) = node.outputs
    operands = c.in_common_unit(output, node.inputs)
    joined = c.builder.op(
        "CONCAT", *operands, name=f"{output}/joined", location=node.location, **node.attributes
    )
    c.clamp(output, joined)


def pad(c: Converter, node: Node) -> None:
    (input, padding, pad_const), (output,) = node.inputs, node.outputs
    c.check_numbers(pad_const)
    value = c.factor(pad_const)
    if value is None:
        number = c.align(pad_const, c.owner(input), f"{output}/pad_const")
    else:
        number = c.number(f"{output}/pad_const", input, value)
    if value is None or 0 < abs(value) < _INFINITE:
        c.observe(output, for_=input)
    padded = c.builder.op(
        "PAD", c.get(input), c.get(padding), number, name=output, location=node.location
    )
    c.put(output, padded, like=input)
