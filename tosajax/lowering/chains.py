"""Chains: consecutive native kernels that run in one call.

A RESHAPE between two kernels of a chain moves no data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions import Elementwise, FloatProduct, Fusion, Product, nodes_of, output_of

Part = Fusion | Node


def chains(parts: Sequence[Part], tensors: Mapping[str, Tensor]) -> list[range]:
    """The parts that each call runs, in order; a part outside of chains is a call by itself.

    Args:
      parts: the nodes of a graph in order, with fusions in place of the nodes that they cover.
      tensors: the graph's tensors, by name.
    """
    calls: list[range] = []
    for place, part in enumerate(parts):
        begin = calls[-1].start if calls else place
        if begin < place and _continues(parts[begin:place], part, tensors):
            calls[-1] = range(begin, place + 1)
        else:
            calls.append(range(place, place + 1))
    return calls


def _continues(chain: Sequence[Part], part: Part, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a fusion, or a RESHAPE of a fusion's output, can extend a chain."""
    images = _batch_size(chain[0], tensors)
    if images is None:
        return False
    computed = {name for p in chain for name in outputs_of(p)}
    if isinstance(part, Node):
        return part.op == "RESHAPE" and part.inputs[0] in computed
    # Weights and scales are prepared before the call, so its kernels must not compute them.
    others = {name for node in nodes_of(part) for name in node.inputs} - {*_images(part, tensors)}
    return _batch_size(part, tensors) == images and computed.isdisjoint(others)


def _batch_size(part: Part, tensors: Mapping[str, Tensor]) -> int | None:
    """The batch size that a fusion's inputs and output share, or None."""
    if isinstance(part, Node):
        return None
    if isinstance(part, Product | FloatProduct) and not part.is_planar:
        return None
    shapes = (tensors[name].shape for name in (*_images(part, tensors), output_of(part)))
    counts = {shape[0] if shape else None for shape in shapes}
    return counts.pop() if len(counts) == 1 else None


def _images(fusion: Fusion, tensors: Mapping[str, Tensor]) -> list[str]:
    """The inputs of a fusion that have a dimension of images."""
    if isinstance(fusion, FloatProduct | Elementwise):
        return fusion.images(tensors)
    nodes = nodes_of(fusion)
    inside = {name for node in nodes for name in node.outputs}
    return [name for node in nodes for name in node.inputs[:1] if name not in inside]


def outputs_of(part: Part) -> Sequence[str]:
    """The outputs of a part that other parts may read."""
    return part.outputs if isinstance(part, Node) else [output_of(part)]


def inputs_inside(part: Part) -> list[str]:
    """The tensors that a part's nodes read, including tensors inside a fusion."""
    nodes = [part] if isinstance(part, Node) else nodes_of(part)
    return [name for node in nodes for name in node.inputs]
