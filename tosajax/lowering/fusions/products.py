"""Convolutions and MATMULs of integers, fused with the RESCALE and the CLAMP of their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import (
    Prepare,
    Reader,
    clamp_of,
    inputs_of,
    is_rescale,
    reader_of,
)
from tosajax.lowering.fusions.slices import needless_slice, slices_of
from tosajax.ops import _window
from tosajax.ops.routes.operands import INT8_CHUNK, known_weights

if TYPE_CHECKING:
    from tosajax.native.calls.schedule import KernelCall
    from tosajax.native.codegen.isa import InstructionSet
    from tosajax.native.operands import Epilogue, Operands

    Result = KernelCall | jax.Array

# The most taps of a depthwise convolution: its kernel is unrolled over taps.
MOST_TAPS = 128
# The most products in an int32 sum: of two int8, or of int8 and a byte of int16, of which one has
# no sign.
_MOST_TERMS = {DType.INT8: INT8_CHUNK, DType.INT16: INT8_CHUNK // 2}
# Operators whose kernels read their input by rows, and may skip rows.
PLANAR = "CONV2D", "DEPTHWISE_CONV2D"
_RESCALED = DType.INT8, DType.INT16


class Product(NamedTuple):
    """A product and its epilogue; no other node reads the tensors between them.

    Args:
      cut: a SLICE of the input that the kernel need not compute, if there is one.
      main: a convolution or MATMUL of int8 or int16, which names the step.
      rescale: the RESCALE of its sums to int8 or int16, if there is one.
      clamp: the CLAMP of its results, if there is one.
    """

    cut: Node | None
    main: Node
    rescale: Node | None = None
    clamp: Node | None = None

    @property
    def is_planar(self) -> bool:
        """Whether the kernel reads images row by row."""
        return self.main.op in PLANAR

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        if self.main.op == "MATMUL":
            compute = _matmul(self.main, tensors, isa)
        else:
            compute = _convolution(self, tensors, isa)
        return lambda reader: compute(reader, self.epilogue(reader))

    def epilogue(self, reader: Reader) -> Epilogue | None:
        """The RESCALE and the CLAMP as an epilogue; None if the kernel stores sums."""
        return None if self.rescale is None else reader.epilogue(self.rescale, self.clamp)

    def operands(self, reader: Reader) -> Operands:
        """The operands of a convolution; the zero point is subtracted from the weights."""
        from tosajax.native.operands import Operands

        names = "weight", "bias", "input_zp", "weight_zp"
        weight, bias, x_zp, weight_zp = reader.operands(self.main, *names)
        weight = _less_zero_point(weight, weight_zp)
        x = reader.tensor((self.cut or self.main).inputs[0])
        return Operands(x, weight, bias, x_zp)


def _less_zero_point(weight: jax.Array | np.ndarray, zero_point: jax.Array | np.ndarray) -> Any:
    """weight - zero_point: int8 if they are known to fit, else int16."""
    if isinstance(zero_point, np.ndarray) and not zero_point.any():
        return weight
    if not (isinstance(weight, np.ndarray) and isinstance(zero_point, np.ndarray)):
        less = jnp.asarray(zero_point).astype(np.int16).reshape(())
        return jnp.asarray(weight).astype(np.int16) - less
    wide = weight.astype(np.int16) - zero_point
    narrow = wide.astype(np.int8)
    return narrow if np.array_equal(narrow, wide) else wide


def find_products(
    nodes: Sequence[Node], tensors: Mapping[str, Tensor], readers: Mapping[str, Node]
) -> list[Product]:
    """Finds the products of a graph; see `find_fusions`."""
    slices = slices_of(nodes)
    fusions = []
    for node in nodes:
        if not is_product(node, tensors):
            continue
        cut = None
        if node.op in PLANAR:
            cut = needless_slice(node, window_of(node, tensors), slices, tensors, readers)
        fusion = Product(cut, node)
        reader = reader_of(node, readers)
        if is_rescale(reader, tensors, _RESCALED):
            fusion = Product(cut, node, reader, clamp_of(reader, readers))
        fusions.append(fusion)
    return fusions


def is_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a native kernel computes a node's products."""
    return is_integer_product(node, tensors) and not integer_obstacle(node, tensors)


def is_integer_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node is a convolution or matrix product of int8 or int16."""
    is_product = spec.OPERATORS[node.op].is_product
    return is_product and tensors[node.inputs[0]].dtype in _MOST_TERMS


def integer_obstacle(node: Node, tensors: Mapping[str, Tensor]) -> str:
    """Why no native kernel computes an integer product; "" if one does.

    Sums must fit int32, and the number of taps the code.
    """
    if node.op == "MATMUL":
        return ""
    if node.op == "MATMUL_T":
        return "none of MATMUL_T, only of MATMUL"
    names = inputs_of(node)
    x, weight = (tensors[names[name]] for name in ("input", "weight"))
    if not weight.shape:
        return "shape of weights not known"
    if node.op == "DEPTHWISE_CONV2D":
        taps = math.prod(weight.shape[:2])
        return f"{taps} taps, more than {MOST_TAPS}" if taps > MOST_TAPS else ""
    terms = math.prod(weight.shape[1:])
    return f"{terms} terms are too many for sums in int32" if terms > _MOST_TERMS[x.dtype] else ""


def window_of(node: Node, tensors: Mapping[str, Tensor]) -> _window.Window:
    """The window of a convolution, from the shape of its weights."""
    shape = tensors[inputs_of(node)["weight"]].shape or ()
    size = tuple(shape[axis] for axis in spec.OPERATORS[node.op].window_axes)
    return _window.window(size, *(node.attributes[n] for n in ("stride", "dilation", "pad")))


def _convolution(
    product: Product, tensors: Mapping[str, Tensor], isa: InstructionSet
) -> Callable[[Reader, Epilogue | None], Result]:
    from tosajax.native import call, forms

    node = product.main
    if node.op == "TRANSPOSE_CONV2D":
        stride, out_pad = node.attributes["stride"], node.attributes["out_pad"]
        return lambda reader, epilogue: forms.convolve_transposed(
            isa, product.operands(reader), stride, out_pad, epilogue
        )
    by_operator = {
        "CONV2D": call.convolve,
        "CONV3D": forms.convolve_3d,
        "DEPTHWISE_CONV2D": call.convolve_depthwise,
    }
    convolve, window = by_operator[node.op], window_of(node, tensors)
    return lambda reader, epilogue: convolve(isa, product.operands(reader), window, epilogue)


def _matmul(
    node: Node, tensors: Mapping[str, Tensor], isa: InstructionSet
) -> Callable[[Reader, Epilogue | None], Result]:
    from tosajax.native import call, forms
    from tosajax.native.operands import Operands

    def multiply(reader: Reader, epilogue: Epilogue | None) -> KernelCall:
        a, b, a_zp, b_zp = reader.operands(node, "a", "b", "a_zp", "b_zp")
        return call.multiply(isa, (a, b), (a_zp, b_zp), epilogue)

    if tensors[node.inputs[0]].dtype is DType.INT16:
        return multiply
    weight = _columns(node, tensors)
    if weight is None:
        return multiply

    def convolve(reader: Reader, epilogue: Epilogue | None) -> jax.Array:
        a, a_zp = reader.operands(node, "a", "a_zp")
        o = Operands(a, weight, np.zeros(1, np.int32), a_zp)
        return forms.multiply_by_constant(isa, o, epilogue)

    return convolve


def _columns(node: Node, tensors: Mapping[str, Tensor]) -> np.ndarray | None:
    """The right operand of a MATMUL as convolution weights; None unless it is a constant matrix."""
    values, zero_point = (tensors[inputs_of(node)[name]].values for name in ("b", "b_zp"))
    if values is None or zero_point is None or len(values) > 1:
        return None
    return known_weights(values.transpose(2, 0, 1), zero_point)
