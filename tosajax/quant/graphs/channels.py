"""Nodes that scale and move the channels of a tensor, and the convolutions they can go into."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tosajax import spec
from tosajax.graph import Node, Tensor

# The operators that scale and move values, where the other operand is constant; and the operand
# with which they change nothing.
NEUTRAL = {"ADD": 0, "SUB": 0, "MUL": 1}


def is_convolution(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node is a convolution of floats with constant weights and bias."""
    if spec.OPERATORS[node.op].chapter != "conv":
        return False
    _, weight, bias, *_ = (tensors[name] for name in node.inputs)
    return weight.dtype.is_float and weight.values is not None and bias.values is not None


def is_unshifted(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node does not shift a product."""
    shifts = [tensors[name].values for name in node.inputs[2:]]
    return all(shift is not None and not shift.any() for shift in shifts)


def by_channel(tensor: Tensor) -> np.ndarray | None:
    """The values of a constant along its last axis, float64, if they vary along no other."""
    if tensor.values is None or not tensor.values.ndim:
        return None
    rows = tensor.values.reshape(-1, tensor.values.shape[-1])
    return rows[0].astype(np.float64) if np.all(rows == rows[0]) else None
