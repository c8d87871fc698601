"""A SLICE before a window that reads no more than what is left: kernels read the whole instead.

Converters write it where a stride leaves rows or columns over, which TOSA does not allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import inputs_of
from tosajax.ops._window import Window


def slices_of(nodes: Sequence[Node]) -> dict[str, Node]:
    """Each SLICE by the tensor that it makes."""
    return {node.outputs[0]: node for node in nodes if node.op == "SLICE"}


def needless_slice(
    node: Node,
    window: Window,
    slices: Mapping[str, Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
) -> Node | None:
    """The SLICE that makes the input of a node, if its window gives the same without it.

    Args:
      node: with a window over its first input.
      window: of the node.
      slices: from `slices_of`.
      tensors: by name.
      readers: the one node that reads a tensor that no other does and that is not an output.
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
