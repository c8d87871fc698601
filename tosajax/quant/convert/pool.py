"""Pooling: integers of the unit they had."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def avg_pool2d(c: Converter, node: Node) -> None:
    (input, *_), (output,) = node.inputs, node.outputs
    pooled = c.builder.op(
        "AVG_POOL2D",
        c.get(input),
        c.zero_point(input, f"{output}/input"),
        c.zero_point(input, f"{output}/output"),
        name=output,
        location=node.location,
        **{**node.attributes, "acc_type": DType.INT32},
    )
    c.put(output, pooled, like=input)


def max_pool2d(c: Converter, node: Node) -> None:
    c.move(node, node.inputs[0])
