"""Rounds tensors to fewer bits; their types stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Graph, Node, Tensor, arguments
from tosajax.graph.edit import Draft, rewritten
from tosajax.graph.zero_points import zero_points
from tosajax.rewrite.power_of_two import rescaled
from tosajax.spec import Kind, NanMode

# The activations to round: outputs of these operators, of these types.
_MAKERS = ("RESCALE", "TABLE", "AVG_POOL2D", "CLAMP")
_ROUNDED = (DType.INT8, DType.INT16)


class _Grid(NamedTuple):
    """The grid of multiples of 2**drop, relative to the zero point."""

    drop: int
    zero_point: int
    low: int  # the smallest and largest multiple that the type holds, in units of 2**drop
    high: int


def bits(
    graph: Graph,
    n: int,
    where: str | None = None,
    tensors: Literal["activations", "weights"] = "activations",
) -> Graph:
    """The graph with integers of n bits: multiples of a power of two, in their old types.

    An 8-bit type keeps every 2**(8 - n)th integer, counted from the zero point. Activations
    (int8 and int16 outputs of RESCALE, TABLE, AVG_POOL2D and CLAMP) are rounded half up and
    saturated by operators after their node, and after its CLAMP if it has one; the output of these
    operators has the name of the tensor. Weights (int4, int8 and int16) are rounded in their
    constants, for every node that reads them.

    Args:
      graph: a legal graph.
      n: bits, at least 1; tensors whose types have at most n bits stay as they are.
      where: a regular expression, found in the nodes' outputs or locations; None for all.
      tensors: "activations" or "weights".

    Raises:
      ValueError: n is below 1, there are no such tensors, or none matches.

    Example:
      >>> import numpy as np
      >>> import tosajax
      >>> from tosajax import quant, rewrite
      >>> example = np.float32([[-1, 1]])
      >>> model = quant.prepare(lambda x: x + x, example_args=[example])
      >>> graph = rewrite.bits(model.freeze(quant.calibrate(model, [example])), 4)
      >>> (y,) = tosajax.compile(graph)(np.int8([[-77, 55]]))
      >>> ((y + 1) % 16).tolist()  # the zero point is -1
      [[0, 0]]
    """
    if n < 1:
        raise ValueError(f"{n} bits, expected at least 1")
    match tensors:
        case "activations":
            return _activations(graph, n, where)
        case "weights":
            return _weights(graph, n, where)
    raise ValueError(f"tensors {tensors!r}, expected 'activations' or 'weights'")


def rounded_by_bits(
    graph: Graph, tensors: Literal["activations", "weights"] = "activations"
) -> Iterator[tuple[Node, list[Tensor]]]:
    """Yields each node that `bits` changes, with the tensors that `bits` rounds for it."""
    for part in graph.walk():
        draft = Draft(part)
        for node in part.nodes:
            if tensors == "weights":
                names = [name for name, _ in _weights_of(draft, node)]
            else:
                names = [node.outputs[0]] if _is_rounded(draft, node) else []
            if names:
                yield node, [part.tensors[name] for name in names]


def _activations(graph: Graph, n: int, where: str | None) -> Graph:
    zeros = {part.name: zero_points(part) for part in graph.walk()}
    clamped = {part.name: _clamped(part) for part in graph.walk()}

    def change(draft: Draft, node: Node) -> list[Node] | None:
        if not _is_rounded(draft, node):
            return None
        name = node.outputs[0]
        dtype, part = draft.tensors[name].dtype, draft.graph.name
        if n >= dtype.bits or name in clamped[part]:
            return [node]
        return _rounded(draft, node, _grid(dtype, n, zeros[part].get(name, 0)))

    return rewritten(graph, where, "integer of 8 or 16 bits", change)


def _is_rounded(draft: Draft, node: Node) -> bool:
    """Whether the node's output is an activation to round."""
    return node.op in _MAKERS and draft.tensors[node.outputs[0]].dtype in _ROUNDED


def _clamped(graph: Graph) -> set[str]:
    """The tensors that only a CLAMP reads; the CLAMP's output is rounded in their place."""
    readers: dict[str, list[str]] = {name: ["output"] for name in graph.outputs}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node.op)
    return {name for name, ops in readers.items() if ops == ["CLAMP"]}


def _rounded(draft: Draft, node: Node, grid: _Grid) -> list[Node]:
    """The node, then nodes that round its output: divide by 2**drop, clamp, multiply again."""
    (name,) = node.outputs
    tensor = draft.tensors[name]
    whole, low, ends = (draft.tensor(f"{name}/{x}", tensor.dtype, tensor.shape) for x in _STEPS)
    clamp = Node(
        "CLAMP",
        (low,),
        (ends,),
        {"min_val": _scalar(grid.low, tensor), "max_val": _scalar(grid.high, tensor),
         "nan_mode": NanMode.PROPAGATE},
        node.location,
    )  # fmt: skip
    return [
        dataclasses.replace(node, outputs=(whole,)),
        rescaled(draft, whole, low, 30 + grid.drop, (grid.zero_point, 0), node.location),
        clamp,
        rescaled(draft, ends, name, 30 - grid.drop, (0, grid.zero_point), node.location),
    ]


_STEPS = ("all_bits", "fewer_bits", "clamped")


def _scalar(value: int, tensor: Tensor) -> np.generic:
    return tensor.dtype.storage.type(value)


def _weights(graph: Graph, n: int, where: str | None) -> Graph:
    def change(draft: Draft, node: Node) -> list[Node] | None:
        weights = list(_weights_of(draft, node))
        for name, zero_point in weights:
            tensor = draft.tensors[name]
            if n < tensor.dtype.bits:
                grid = _grid(tensor.dtype, n, zero_point)
                draft.tensors[name] = dataclasses.replace(tensor, values=_on(grid, tensor))
        return [node] if weights else None

    return rewritten(graph, where, "constant weight", change)


def _weights_of(draft: Draft, node: Node) -> Iterator[tuple[str, int]]:
    """Yields the constants that a node multiplies its input by, with their zero points."""
    named = arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)
    for argument, zero in (("weight", "weight_zp"), ("a", "a_zp"), ("b", "b_zp")):
        if argument not in named or zero not in named:
            continue
        name = _constant_behind(draft, named[argument])
        tensor, zero_point = draft.tensors[name], draft.tensors[named[zero]].values
        if tensor.values is not None and tensor.dtype.is_integer and zero_point is not None:
            yield name, int(zero_point.reshape(()))


def _constant_behind(draft: Draft, name: str) -> str:
    """The tensor before any RESHAPE, TRANSPOSE and IDENTITY that `name` is computed by."""
    producers = {n: node for node in draft.graph.nodes for n in node.outputs}
    while (node := producers.get(name)) and node.op in ("RESHAPE", "TRANSPOSE", "IDENTITY"):
        name = node.inputs[0]
    return name


def _on(grid: _Grid, tensor: Tensor) -> np.ndarray:
    """The values of a constant, rounded half up to the grid."""
    assert tensor.values is not None
    distance = tensor.values.astype(np.int32) - grid.zero_point
    multiples = (distance + (1 << grid.drop >> 1)) >> grid.drop
    return (multiples.clip(grid.low, grid.high) << grid.drop) + grid.zero_point


def _grid(dtype: DType, n: int, zero_point: int) -> _Grid:
    drop = dtype.bits - n
    low = -((zero_point - dtype.minimum) >> drop)
    return _Grid(drop, zero_point, low, (dtype.maximum - zero_point) >> drop)
