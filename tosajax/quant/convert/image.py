"""RESIZE: nearest moves integers; bilinear gives sums of them in int32 (int48)."""

from __future__ import annotations

from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale
from tosajax.spec.enums import ResizeMode


def resize(c: Converter, node: Node) -> None:
    (input, scale, offset, border), (output,) = node.inputs, node.outputs
    if node.attributes["mode"] is ResizeMode.NEAREST_NEIGHBOR:
        c.move(node, input)
        return
    x = c.get(input)
    acc_type = DType.INT48 if x.dtype is DType.INT16 else DType.INT32
    acc = c.builder.op(
        "RESIZE",
        x,
        *map(c.get, (scale, offset, border)),
        name=f"{output}/acc",
        dtype=acc_type,
        location=node.location,
        **node.attributes,
    )
    values = c.constant(scale)
    assert values is not None
    scale_y, _, scale_x, _ = values.tolist()
    # The weights of each output add up to the product of the scales, so that the zero point of
    # the input is, rescaled, that of the output.
    factor = 1 / (scale_y * scale_x)
    resized = c.rescale(f"{output}/rescaled", acc, Scale(factor=factor), x.dtype)
    c.put(output, resized, like=input)
    c.clamp(output, resized)
