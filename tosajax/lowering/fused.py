"""Nodes that one native kernel computes: products, a RESCALE of their sums, and a CLAMP.

Sums of two tensors are in `fused_sums.py`, their common ends in `fused_rescale.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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
      main: a convolution of int8 by constant weights, or MATMUL of int8; the step has its name.
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
        if not _is_product(node, tensors):
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


# Of a depthwise window: its kernel has code for each of them.
_MOST_TAPS = 128
# The axes of weights that a window has.
_SIZE = {
    "CONV2D": slice(1, 3),
    "CONV3D": slice(1, 4),
    "DEPTHWISE_CONV2D": slice(0, 2),
    "TRANSPOSE_CONV2D": slice(1, 3),
}


def _is_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    if node.op == "MATMUL":
        return tensors[node.inputs[0]].dtype is DType.INT8
    if node.op not in _SIZE or tensors[node.inputs[0]].dtype is not DType.INT8:
        return False
    weight = _weights(node, tensors)
    if weight is None:
        return False
    return node.op != "DEPTHWISE_CONV2D" or math.prod(weight.shape[:2]) <= _MOST_TAPS


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
    product = _matmul if fusion.main.op == "MATMUL" else _convolution
    kernel = product(fusion.main, tensors, isa)
    done = ", ".join(n.op for n in nodes_of(fusion))

    def step(run: Run) -> None:
        def read(name: str) -> Any:
            tensor = tensors[name]
            return run.values[name] if tensor.values is None else tensor.values

        end = None if fusion.rescale is None else epilogue(fusion.rescale, fusion.clamp, read)
        operands = {key: read(name) for key, name in inputs_of(fusion.main).items()}
        route = Route(f"native {isa.name}".replace("-", " "), done, lambda: kernel(operands, end))
        store(run, nodes_of(fusion)[-1], route())

    return step


# Computes a product: (its operands by argument, the epilogue or None) -> the result.
_Kernel = Callable[[Mapping[str, Any], Any], jax.Array]


def _convolution(node: Node, tensors: Mapping[str, Tensor], isa: Any) -> _Kernel:
    from tosajax.native import call, forms

    weight = _weights(node, tensors)
    assert weight is not None
    size, attributes = weight.shape[_SIZE[node.op]], node.attributes

    def operands(values: Mapping[str, Any]) -> call.Operands:
        x = jnp.asarray(values["input"])
        return call.Operands(x, weight, values["bias"], values["input_zp"])

    if node.op == "TRANSPOSE_CONV2D":
        how = attributes["stride"], attributes["out_pad"]
        return lambda values, end: forms.convolve_transposed(isa, operands(values), *how, end)
    window = _window.window(size, *(attributes[n] for n in ("stride", "dilation", "pad")))
    if node.op == "CONV3D":
        return lambda values, end: forms.convolve_3d(isa, operands(values), window, end)
    kernel = call.convolve if node.op == "CONV2D" else call.convolve_depthwise
    return lambda values, end: call.run(kernel(isa, operands(values), window, end))


def _matmul(node: Node, tensors: Mapping[str, Tensor], isa: Any) -> _Kernel:
    from tosajax.native import call

    def products(values: Mapping[str, Any], end: Any) -> jax.Array:
        inputs = values["a"], values["b"]
        return call.run(call.multiply(isa, inputs, (values["a_zp"], values["b_zp"]), end))

    weight = _columns(node, tensors)
    if weight is None:
        return products

    def by_weights(values: Mapping[str, Any], end: Any) -> jax.Array:
        """A row is a pixel."""
        x = jnp.asarray(values["a"])[:, :, None]
        o = call.Operands(x, weight, np.zeros(1, np.int32), values["a_zp"])
        ones = _window.window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
        return call.run(call.convolve(isa, o, ones, end))[:, :, 0]

    return by_weights


def _columns(node: Node, tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    """The right operand of a product as weights, if it is one constant matrix."""
    values, zero_point = (tensors[inputs_of(node)[name]].values for name in ("b", "b_zp"))
    if values is None or zero_point is None or len(values) > 1:
        return None
    return known_weights(values.transpose(2, 0, 1)[:, :, None], zero_point)
