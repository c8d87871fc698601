"""REDUCE_SUM: in int32."""

from __future__ import annotations

import math

from tosajax.graph import Node, Tensor
from tosajax.quant.convert.converter import Accumulator, Converter
from tosajax.quant.model.recipes import Scale
from tosajax.report import UnsupportedError


def reduce_sum(c: Converter, node: Node) -> None:
    (input,), (output,) = node.inputs, node.outputs
    acc = c.sum(input)
    if acc is None:
        wide = c.integers(input, f"{output}/input", Scale())
        # A zero point may lie at the other end of the range.
        acc = Accumulator(wide, c.unit(input), bits=c.dtype(input).bits + 1)
    summed = c.builder.op(
        "REDUCE_SUM",
        acc.tensor,
        name=f"{output}/acc",
        location=node.location,
        **node.attributes,
    )
    bits = acc.bits + (_element_count(acc.tensor) // _element_count(summed) - 1).bit_length()
    if bits > 32:
        raise UnsupportedError(f"{node.title}: its sums may need {bits} bits, expected at most 32")
    c.finish_sum(output, Accumulator(summed, acc.scale, bits=bits))


def _element_count(x: Tensor) -> int:
    return max(math.prod(x.shape or ()), 1)
