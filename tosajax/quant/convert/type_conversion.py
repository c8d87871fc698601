"""CAST between floats and integers is a RESCALE; casts that make a function are in a TABLE."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale


def cast(c: Converter, node: Node) -> None:
    """Floats are rounded to the nearest integers: ties up, where CAST rounds them to even."""
    (input,), (output,) = node.inputs, node.outputs
    x = c.get(input)
    if c.is_float(output):
        c.finish(output, Accumulator(x, Scale()))
        return
    dtype = c.graph.tensors[output].dtype
    c.put(output, c.rescale(output, x, c.unit(input), dtype, input_zp=c.zero_point(input, output)))
