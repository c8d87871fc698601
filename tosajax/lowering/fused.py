"""Nodes that one native kernel computes: a convolution, a RESCALE of its sums, and a CLAMP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor, arguments
from tosajax.lowering.run import Run, Step, store
from tosajax.ops import _window
from tosajax.ops.routes.operands import known_weights
from tosajax.ops.routes.route import Route
from tosajax.spec import Kind, RoundingMode


class Fusion(NamedTuple):
    """Nodes that follow each other; nothing else reads a tensor between two of them.

    Args:
      convolution: CONV2D or DEPTHWISE_CONV2D of int8 by constant weights.
      rescale: of its sums to int8, if there is one.
      clamp: of the results, if there is one.
    """

    convolution: Node
    rescale: Node | None = None
    clamp: Node | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self if node is not None)

    @property
    def last(self) -> Node:
        return self.nodes[-1]


def fusions(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Fusion]:
    """The fusions of a graph.

    Args:
      nodes: of the graph.
      tensors: by name.
      readers: the one node that reads a tensor that no other does and that is not an output.
    """
    found = []
    for node in nodes:
        if node.op not in _SIZE or not _is_convolution(node, tensors):
            continue
        fusion = Fusion(node)
        reader = readers.get(node.outputs[0])
        if reader is not None and _is_rescale(reader, tensors):
            fusion = Fusion(node, reader)
            reader = readers.get(reader.outputs[0])
            if reader is not None and reader.op == "CLAMP":
                fusion = fusion._replace(clamp=reader)
        found.append(fusion)
    return found


# The axes of weights that a window has.
_SIZE = {"CONV2D": slice(1, 3), "DEPTHWISE_CONV2D": slice(0, 2)}


def _inputs(node: Node) -> dict[str, str]:
    return arguments(spec.OPERATORS[node.op], node.inputs, Kind.INPUT)


def _is_convolution(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    names = _inputs(node)
    if tensors[names["input"]].dtype is not DType.INT8:
        return False
    return _weights(node, tensors) is not None


def _weights(node: Node, tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    names = _inputs(node)
    weight, zero_point = (tensors[names[n]].values for n in ("weight", "weight_zp"))
    return None if weight is None or zero_point is None else known_weights(weight, zero_point)


def _is_rescale(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether it scales sums to int8; RESCALE of int32 is of signed integers alone."""
    return node.op == "RESCALE" and tensors[node.outputs[0]].dtype is DType.INT8


def native_set(native: bool | None) -> Any:
    """The instruction set of native kernels on this processor; None for XLA's route."""
    from tosajax.native.isa import chosen

    return chosen(native)


def fused_step(fusion: Fusion, tensors: Mapping[str, Tensor], isa: Any) -> Step:
    """The step of a fusion, which stores its last result.

    Args:
      fusion: of the nodes.
      tensors: by name.
      isa: from `native_set`.
    """
    from tosajax.native import call

    node = fusion.convolution
    names, attributes = _inputs(node), node.attributes
    weight = _weights(node, tensors)
    assert weight is not None
    size = weight.shape[_SIZE[node.op]]
    window = _window.window(size, *(attributes[n] for n in ("stride", "dilation", "pad")))
    kernel = call.convolve if node.op == "CONV2D" else call.convolve_depthwise
    done = ", ".join(n.op for n in fusion.nodes)

    def step(run: Run) -> None:
        def read(name: str) -> Any:
            tensor = tensors[name]
            return run.values[name] if tensor.values is None else tensor.values

        epilogue = None if fusion.rescale is None else _epilogue(fusion, read)

        def sums(x: jax.Array) -> jax.Array:
            operands = call.Operands(x, weight, read(names["bias"]), read(names["input_zp"]))
            return call.run(kernel(isa, operands, window, epilogue))

        route = Route(f"native {isa.name}".replace("-", " "), done, sums)
        store(run, fusion.last, route(run.values[names["input"]]))

    return step


def _epilogue(fusion: Fusion, read: Callable[[str], Any]) -> Any:
    """RESCALE and CLAMP for the kernel."""
    from tosajax.native.call import Epilogue

    assert fusion.rescale is not None
    names, attributes = _inputs(fusion.rescale), fusion.rescale.attributes
    bounds = (-128, 127)
    if fusion.clamp is not None:
        bounds = tuple(int(fusion.clamp.attributes[name]) for name in ("min_val", "max_val"))
    double = attributes["rounding_mode"] == RoundingMode.DOUBLE_ROUND
    operands = (read(names[name]) for name in ("multiplier", "shift", "output_zp"))
    return Epilogue(*operands, *bounds, double=double)
