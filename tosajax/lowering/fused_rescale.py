"""What fusions have in common: the RESCALE and the CLAMP that they end with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor, arguments
from tosajax.spec import Kind, RoundingMode


def nodes_of(fusion: Sequence[Node | None]) -> list[Node]:
    """The nodes of a fusion that there are, the last one last."""
    return [node for node in fusion if node is not None]


def inputs_of(node: Node) -> dict[str, str]:
    """The tensors that a node reads, by argument."""
    return arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)


def reader_of(node: Node, readers: Mapping[str, Node]) -> Node | None:
    """The one node that reads the output of another."""
    return readers.get(node.outputs[0])


def is_rescale(node: Node | None, tensors: Mapping[str, Tensor]) -> TypeGuard[Node]:
    """Whether it scales sums to int8; RESCALE of int32 is of signed integers alone."""
    if node is None or node.op != "RESCALE":
        return False
    of, to = (tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
    return (of, to) == (DType.INT32, DType.INT8)


def rounds_twice(rescale: Node) -> bool:
    return rescale.attributes["rounding_mode"] == RoundingMode.DOUBLE_ROUND


def epilogue(rescale: Node, clamp: Node | None, read: Callable[[str], Any]) -> Any:
    """RESCALE and CLAMP for a kernel.

    Args:
      rescale: of the sums.
      clamp: of the results, if there is one.
      read: the value of a tensor.
    """
    from tosajax.native.call import Epilogue

    bounds = (-128, 127)
    if clamp is not None:
        bounds = tuple(int(clamp.attributes[name]) for name in ("min_val", "max_val"))
    names = inputs_of(rescale)
    operands = (read(names[name]) for name in ("multiplier", "shift", "output_zp"))
    return Epilogue(*operands, *bounds, double=rounds_twice(rescale))
