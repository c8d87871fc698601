"""SELECT: both choices in one unit; a mask is an end of the range."""

from __future__ import annotations

import numpy as np

from tosajax.graph import Node, Tensor
from tosajax.quant.convert.converter import Converter
from tosajax.quant.graphs.nan_constants import nan_choice
from tosajax.quant.ranges.masks import mask_sign


def select(c: Converter, node: Node) -> None:
    (condition, *choices), (output,) = node.inputs, node.outputs
    if (truth := c.nans.truths.get(condition)) is not None and _is_whole(c, node, truth):
        chosen = choices[not truth]
        c.put(output, c.builder.op("IDENTITY", c.get(chosen), name=output), like=chosen)
        return
    if (nan := nan_choice(c.graph, node)) is not None:
        _with_nan(c, node, nan)
        return
    ends = [mask_sign(c.constant(name)) for name in choices]
    operands = _with_ends(c, node, ends) if any(ends) else c.in_common_unit(output, choices)
    chosen = c.builder.op(
        "SELECT",
        c.get(condition),
        *operands,
        name=f"{output}/selected",
        location=node.location,
    )
    c.clamp(output, chosen)


def _is_whole(c: Converter, node: Node, truth: bool) -> bool:
    """Whether the choice of floats that is always taken has the shape of the output."""
    chosen, output = node.inputs[1 if truth else 2], node.outputs[0]
    same = c.graph.tensors[chosen].shape == c.graph.tensors[output].shape
    return same and c.is_float(output) and nan_choice(c.graph, node) != (0 if truth else 1)


def _with_nan(c: Converter, node: Node, nan: int) -> None:
    """NaN as 0; or as less than all numbers, where ARGMAX looks for the largest of these."""
    (condition, *choices), (output,) = node.inputs, node.outputs
    operand, label = choices[1 - nan], f"{output}/nan"
    shape = c.graph.tensors[choices[nan]].shape or ()
    x = c.get(operand)
    if output not in c.nans.sought:
        number = c.number(label, operand, 0.0, shape)
    else:
        storage, least, largest = x.dtype.storage, x.dtype.minimum, x.dtype.maximum
        number = c.builder.const(np.full(shape, least, storage), x.dtype, name=label)
        if operand not in c.nans.sought:
            bounds = {"min_val": storage.type(least + 1), "max_val": storage.type(largest)}
            x = c.builder.op("CLAMP", x, name=f"{output}/numbers", **bounds)
    operands = [x, x]
    operands[nan] = number
    selected = c.builder.op(
        "SELECT", c.get(condition), *operands, name=output, location=node.location
    )
    c.put(output, selected, like=operand)


def _with_ends(c: Converter, node: Node, ends: list[int]) -> list[Tensor]:
    """The choices in the output's unit, whose range covers the elements that no mask replaces."""
    (output,) = node.outputs
    c.own(output)
    operands = []
    for number, (name, sign) in enumerate(zip(node.inputs[1:], ends, strict=True)):
        label = f"{output}/input{number}"
        if sign:
            shape = c.graph.tensors[name].shape or ()
            operands.append(c.range_end(label, output, upper=sign > 0, shape=shape))
        else:
            operands.append(c.align(name, output, label))
    return operands
