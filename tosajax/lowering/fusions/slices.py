"""Finds SLICEs that cut off only elements that the next window does not read.

Kernels read the whole tensor instead. Converters insert such a SLICE if the stride leaves rows or
columns over, which TOSA does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import inputs_of
from tosajax.ops._window import Window


def slices_of(nodes: Sequence[Node]) -> dict[str, Node]:
    """The SLICEs among nodes, by the names of their outputs."""
    return {node.outputs[0]: node for node in nodes if node.op == "SLICE"}


def needless_slice(
    node: Node,
    window: Window,
    slices: Mapping[str, Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
) -> Node | None:
    """The SLICE before a node, if the node's result is the same without it.

    Args:
      node: a node with a window over its first input.
      window: the window.
      slices: the slices from `slices_of`.
      tensors: the graph's tensors, by name.
      readers: the only reader of each tensor that has one, by the tensor's name; graph outputs
        are left out.
    """
    name = node.inputs[0]
    maker = slices.get(name)
    if maker is None or readers.get(name) is not node:
        return None
    names = inputs_of(maker)
    start, source, result = tensors[names["start"]].values, tensors[names["input1"]], tensors[name]
    if start is None or start.any() or source.shape is None or result.shape is None:
        return None
    less = [of - length for of, length in zip(source.shape, result.shape, strict=True)]
    is_padded = any(cut and high for cut, (_, high) in zip(less[1:-1], window.pad, strict=True))
    is_needless = not (less[0] or less[-1] or is_padded)
    return maker if is_needless and window.out(source.shape) == window.out(result.shape) else None
