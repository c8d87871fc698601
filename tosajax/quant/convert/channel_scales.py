"""Activations with a scale for each channel: those that only depthwise convolutions read.

Each channel of the sum has one channel of the input and a scale of its own anyway, so that a finer
scale of a small channel costs nothing: the RESCALE before divides by it, the one behind multiplies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tosajax.dtypes import DType
from tosajax.graph import Node

if TYPE_CHECKING:
    from tosajax.quant.convert.converter import Converter


def channel_count(c: Converter, name: str, low: float | None, high: float | None) -> int:
    """The channels of an activation that have scales of their own; 1 where all have one.

    Args:
      c: the converter, which knows the scale of the activation.
      name: the activation.
      low: the lower bound of the CLAMP that computes it; None without one.
      high: the upper bound.
    """
    spec, mask_axis = c.scaled[c.owner(name)].spec, c.scaled[c.owner(name)].mask_axis
    is_plain = spec.dtype is DType.INT8 and not spec.observer.is_fixed and mask_axis is None
    # Factors take no channel beyond the bounds of all; but 0 must stay 0.
    has_zero = (low is None or low <= 0) and (high is None or high >= 0)
    # Records of loops and branches are of elements, not of channels.
    is_inner = c.is_main and name not in c.graph.outputs
    is_allowed = c.options.channel_scales and is_plain and has_zero and is_inner
    if is_allowed and all(_has_channel_scales(c, node) for node in c.readers(name)):
        *_, count = c.graph.tensors[name].shape or (1,)
        return count
    return 1


def factors_read(c: Converter, node: Node) -> tuple[str, int] | None:
    """The input of a depthwise convolution whose channels have factors, and the sums of each."""
    name, weight = node.inputs[:2]
    if name not in c.factors:
        return None
    *_, count = c.graph.tensors[weight].shape or (1,)
    return name, count


def _has_channel_scales(c: Converter, node: Node) -> bool:
    """Whether a node is a depthwise convolution by constants with a scale for each channel."""
    if node.op != "DEPTHWISE_CONV2D":
        return False
    weight, (output,) = node.inputs[1], node.outputs
    is_constant = c.constant(weight) is not None and c.is_weight_alone(weight)
    return is_constant and c.asked.weight(output, weight).per_channel
