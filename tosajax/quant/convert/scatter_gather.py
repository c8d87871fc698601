"""SCATTER: operands in one unit."""

from __future__ import annotations

from tosajax.graph import Node
from tosajax.quant.convert.converter import Converter


def scatter(c: Converter, node: Node) -> None:
    (values_in, indices, input), (output,) = node.inputs, node.outputs
    into, updates = c.in_common_unit(output, (values_in, input))
    scattered = c.builder.op(
        "SCATTER",
        into,
        c.get(indices),
        updates,
        name=f"{output}/scattered",
        location=node.location,
    )
    c.clamp(output, scattered)
