"""Pools, each of which one native kernel computes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import Prepare, Reader
from tosajax.lowering.fusions.slices import needless_slice, slices_of
from tosajax.ops._window import Window, window
from tosajax.spec import NanMode

if TYPE_CHECKING:
    from tosajax.native.call import KernelCall
    from tosajax.native.codegen.isa import InstructionSet

_OPERATORS = ("AVG_POOL2D", "MAX_POOL2D")
_TYPES = (DType.INT8, DType.INT16, DType.FP32)
# XLA is faster with fewer channels, which leave vectors partly unused, and if windows overlap more,
# as it combines long windows in a few steps.
_FEWEST_CHANNELS = 4
_MOST_READS = 9  # windows that contain an input element


class Pool(NamedTuple):
    """A pool of integers or float32, with the SLICE of its input.

    Args:
      cut: a SLICE of the input that the kernel need not compute, if there is one.
      main: AVG_POOL2D or MAX_POOL2D.
    """

    cut: Node | None
    main: Node

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import call

        del tensors
        node, zero, shape = self.main, np.zeros(1, np.int8), _window_of(self.main)

        def prepare(reader: Reader) -> KernelCall:
            zero_points = [zero, zero]
            if node.op == "AVG_POOL2D":
                zero_points = reader.operands(node, "input_zp", "output_zp")
            x = reader.tensor((self.cut or node).inputs[0])
            return call.combine(isa, node.op, x, shape, zero_points)

        return prepare


def find_pools(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Pool]:
    """Finds the pools of a graph; see `find_fusions`."""
    slices = slices_of(nodes)
    return [
        Pool(needless_slice(node, _window_of(node), slices, tensors, readers), node)
        for node in nodes
        if node.op in _OPERATORS and _is_faster(node, tensors)
    ]


def _window_of(node: Node) -> Window:
    kernel, stride, pad = (node.attributes[name] for name in ("kernel", "stride", "pad"))
    return window(kernel, stride, (1, 1), pad)


def _is_faster(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a native kernel can compute a pool and is at least as fast as XLA."""
    source, result = (tensors[name] for name in (node.inputs[0], node.outputs[0]))
    if source.dtype not in _TYPES:
        return False
    ignores_nan = node.attributes.get("nan_mode", NanMode.PROPAGATE) != NanMode.PROPAGATE
    if source.dtype is DType.FP32 and ignores_nan:
        return False
    assert source.shape
    assert result.shape
    _, height, width, channels = source.shape
    reads = math.prod(result.shape[1:3]) * math.prod(node.attributes["kernel"])
    return channels >= _FEWEST_CHANNELS and reads <= _MOST_READS * height * width
