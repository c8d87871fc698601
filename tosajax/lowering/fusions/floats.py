"""Convolutions and MATMULs of float32, fused with the elementwise operators that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tosajax import spec
from tosajax.dtypes import DType
from tosajax.graph import Node, Tensor
from tosajax.lowering.fusions.pattern import (
    BOUNDS,
    MOST_IMAGES,
    RESHAPE,
    Prepare,
    Reader,
    inputs_of,
    layout_of,
    values_of,
)
from tosajax.lowering.fusions.products import MOST_TAPS, PLANAR, window_of
from tosajax.lowering.fusions.slices import needless_slice, slices_of
from tosajax.native.codegen.steps import CHANNEL, ELEMENT, IMAGES, OF_FLOATS, PADDED, SCALAR
from tosajax.spec import NanMode

if TYPE_CHECKING:
    from tosajax.native.calls.schedule import KernelCall
    from tosajax.native.codegen.isa import InstructionSet
    from tosajax.native.operands import FloatSteps, Operands

TRANSPOSED = "TRANSPOSE_CONV2D"
_MOST_STEPS = 16


class _Operand(NamedTuple):
    """An operand of steps.

    Args:
      name: the tensor that steps read.
      source: the tensor that the kernel reads: the input of its PAD, or the same.
      kind: see `native.codegen.steps`.
    """

    name: str
    source: str
    kind: str

    @property
    def is_image(self) -> bool:
        """Whether it has a dimension of images."""
        return self.kind in IMAGES


class FloatProduct(NamedTuple):
    """A product and the operators that follow it; no other node reads the tensors between them.

    Args:
      cut: a SLICE of the input that the kernel need not compute, if there is one.
      main: a convolution or MATMUL of float32, which names the step.
      pads: PADs of channels by zeros, of inputs of steps.
      steps: elementwise operators, in order.
    """

    cut: Node | None
    main: Node
    pads: tuple[Node, ...] = ()
    steps: tuple[Node, ...] = ()

    @property
    def is_planar(self) -> bool:
        """Whether the kernel reads images row by row."""
        return self.main.op in PLANAR

    def images(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The inputs with a dimension of images: of the product, and of steps."""
        others = (each.source for each in self._operands(tensors) if each.is_image)
        return [(self.cut or self.main).inputs[0], *others]

    def kernel(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel for an instruction set."""
        from tosajax.native import call

        if self.main.op == "MATMUL":
            return self._multiplied(tensors, isa)
        if self.main.op == TRANSPOSED:
            return self._transposed(isa)
        window = window_of(self.main, tensors)
        is_depthwise = self.main.op == "DEPTHWISE_CONV2D"
        convolve = call.convolve_depthwise if is_depthwise else call.convolve

        def prepare(reader: Reader) -> KernelCall:
            return convolve(isa, self._read(reader), window, self._steps(reader))

        return prepare

    def _multiplied(self, tensors: Mapping[str, Tensor], isa: InstructionSet) -> Prepare:
        """The kernel of a MATMUL by a constant."""
        from tosajax.native import forms
        from tosajax.native.operands import Operands

        values, zero = tensors[inputs_of(self.main)["b"]].values, np.zeros(1, np.float32)
        assert values is not None
        weight = values.transpose(2, 0, 1)

        def prepare(reader: Reader) -> jax.Array:
            (a,) = reader.operands(self.main, "a")
            o = Operands(a, weight, zero, zero)
            return forms.multiply_by_constant(isa, o, self._steps(reader))

        return prepare

    def _transposed(self, isa: InstructionSet) -> Prepare:
        """The kernel of a TRANSPOSE_CONV2D."""
        from tosajax.native import forms

        stride, out_pad = (self.main.attributes[name] for name in ("stride", "out_pad"))

        def prepare(reader: Reader) -> jax.Array:
            return forms.convolve_transposed(
                isa, self._read(reader), stride, out_pad, self._steps(reader)
            )

        return prepare

    def _read(self, reader: Reader) -> Operands:
        from tosajax.native.operands import Operands

        weight, bias, x_zp = reader.operands(self.main, "weight", "bias", "input_zp")
        return Operands(reader.tensor((self.cut or self.main).inputs[0]), weight, bias, x_zp)

    def _operands(self, tensors: Mapping[str, Tensor]) -> Iterator[_Operand]:
        """Yields each operand of the steps once."""
        inside = {self.main.outputs[0], *(node.outputs[0] for node in self.steps)}
        padded = {node.outputs[0]: node.inputs[0] for node in self.pads}
        read = (name for node in self.steps for name in values_of(node))
        for name in dict.fromkeys(read):
            if name in padded:
                yield _Operand(name, padded[name], PADDED)
            elif name not in inside:
                kind = _kind(tensors[name], tensors[self.main.outputs[0]])
                yield _Operand(name, name, kind)

    def _steps(self, reader: Reader) -> FloatSteps:
        """The steps with their operands, while the program is traced."""
        from tosajax.native.kernels.epilogue import FloatEpilogue
        from tosajax.native.operands import FloatSteps

        numbers, kinds, operands = {self.main.outputs[0]: 0}, list[str](), list[Any]()
        for each in self._operands(reader.tensors):
            numbers[each.name] = 1 + len(kinds)
            kinds.append(each.kind)
            read = reader.tensor if each.is_image else reader.value
            operands.append(read(each.source))
        bounds: dict[str, list[int]] = {}
        for node in self.steps:
            if node.op == "CLAMP":
                bounds[node.outputs[0]] = [1 + len(kinds), 2 + len(kinds)]
                kinds += [SCALAR] * 2
                operands += [reader.attribute(node, name) for name in BOUNDS]
        steps: list[tuple[str, tuple[int, ...]]] = []
        for node in self.steps:
            (output,) = node.outputs
            read = [numbers[name] for name in values_of(node)]
            if node.op == RESHAPE:
                numbers[output] = read[0]
                continue
            numbers[output] = 1 + len(kinds) + len(steps)
            steps.append((node.op, (*read, *bounds.get(output, ()))))
        return FloatSteps(FloatEpilogue(tuple(kinds), tuple(steps)), tuple(operands))


def find_float_products(
    nodes: Sequence[Node],
    tensors: Mapping[str, Tensor],
    readers: Mapping[str, Node],
    several: Mapping[str, Sequence[Node]],
) -> list[FloatProduct]:
    """Finds the products of float32 of a graph; see `find_fusions`."""
    slices = slices_of(nodes)
    places = {id(node): place for place, node in enumerate(nodes)}
    pads = {node.outputs[0]: node for node in nodes if _pads_channels(node, tensors)}
    taken, found = set[int](), list[FloatProduct]()

    def readers_of(name: str) -> Sequence[Node] | None:
        """All readers of a tensor; None if it is an output or has others."""
        return [readers[name]] if name in readers else several.get(name)

    # Of two products that feed one sum, the later one takes it.
    for node in reversed(nodes):
        if not is_float_product(node, tensors):
            continue
        cut = None
        if node.op in PLANAR:
            window = window_of(node, tensors)
            cut = needless_slice(node, window, slices, tensors, readers)
        # The channels of its kernel are several pixels each.
        steps = (
            () if node.op == TRANSPOSED else _following(node, tensors, readers_of, places, taken)
        )
        taken |= {id(step) for step in steps}
        own = [
            pads[name]
            for step in steps
            for name in step.inputs
            # Channels of several pixels may share a vector of a depthwise convolution.
            if name in pads and readers.get(name) is step and node.op == "CONV2D"
        ]
        found.append(FloatProduct(cut, node, tuple(own), steps))
    return found[::-1]


def is_float_product(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a native kernel computes a node's products of float32: those by constants."""
    return is_product_of_floats(node, tensors) and not float_obstacle(node, tensors)


def is_product_of_floats(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node is a convolution or matrix product of floats."""
    return spec.OPERATORS[node.op].is_product and tensors[node.inputs[0]].dtype.is_float


def float_obstacle(node: Node, tensors: Mapping[str, Tensor]) -> str:
    """Why no native kernel computes a product of floats; "" if one does."""
    if node.op not in (*PLANAR, TRANSPOSED, "MATMUL"):
        return f"none of {node.op} of floats"
    names = inputs_of(node)
    pair = ("a", "b") if node.op == "MATMUL" else ("input", "weight")
    left, right = (tensors[names[name]] for name in pair)
    other = next((t for t in (left, tensors[node.outputs[0]]) if t.dtype is not DType.FP32), None)
    if other is not None:
        return f"none of {other.dtype.name}"
    if right.values is None:
        return "right matrix not constant" if node.op == "MATMUL" else "weights not constant"
    if node.op == "MATMUL":
        return "" if right.values.shape[0] == 1 else "several right matrices"
    return _obstacle_of_window(node, right.values)


def _obstacle_of_window(node: Node, weights: np.ndarray) -> str:
    """Why no native kernel computes a convolution by constant weights; "" if one does.

    Padding is a product with 0, which is not 0 where a weight is infinite.
    """
    taps = math.prod(weights.shape[:2])
    if node.op == "DEPTHWISE_CONV2D" and taps > MOST_TAPS:
        return f"{taps} taps, more than {MOST_TAPS}"
    if node.op == TRANSPOSED:
        # Else its kernel has taps of 0, whose products with infinite inputs are NaN.
        sizes = zip(weights.shape[1:3], node.attributes["stride"], strict=True)
        if any(size % step for size, step in sizes):
            return "window no multiple of the stride"
    is_padded = node.op == TRANSPOSED or any(node.attributes["pad"])
    if is_padded and not np.isfinite(weights).all():
        return "infinite weights beside padding"
    return ""


def _following(
    main: Node,
    tensors: Mapping[str, Tensor],
    readers_of: Callable[[str], Sequence[Node] | None],
    places: Mapping[int, int],
    taken: set[int],
) -> tuple[Node, ...]:
    """The longest run of elementwise operators behind a product of which only the last is read.

    Args:
      main: the product.
      tensors: the graph's tensors, by name.
      readers_of: all readers of a tensor, or None.
      places: of nodes in the graph's order, by identity.
      taken: the nodes that other products take, by identity.
    """
    result = tensors[main.outputs[0]]
    inside, others, steps, best = {main.outputs[0]}, set[str](), list[Node](), 0
    waiting = {id(n): n for n in readers_of(main.outputs[0]) or ()}
    while waiting and len(steps) < _MOST_STEPS:
        node = waiting.pop(min(waiting, key=places.__getitem__))
        if id(node) in taken or not _is_step(node, inside, result, tensors):
            break
        others |= {name for name in _outside(node, inside) if _is_other(tensors[name], result)}
        if len(others) > MOST_IMAGES:
            break
        steps.append(node)
        inside.add(node.outputs[0])
        following = readers_of(node.outputs[0])
        is_result = node.op != RESHAPE and tensors[node.outputs[0]].dtype is DType.FP32
        if not waiting and is_result:
            best = len(steps)
        if following is None:
            break
        waiting |= {id(n): n for n in following}
    return tuple(steps[:best])


def _is_step(node: Node, inside: set[str], result: Tensor, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node is elementwise, reads only what a kernel has, and has the product's shape."""
    if node.op not in OF_FLOATS and node.op != RESHAPE:
        return False
    if not _has_layout(tensors[node.outputs[0]], result):
        return False
    if node.attributes.get("nan_mode", NanMode.PROPAGATE) != NanMode.PROPAGATE:
        return False
    return all(_kind(tensors[name], result) for name in _outside(node, inside))


def _outside(node: Node, inside: set[str]) -> list[str]:
    """The operands of an elementwise node that are not computed in the kernel."""
    return [name for name in values_of(node) if name not in inside]


def _is_other(tensor: Tensor, result: Tensor) -> bool:
    return _kind(tensor, result) == ELEMENT


def _kind(tensor: Tensor, result: Tensor) -> str:
    """The kind of an operand of steps; "" if a kernel cannot read it."""
    if tensor.dtype is not DType.FP32 or not result.shape:
        return ""
    if tensor.values is not None:
        if tensor.values.size == 1:
            return SCALAR
        channels = result.shape[-1]
        if tensor.values.size == channels == tensor.values.shape[-1]:
            return CHANNEL
    return ELEMENT if _has_layout(tensor, result) else ""


def _has_layout(tensor: Tensor, result: Tensor) -> bool:
    return layout_of(tensor.shape or ()) == layout_of(result.shape or ())


def _pads_channels(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a node only appends channels of zeros to images of float32."""
    if node.op != "PAD" or tensors[node.outputs[0]].dtype is not DType.FP32:
        return False
    padding, value = (tensors[name].values for name in node.inputs[1:3])
    if padding is None or value is None or value.any() or np.signbit(value).any():
        return False
    return padding.size == 8 and not padding.reshape(-1)[:-1].any()
