"""Elementwise operators of two tensors, in int32."""

from __future__ import annotations

import dataclasses

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale


def add(c: Converter, node: Node) -> None:
    (output,) = node.outputs
    operands, unit = c.common(node.inputs, output)
    acc = c.builder.op(
        node.op, *operands, name=f"{output}/acc", location=node.location, **node.attributes
    )
    c.finish(output, Accumulator(acc, unit))


sub = maximum = minimum = add


def mul(c: Converter, node: Node) -> None:
    (x, y), (output,) = node.inputs[:2], node.outputs
    for tensor, other in ((x, y), (y, x)):
        factor = c.factor(other)
        if factor is not None and factor > 0:
            _times(c, node, tensor, factor)
            return
    # A square has one operand.
    labels = {name: f"{output}/input{i}" for i, name in reversed([*enumerate((x, y))])}
    wide = {name: c.integers(name, label, Scale()) for name, label in labels.items()}
    shift = c.zero(f"{output}/shift_of_product", DType.INT8)
    acc = c.builder.op("MUL", wide[x], wide[y], shift, name=f"{output}/acc", location=node.location)
    bits = (c.largest_offset(x) * c.largest_offset(y)).bit_length() + 1
    c.finish_sum(output, Accumulator(acc, Scale((c.owner(x), c.owner(y))), bits=bits))


def _times(c: Converter, node: Node, name: str, factor: float) -> None:
    """A change of unit."""
    (output,) = node.outputs
    acc = c.sum(name)
    if acc is None:
        zero_point = c.zero_point(name, f"{output}/input")
        c.finish(output, Accumulator(c.get(name), c.unit(name).times(factor), zero_point))
    else:
        c.finish_sum(output, dataclasses.replace(acc, scale=acc.scale.times(factor)))
