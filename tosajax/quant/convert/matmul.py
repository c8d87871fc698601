"""MATMUL: sums of int32 (int48 of int16), in units of a times b."""

from __future__ import annotations

import dataclasses

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.quant.convert.converter import Accumulator, Converter
from tosajax.quant.recipes import Scale
from tosajax.report import UnsupportedError


def matmul(c: Converter, node: Node) -> None:
    (a, b), (output,) = node.inputs[:2], node.outputs
    left = c.get(a)
    right = c.get(b) if c.constant(b) is None else _weight(c, output, b, left.dtype)
    if left.dtype is not right.dtype:
        raise UnsupportedError(
            f"{node.title}: {left.dtype.name} by {right.dtype.name}, expected one type: "
            "give both the same by rules"
        )
    acc_type = DType.INT48 if left.dtype is DType.INT16 else DType.INT32
    acc = c.builder.op(
        "MATMUL",
        left,
        right,
        c.zero_point(a, f"{output}/acc"),
        c.zero_point(b, f"{output}/acc"),
        name=f"{output}/acc",
        dtype=acc_type,
        location=node.location,
    )
    unit = Scale((c.owner(a), c.owner(b)))
    assert acc.shape is not None
    per_channel = b in c.channel_axes
    c.finish(output, Accumulator(acc, unit), channels=acc.shape[-1] if per_channel else 1)


def _weight(c: Converter, output: str, name: str, dtype: DType) -> Tensor:
    """A constant of the type of the other operand; INT8 also where INT4 was asked for."""
    spec = c.weight_spec(output, name)
    return c.weight(name, dataclasses.replace(spec, dtype=dtype), (2,))
