"""REDUCE_SUM: in int32, of numbers that lose low bits where their sum would need more."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale


def reduce_sum(c: Converter, node: Node) -> None:
    (input,), (output,) = node.inputs, node.outputs
    acc = c.sum(input)
    if acc is None:
        wide = c.integers(input, f"{output}/input", Scale())
        # A zero point may lie at the other end of the range.
        acc = Accumulator(wide, c.unit(input), bits=c.dtype(input).bits + 1)
    count = _summands(c, node)
    excess = acc.bits + (count - 1).bit_length() - 32
    if excess > 0:
        # The low bits have no room in a sum of int32.
        unit = Scale(factor=2.0**-excess)
        x = c.rescale(f"{output}/shifted", acc.tensor, unit, DType.INT32)
        acc = Accumulator(x, acc.scale.times(2.0**excess), bits=acc.bits - excess)
    summed = c.builder.op(
        "REDUCE_SUM",
        acc.tensor,
        name=f"{output}/acc",
        location=node.location,
        **node.attributes,
    )
    bits = acc.bits + (count - 1).bit_length()
    c.finish_sum(output, Accumulator(summed, acc.scale, bits=bits))


def _summands(c: Converter, node: Node) -> int:
    shape = c.graph.tensors[node.inputs[0]].shape or (1,)
    return max(shape[node.attributes["axis"]], 1)
