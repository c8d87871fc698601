"""IDENTITY: a copy of another type, or the tensor itself."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter


def identity(c: Converter, node: Node) -> None:
    """`with_narrow_copies` adds copies, in the type that the rules give them."""
    (input,), (output,) = node.inputs, node.outputs
    is_float = c.is_float(output)
    if not is_float or c.dtype(input) is c.act_specs.of(output).storage.dtype:
        if is_float and output not in c.graph.outputs:
            c.put(output, c.get(input), like=input)
        else:
            c.move(node, input)
    else:
        zero_point = c.zero_point(input, f"{output}/rescaled")
        c.finish(output, Accumulator(c.get(input), c.unit(input), zero_point))
