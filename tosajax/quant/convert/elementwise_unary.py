"""Elementwise operators of one tensor that are not a function in a TABLE."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale


def negate(c: Converter, node: Node) -> None:
    (input, *_), (output,) = node.inputs, node.outputs
    wide = c.integers(input, f"{output}/input", Scale())
    zeros = [c.zero(f"{output}/acc_zp{i}", DType.INT32) for i in (1, 2)]
    acc = c.builder.op("NEGATE", wide, *zeros, name=f"{output}/acc", location=node.location)
    c.finish(output, Accumulator(acc, c.unit(input)))
