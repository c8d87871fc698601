"""Nodes that one native kernel computes: a convolution, a RESCALE of its sums, and a CLAMP.

Sums of two tensors are in `fused_sums.py`, their common ends in `fused_rescale.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fused_rescale import epilogue, inputs_of, is_rescale, nodes_of, reader_of
from tosajax.lowering.fused_sums import Addition, addition_step, additions
from tosajax.lowering.run import Run, Step, store
from tosajax.ops import _window
from tosajax.ops.routes.operands import known_weights
from tosajax.ops.routes.route import Route


class Fusion(NamedTuple):
    """Nodes that follow each other; nothing else reads a tensor between two of them.

    Args:
      main: CONV2D or DEPTHWISE_CONV2D of int8 by constant weights; the step has its name.
      rescale: of its sums to int8, if there is one.
      clamp: of the results, if there is one.
    """

    main: Node
    rescale: Node | None = None
    clamp: Node | None = None


def fusions(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Fusion | Addition]:
    """The fusions of a graph.

    Args:
      nodes: of the graph.
      tensors: by name.
      readers: the one node that reads a tensor that no other does and that is not an output.
    """
    found: list[Fusion | Addition] = [*additions(nodes, tensors, readers)]
    for node in nodes:
        if node.op not in _SIZE or not _is_convolution(node, tensors):
            continue
        fusion = Fusion(node)
        reader = reader_of(node, readers)
        if is_rescale(reader, tensors):
            fusion = Fusion(node, reader)
            reader = reader_of(reader, readers)
            if reader is not None and reader.op == "CLAMP":
                fusion = fusion._replace(clamp=reader)
        found.append(fusion)
    return found


# The axes of weights that a window has.
_SIZE = {"CONV2D": slice(1, 3), "DEPTHWISE_CONV2D": slice(0, 2)}


def _is_convolution(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    names = inputs_of(node)
    if tensors[names["input"]].dtype is not DType.INT8:
        return False
    return _weights(node, tensors) is not None


def _weights(node: Node, tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    names = inputs_of(node)
    weight, zero_point = (tensors[names[n]].values for n in ("weight", "weight_zp"))
    return None if weight is None or zero_point is None else known_weights(weight, zero_point)


def native_set(native: bool | None) -> Any:
    """The instruction set of native kernels on this processor; None for XLA's route."""
    from tosajax.native.isa import chosen

    return chosen(native)


def fused_step(fusion: Fusion | Addition, tensors: Mapping[str, Tensor], isa: Any) -> Step:
    """The step of a fusion, which stores its last result.

    Args:
      fusion: of the nodes.
      tensors: by name.
      isa: from `native_set`.
    """
    if isinstance(fusion, Addition):
        return addition_step(fusion, tensors, isa)
    return _convolution_step(fusion, tensors, isa)


def _convolution_step(fusion: Fusion, tensors: Mapping[str, Tensor], isa: Any) -> Step:
    from tosajax.native import call

    node = fusion.main
    names, attributes = inputs_of(node), node.attributes
    weight = _weights(node, tensors)
    assert weight is not None
    size = weight.shape[_SIZE[node.op]]
    window = _window.window(size, *(attributes[n] for n in ("stride", "dilation", "pad")))
    kernel = call.convolve if node.op == "CONV2D" else call.convolve_depthwise
    done = ", ".join(n.op for n in nodes_of(fusion))

    def step(run: Run) -> None:
        def read(name: str) -> Any:
            tensor = tensors[name]
            return run.values[name] if tensor.values is None else tensor.values

        end = None if fusion.rescale is None else epilogue(fusion.rescale, fusion.clamp, read)

        def sums(x: jax.Array) -> jax.Array:
            operands = call.Operands(x, weight, read(names["bias"]), read(names["input_zp"]))
            return call.run(kernel(isa, operands, window, end))

        route = Route(f"native {isa.name}".replace("-", " "), done, sums)
        store(run, nodes_of(fusion)[-1], route(run.values[names["input"]]))

    return step
