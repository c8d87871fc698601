"""Convolutions: sums of int32 (int48 of int16), in units of input times weight."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node
from tosajax.quant.convert.accumulators import Accumulator, bias_limit
from tosajax.quant.convert.channel_scales import factors_read
from tosajax.quant.convert.converter import Converter
from tosajax.quant.model.recipes import Scale
from tosajax.report import UnsupportedError


def conv2d(c: Converter, node: Node) -> None:
    channel_axes = spec.OPERATORS[node.op].channel_axes.outputs
    (input, weight, bias), (output,) = node.inputs[:3], node.outputs
    if c.constant(bias) is None:
        raise UnsupportedError(f"{node.title}: bias {bias!r} is not constant")
    x = c.get(input)
    if c.constant(weight) is None:
        w = c.get(weight)
    else:
        w = c.weight(weight, c.asked.weight(output, weight), channel_axes)
    if w.dtype is DType.INT16:
        raise UnsupportedError(
            f"{node.title}: weights {weight!r} of INT16, expected INT8: give it by a rule"
        )
    if (x.dtype, w.dtype) == (DType.INT16, DType.INT4):
        raise UnsupportedError(
            f"{node.title}: INT4 weights of INT16 activations are not a type of TOSA, expected "
            "INT8 weights, of 4 bits for instance"
        )
    acc_type = DType.INT48 if x.dtype is DType.INT16 else DType.INT32
    unit = Scale((c.owner(input), c.owner(weight)), of_channels=factors_read(c, node))
    norm = output if output in c.norms else None
    per_channel = c.scaled[c.owner(weight)].spec.per_channel or norm is not None
    channels = math.prod((w.shape or ())[axis] for axis in channel_axes) if per_channel else 1
    size = math.prod(w.shape or ()) // math.prod((w.shape or ())[axis] for axis in channel_axes)
    limit = bias_limit(acc_type, size * c.largest_offset(input) * c.largest_offset(weight))
    attributes: dict[str, Any] = {**node.attributes, "acc_type": acc_type}
    acc = c.builder.op(
        node.op,
        x,
        w,
        c.bias(f"{output}/bias", bias, unit, acc_type, limit=limit, channels=channels, norm=norm),
        c.zero_point(input, f"{output}/acc"),
        c.zero_point(weight, f"{output}/acc"),
        name=f"{output}/acc",
        dtype=acc_type,
        location=node.location,
        **attributes,
    )
    scale = dataclasses.replace(unit, norm=norm)
    c.finish(output, Accumulator(acc, scale), channels=channels)


conv3d = depthwise_conv2d = transpose_conv2d = conv2d
