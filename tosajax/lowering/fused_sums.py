"""Nodes that one native kernel computes: ADD or SUB of scaled bytes, scaled to bytes again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fused_rescale import Reader, is_rescale, reader_of, rounds_twice

# Elements of an example; fewer are not worth a call.
_FEWEST = 256


class Addition(NamedTuple):
    """Nodes that follow each other; nothing else reads a tensor between two of them.

    Args:
      left: RESCALE of int8 to int32.
      left_next: another one, of that to int32, if there is one.
      right: as `left`.
      right_next: as `left_next`.
      main: ADD or SUB of both; the step has its name.
      rescale: of the result to int8.
      clamp: of that, if there is one.
    """

    left: Node
    left_next: Node | None
    right: Node
    right_next: Node | None
    main: Node
    rescale: Node
    clamp: Node | None = None


def additions(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Addition]:
    """The additions of a graph; see `fusions`."""
    makers = {node.outputs[0]: node for node in nodes if node.op == "RESCALE"}

    def maker(name: str, reader: Node) -> Node | None:
        """The RESCALE that makes a tensor for one reader alone."""
        return makers.get(name) if readers.get(name) is reader else None

    def term(name: str, reader: Node) -> tuple[Node, Node | None] | None:
        last = maker(name, reader)
        if _scales(last, DType.INT8, tensors):
            return last, None
        if not _scales(last, DType.INT32, tensors):
            return None
        first = maker(last.inputs[0], last)
        return (first, last) if _scales(first, DType.INT8, tensors) else None

    found = []
    for node in nodes:
        if node.op not in ("ADD", "SUB") or not _is_of_equal_shapes(node, tensors):
            continue
        left, right = (term(name, node) for name in node.inputs)
        rescale = reader_of(node, readers)
        if left is None or right is None:
            continue
        if is_rescale(rescale, tensors) and not rescale.attributes["per_channel"]:
            clamp = reader_of(rescale, readers)
            is_clamped = clamp is not None and clamp.op == "CLAMP"
            found.append(Addition(*left, *right, node, rescale, clamp if is_clamped else None))
    return found


def _is_of_equal_shapes(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    left, right = (tensors[name].shape for name in node.inputs)
    if left is None or left != right:
        return False
    return math.prod(length for length in left if length > 0) >= _FEWEST


def _scales(node: Node | None, dtype: DType, tensors: Mapping[str, Tensor]) -> TypeGuard[Node]:
    """Whether it scales values of a type to int32, which are signed then, all alike."""
    if node is None:
        return False
    of, to = (tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    return (of, to) == (dtype, DType.INT32) and not node.attributes["per_channel"]


def addition_kernel(fusion: Addition, isa: Any) -> Callable[[Reader], Any]:
    """The kernel of an addition; see `kernel_of`."""
    from tosajax.native import call

    def total(reader: Reader) -> Any:
        left, right = (reader.tensor(node.inputs[0]) for node in (fusion.left, fusion.right))
        scales, end = scales_of(fusion, reader), reader.epilogue(fusion.rescale, fusion.clamp)
        return call.add(isa, fusion.main.op, (left, right), scales, end)

    return total


def scales_of(fusion: Addition, reader: Reader) -> tuple[Any, Any]:
    """Of the left and of the right term, as `native.call` has them."""
    from tosajax.native import call

    def scaling(first: Node, last: Node | None) -> Any:
        scale = reader.operands(first, "input_zp", "multiplier", "shift")
        then = None
        if last is not None:
            numbers = reader.operands(last, "multiplier", "shift")
            then = call.Rescaling(*numbers, double=rounds_twice(last))
        return call.Scaling(*scale, double=rounds_twice(first), then=then)

    return scaling(fusion.left, fusion.left_next), scaling(fusion.right, fusion.right_next)
