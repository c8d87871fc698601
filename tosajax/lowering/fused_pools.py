"""Pools of integers, each of which one native kernel computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fused_rescale import Reader
from tosajax.ops._window import window

_OPERATORS = ("AVG_POOL2D", "MAX_POOL2D")
_TYPES = (DType.INT8, DType.INT16)
# XLA is faster with fewer channels, of which a vector is full of zeros, and where windows overlap
# more, as it combines long ones in a few steps.
_FEWEST_CHANNELS = 4
_MOST_READS = 9  # of an element of the input


class Pool(NamedTuple):
    """A node alone.

    Args:
      main: AVG_POOL2D or MAX_POOL2D.
    """

    main: Node


def pools(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> list[Pool]:
    """The pools of a graph; see `fusions`."""
    found = (node for node in nodes if node.op in _OPERATORS)
    return [Pool(node) for node in found if _is_faster(node, tensors)]


def _is_faster(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a native kernel computes a pool, and is not slower than XLA."""
    source, result = (tensors[name] for name in (node.inputs[0], node.outputs[0]))
    if source.dtype not in _TYPES:
        return False
    assert source.shape
    assert result.shape
    _, height, width, channels = source.shape
    reads = math.prod(result.shape[1:3]) * math.prod(node.attributes["kernel"])
    return channels >= _FEWEST_CHANNELS and reads <= _MOST_READS * height * width


def pool_kernel(fusion: Pool, isa: Any) -> Callable[[Reader], jax.Array]:
    """Computes a pool; see `fused_step`."""
    from tosajax.native import call

    node, zero = fusion.main, np.zeros(1, np.int8)
    kernel, stride, pad = (node.attributes[name] for name in ("kernel", "stride", "pad"))
    shape = window(kernel, stride, (1, 1), pad)

    def combined(reader: Reader) -> jax.Array:
        zero_points = [zero, zero]
        if node.op == "AVG_POOL2D":
            zero_points = reader.operands(node, "input_zp", "output_zp")
        x = jnp.asarray(*reader.operands(node, "input"))
        return call.run(call.combine(isa, node.op, x, shape, zero_points))

    return combined
